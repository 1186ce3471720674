//! The family of adaptive file caches. Its sensor is the miss of a second VP.
//!
//! The policy does not choose between the two forms with several tables. The program knows better whether
//! pages are used again: a distributed table costs a replica for each page and processor.

use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::Form;
use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_objects::two_forms::{ByMisses, TwoForms};
use std::sync::Once;

use super::forms::Cache;
use super::{ADAPTS, FileCache, PARTITIONS, SHIFT};
use crate::index::{OneLock, Partitioned};

static CACHES: ByMisses<Caches> = ByMisses::new();

/// Registers the family, and starts the engine, once.
pub(super) fn register() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&CACHES));
    engine::start();
}

struct Caches;

impl TwoForms for Caches {
    type Interface = dyn FileCache;

    const NAME: &'static str = "file-cache";

    const FORMS: [Form; 2] = [
        Form::of::<Cache<OneLock, ADAPTS>>("shared").described("one table under one lock"),
        Form::of::<Cache<Partitioned, ADAPTS>>("partitioned").described("a table for each part of the file"),
    ];

    /// A call takes the lock of the one table, or reads one of several tables.
    const ESTIMATE: Estimate = Estimate {
        global: &["sync", "set_len", "evict"],
        reads: &["len", "attribute", "source", "sensors"],
        costs: CallCosts { shared_ns: 20.0, local_ns: 12.0, visit_ns: 20.0, ..CallCosts::DEFAULT },
        ..Estimate::DEFAULT
    };

    fn vacant(distributed: bool, size: ClusterSize) -> Replacement<dyn FileCache> {
        if distributed {
            Replacement::root(Cache::<_, ADAPTS>::new(Partitioned::new(PARTITIONS, SHIFT), None), size)
        } else {
            Replacement::root(Cache::<_, ADAPTS>::new(OneLock::default(), None), size)
        }
    }
}
