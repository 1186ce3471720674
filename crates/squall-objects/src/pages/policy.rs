//! The family of adaptive pools of pages. Its sensor is the miss of a second VP. The limit and the counts of
//! a pool have names, for `squall top`, browsers and
//! [`control::set_attribute`](squall_adapt::control::set_attribute).

use squall_adapt::control::{register_reading, register_setting};
use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::Form;
use squall_core::Handle;
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_policy::attribute::Attribute;
use std::sync::Once;

use super::pool::{Local, Pool};
use super::{ADAPTS, PagePool};
use crate::two_forms::{self, ByMisses, TwoForms};

/// Name of the form in which an adaptive pool starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = two_forms::SHARED;
/// Name of the form for a pool that several VPs use. Constructor: [`distributed`](super::distributed).
pub const DISTRIBUTED: &str = two_forms::DISTRIBUTED;

pub(super) static POOLS: ByMisses<Pools> = ByMisses::new();

pub(super) struct Pools;

impl TwoForms for Pools {
    type Interface = dyn PagePool;

    const NAME: &'static str = "page-pool";

    const FORMS: [Form; 2] = [
        Form::of::<Pool<ADAPTS, false>>(SHARED).described("one list of free pages for all processors"),
        Form::of::<Pool<ADAPTS, true>>(DISTRIBUTED).described("free pages per processor"),
    ];

    /// A call takes a lock and touches a list, in either form. The shared form's lock is an atomic
    /// operation for all processors but one.
    const ESTIMATE: Estimate = Estimate {
        global: &["free", "give_up"],
        reads: &["members", "parent", "used", "max_pages", "attribute"],
        costs: CallCosts {
            shared_ns: 16.0,
            local_ns: 10.0,
            visit_ns: 20.0,
            rep_bytes: size_of::<Local>() + 512,
            ..CallCosts::DEFAULT
        },
        ..Estimate::DEFAULT
    };

    fn vacant(distributed: bool, size: ClusterSize) -> Replacement<dyn PagePool> {
        if distributed {
            Replacement::root(Pool::<ADAPTS, true>::vacant(), size)
        } else {
            Replacement::root(Pool::<ADAPTS, false>::vacant(), size)
        }
    }
}

static MAX_PAGES: Attribute<u64> =
    Attribute::<u64>::new("max-pages", u64::MAX).in_unit("pages").about("the limit of pages");
static USED: Attribute<u64> = Attribute::<u64>::new("used", 0)
    .in_unit("pages")
    .about("pages in use, and free pages in the pool's lists");
static FREE: Attribute<u64> =
    Attribute::<u64>::new("free", 0).in_unit("pages").about("free pages in the pool's lists");

/// Registers the attributes of pools, once.
pub(super) fn have_attributes() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        register_setting(
            &MAX_PAGES,
            |pool: Handle<dyn PagePool>| pool.try_max_pages().ok().map(|pages| pages as u64),
            |pool, pages| pool.try_set_max_pages(usize::try_from(pages).unwrap_or(usize::MAX)).ok(),
        );
        register_reading(&USED, |pool: Handle<dyn PagePool>| pool.try_used().ok().map(|pages| pages as u64));
        register_reading(&FREE, |pool: Handle<dyn PagePool>| pool.try_free().ok().map(|pages| pages as u64));
    });
}
