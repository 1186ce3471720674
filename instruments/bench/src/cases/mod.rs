//! The table of all cases.

mod adapt;
mod alloc;
mod bag;
pub(crate) mod browse;
pub(crate) mod cache;
pub(crate) mod call;
mod call_counter;
pub(crate) mod call_process;
pub(crate) mod cell;
mod cluster_size;
mod counter;
pub(crate) mod first_touch;
pub(crate) mod gather;
mod invoke;
mod invoke_parts;
pub(crate) mod lifecycle;
mod lock;
pub(crate) mod map;
pub(crate) mod matmul;
mod message;
mod messages;
pub(crate) mod miss;
pub(crate) mod monitor;
#[cfg(feature = "net")]
pub(crate) mod net;
mod object_memory;
mod object_pool;
mod page_alloc;
pub(crate) mod pager;
mod percpu;
mod pool;
mod queue;
pub(crate) mod rcu_idle;
mod rcu_read;
pub(crate) mod rcu_retire;
mod rcu_wait;
mod request_counter;
mod rpc;
pub(crate) mod rwlock;
mod serve;
mod shared_keys;
mod ship;
pub(crate) mod swap;
mod taking;
mod tsp;

use crate::case::Case;

static CASES: &[&Case] = &[
    &call::CASE,
    &call_process::CASE,
    &call_counter::CASE,
    &counter::CASE,
    &miss::CASE,
    &lifecycle::CASE,
    &gather::CASE,
    &swap::CASE,
    &adapt::CASE,
    &invoke::CASE,
    &invoke_parts::CASE,
    &object_memory::CASE,
    &monitor::CASE,
    &browse::CASE,
    &lock::LOCK,
    &lock::MIX,
    &rwlock::CASE,
    &bag::BAG,
    &bag::ASYM,
    &queue::CASE,
    &object_pool::CASE,
    &pool::CASE,
    &tsp::CASE,
    &taking::IDS,
    &taking::PAGES,
    &page_alloc::CASE,
    &pager::PIN,
    &pager::FAULT,
    &pager::MEMCLONE,
    &pager::GREP,
    &pager::UNMAP,
    &pager::SWAP_SOURCE,
    &pager::CLONE,
    &cell::CASE,
    &map::GET,
    &map::MIXED,
    &map::CHURN,
    &map::MEMORY,
    &map::ADAPT,
    &cache::CASE,
    &first_touch::CASE,
    &cluster_size::CASE,
    &matmul::CASE,
    &message::CASE,
    &rpc::CASE,
    &messages::CASE,
    #[cfg(feature = "net")]
    &net::CASE,
    #[cfg(feature = "net")]
    &net::FAULTS,
    &shared_keys::CASE,
    &ship::CASE,
    &serve::CASE,
    &alloc::CASE,
    &alloc::REMOTE,
    &alloc::MEMORY,
    &request_counter::CASE,
    &percpu::PERCPU,
    &percpu::PACED,
    &rcu_read::CASE,
    &rcu_wait::CASE,
    &rcu_retire::CASE,
    &rcu_idle::CASE,
];

/// All cases, in the order of the list.
pub fn all() -> &'static [&'static Case] {
    CASES
}

/// The case with this name.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().copied().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Role;

    fn well_formed(name: &str) -> bool {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
    }

    #[test]
    fn names_are_lower_case_with_hyphens_and_unique() {
        let mut names: Vec<&str> = all().iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
        for case in all() {
            assert!(well_formed(case.name), "{}", case.name);
            let mut subjects: Vec<&str> = case.subjects.iter().map(|spec| spec.name).collect();
            assert!(subjects.iter().all(|name| well_formed(name)), "{subjects:?}");
            subjects.sort_unstable();
            subjects.dedup();
            assert_eq!(subjects.len(), case.subjects.len(), "{}", case.name);
            let named = case.variants.iter().filter(|v| well_formed(v.name)).count();
            assert!(
                named == case.variants.len() || (named == 0 && case.variants.len() == 1),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn only_ours_are_named_squall() {
        for case in all() {
            for spec in case.subjects {
                let named = spec.name == "squall" || spec.name.starts_with("squall-");
                assert_eq!(named, spec.role == Role::Ours, "{} in {}", spec.name, case.name);
            }
        }
    }
}
