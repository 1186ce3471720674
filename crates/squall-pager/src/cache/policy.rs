//! The family of adaptive file caches. Its sensor is the miss of a second VP. The names of the constants and
//! counts of all caches, for `squall top`, browsers and `squall::adapt::control::set_attribute`.
//!
//! The policy does not choose between the two forms with several tables. The program knows better whether
//! pages are used again: a distributed table costs a replica for each page and processor.

use squall_adapt::control::{register_reading, register_setting};
use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::Form;
use squall_adapt::{engine, family};
use squall_core::Handle;
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_objects::two_forms::{ByMisses, TwoForms};
use squall_policy::attribute::Attribute as Named;
use std::sync::Once;
use std::time::Duration;

use super::forms::Cache;
use super::{ADAPTS, Attribute, FileCache, PARTITIONS, SHIFT, Sensors};
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

static DIRTY_MAX: Named<u64> = Named::<u64>::new("dirty-max", u64::MAX)
    .in_unit("pages")
    .about("changed pages from which on a thread that changes another one writes some first");
static PATIENCE: Named<Duration> = Named::new("patience", Duration::from_secs(1))
    .about("the time for which a fault waits for memory, while all pages of the pool are pinned");

fn sensors(cache: Handle<dyn FileCache>) -> Option<Sensors> {
    cache.try_sensors().ok()
}

/// Declares readings of the sensors, and registers them.
macro_rules! readings {
    ($($name:literal $unit:literal $field:ident $about:literal)*) => {
        fn have_readings() {
            $({
                static READING: Named<u64> = Named::<u64>::new($name, 0).in_unit($unit).about($about);
                register_reading(&READING, |cache| sensors(cache).map(|sensors| sensors.$field as u64));
            })*
        }
    };
}

readings! {
    "resident" "pages" resident "pages in memory, approximately"
    "dirty" "pages" dirty "changed pages that are not yet written to the file"
    "fills" "pages" fills "pages that were filled"
    "read-ahead" "pages" read_ahead "pages that were filled before a thread wanted them"
    "evictions" "pages" evictions "pages that were evicted"
    "written" "pages" written "pages that were written to the file"
    "replicas" "pages" replicas "page replicas, approximately"
    "replicas-made" "pages" replicas_made "replicas that were made"
    "replicas-removed" "pages" replicas_removed "replicas that were taken away"
    "replicas-refused" "pages" replicas_refused "replicas that were not made, for lack of memory for replicas"
    "mappings" "mappings" mappings "mappings of regions at addresses of this process"
    "private-mappings" "mappings" private_mappings "private mappings in this process"
    "clients" "processes" clients "mappings in other processes"
}

/// Registers the constants and the counts of caches by their names, once.
pub(super) fn show() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        register_setting(
            &DIRTY_MAX,
            |cache: Handle<dyn FileCache>| cache.try_attribute(Attribute::DirtyMax).ok().map(|it| it as u64),
            |cache, pages| {
                let pages = usize::try_from(pages).unwrap_or(usize::MAX);
                cache.try_set_attribute(Attribute::DirtyMax, pages).ok()
            },
        );
        register_setting(
            &PATIENCE,
            |cache: Handle<dyn FileCache>| {
                let ms = cache.try_attribute(Attribute::PatienceMs).ok()?;
                Some(Duration::from_millis(ms as u64))
            },
            |cache, patience| {
                let ms = usize::try_from(patience.as_millis()).unwrap_or(usize::MAX);
                cache.try_set_attribute(Attribute::PatienceMs, ms).ok()
            },
        );
        have_readings();
    });
}
