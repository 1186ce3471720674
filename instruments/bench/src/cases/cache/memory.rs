//! The bytes of the variant `memory`, key and value included.
//!
//! A thread inserts twice as many keys as fit. `SUBJECT_bytes_per_entry` is the memory of the cache by the
//! allocator's account, divided by the number of its entries. So it includes the metadata of keys that were
//! evicted or refused. `SUBJECT_over_leanest`, for ours, is divided by the least of any rival.
//!
//! - I1. The memory of one subject is given back before the next one is made.

use super::{each, value_of};
use crate::cases::map::Key;
use crate::rivals::caches::BoundedCache;
use crate::rivals::heap;

/// Entries of the cache.
const CAPACITY: usize = if cfg!(test) { 10_000 } else { 1_000_000 };

pub(super) fn measure() -> Result<Vec<(String, f64)>, String> {
    let mut metrics = Vec::new();
    let (mut leanest, mut ours) = (f64::MAX, Vec::new());
    for (name, bytes) in each!(weigh, CAPACITY) {
        let bytes = bytes?;
        metrics.push((format!("{name}_bytes_per_entry"), bytes));
        if name.starts_with("squall") {
            ours.push((name, bytes));
        } else {
            leanest = leanest.min(bytes);
        }
    }
    metrics.extend(ours.into_iter().map(|(name, bytes)| (format!("{name}_over_leanest"), bytes / leanest)));
    Ok(metrics)
}

/// Bytes for each entry of a full cache.
fn weigh<C: BoundedCache>(capacity: usize) -> Result<f64, String> {
    let account = || heap::bytes().ok_or("the C library has no account of its allocations");
    let before = account()?;
    let cache = C::new(capacity);
    for number in 0..2 * capacity as u64 {
        let key = u64::of(number);
        cache.insert(key, value_of(key));
    }
    cache.settle();
    let bytes = account()?.saturating_sub(before) as f64;
    let entries = cache.len();
    drop(cache);
    // I1.
    squall_rcu::barrier().map_err(|why| format!("the grace period failed: {why}"))?;
    if entries == 0 {
        return Err("a full cache has no entry".to_owned());
    }
    Ok(bytes / entries as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cache_has_its_bytes() {
        if heap::bytes().is_none() {
            return;
        }
        // Other tests allocate meanwhile, so the values are not checked.
        let metrics = measure().expect("the account is there");
        for name in ["squall", "squall-lru", "quick-cache", "moka", "mini-moka", "lru-mutex"] {
            let wanted = format!("{name}_bytes_per_entry");
            assert!(metrics.iter().any(|(metric, _)| *metric == wanted), "{metrics:?}");
        }
    }
}
