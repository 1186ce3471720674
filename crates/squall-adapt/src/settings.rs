//! Settings of the engine's policy: for all objects, or for one.
//!
//! Set a value for all objects with [`ALL`], or for one object with
//! [`control::set_attribute`](crate::control::set_attribute):
//!
//! ```
//! use squall::adapt::settings;
//! use std::time::Duration;
//!
//! settings::ALL.set(&settings::COOLDOWN, Duration::from_millis(500))?;
//! settings::ALL.set_text("margin", "1.5")?;
//! assert_eq!(settings::ALL.get(&settings::MARGIN), 1.5);
//! # Ok::<(), squall::policy::attribute::AttributeError>(())
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use squall_core::Id;

use squall_policy::attribute::{self, Attribute, ClassValues, Schema};

/// `true` if all objects are frozen.
pub(crate) static ALL_FROZEN: AtomicBool = AtomicBool::new(false);
/// `true` if all policies only record their decisions.
pub(crate) static ALL_DRY_RUN: AtomicBool = AtomicBool::new(false);

/// Leaves the object as it is. Default: false.
pub static FREEZE: Attribute<bool> = Attribute::new("freeze", false).about("leaves the object as it is");

/// Records decisions without carrying them out. Default: false.
pub static DRY: Attribute<bool> =
    Attribute::new("dry-run", false).about("records decisions without carrying them out");

/// Shortest time between two swaps of an object. If a load was steady for this time and then changes, the
/// engine follows the change at once. Default: 200 ms.
pub static COOLDOWN: Attribute<Duration> = Attribute::new("cooldown", Duration::from_millis(200))
    .between(Duration::from_millis(1), Duration::from_secs(3600))
    .about("the shortest time between two swaps; a change after a load that was steady for this time is followed at once");

/// Factor by which the present form must be more expensive than another one. Default: 1.3.
pub static MARGIN: Attribute<f64> = Attribute::new("margin", 1.3)
    .between(1.0, 100.0)
    .in_unit("times")
    .about("the factor by which the present form must be more expensive than another one");

/// Smallest gain of a swap, in callers' time per second. Default: 1 ms.
pub static GAIN: Attribute<Duration> = Attribute::new("gain", Duration::from_millis(1))
    .between(Duration::ZERO, Duration::from_secs(1))
    .in_unit("per second")
    .about("the smallest gain of a swap, in callers' time per second");

/// Time without a call after which an object returns to its first form. Default: 1 s.
pub static QUIET: Attribute<Duration> = Attribute::new("quiet", Duration::from_secs(1))
    .between(Duration::from_millis(100), Duration::from_secs(86_400))
    .about(
        "the time without a call after which an object returns to its first form, if its family allows it",
    );

/// Duration of a call count. Default: 300 µs.
pub static SAMPLE: Attribute<Duration> = Attribute::new("sample", Duration::from_micros(300))
    .between(Duration::from_micros(10), Duration::from_millis(100))
    .about("the duration of a call count");

/// Price of a byte of memory, in callers' time per second. Default: 10 ns.
pub static BYTE: Attribute<f64> = Attribute::new("byte", 10.0)
    .between(0.0, 1e9)
    .in_unit("ns per second")
    .about("the price of a byte of memory, in callers' time per second");

/// Cost of a cache line transfer between two VPs. Default: 0, as [measured](crate::costs::measured).
pub static TRANSFER: Attribute<f64> = Attribute::new("transfer", 0.0)
    .between(0.0, 100_000.0)
    .in_unit("ns")
    .about("the cost of a cache line transfer between two VPs; 0: as measured");

/// Cost of a locked instruction. Default: 0, as [measured](crate::costs::measured).
pub static LOCKED: Attribute<f64> = Attribute::new("locked", 0.0)
    .between(0.0, 100_000.0)
    .in_unit("ns")
    .about("the cost of a locked instruction; 0: as measured");

/// Cost of a full fence. Default: 0, as [measured](crate::costs::measured).
pub static FENCE: Attribute<f64> = Attribute::new("fence", 0.0)
    .between(0.0, 100_000.0)
    .in_unit("ns")
    .about("the cost of a full fence; 0: as measured");

/// Bytes of an object that the caches of a node can hold. Reads beyond it come from memory, possibly of
/// another node. Default: 32 MiB.
pub static CACHE: Attribute<u64> = Attribute::<u64>::new("cache", 32 << 20)
    .between(0, u64::MAX)
    .in_unit("bytes")
    .about("the bytes of an object that the caches of a node can hold");

/// Longest duration of a swap, after which it is rolled back. Default: 100 ms.
pub static DEADLINE: Attribute<Duration> = Attribute::new("deadline", Duration::from_millis(100))
    .between(Duration::from_millis(1), Duration::from_secs(60))
    .about("the longest duration of a swap, after which it is rolled back");

/// Swaps per second of all objects together. Default: 50. Applies only when set in [`ALL`].
pub static SWAPS: Attribute<f64> = Attribute::new("swaps", 50.0)
    .between(0.0, 1e6)
    .in_unit("per second")
    .about("swaps per second of all objects together, at most twice as many in one second; has no effect for one object");

/// Bytes that the grown forms of all objects may have together. Default: 256 MiB. Applies only when set in
/// [`ALL`].
///
/// Checked before an object grows, with the representatives that it would have then. Representatives that
/// other VPs cause later are not prevented.
pub static BYTES: Attribute<u64> = Attribute::<u64>::new("bytes", 256 << 20)
    .between(0, u64::MAX)
    .in_unit("bytes")
    .about("bytes that the grown forms of all objects may have together; has no effect for one object");

/// Schema with the attributes that adaptive objects have for the engine.
pub static SCHEMA: Schema = Schema::new(
    "adaptive",
    &[
        &FREEZE, &DRY, &COOLDOWN, &MARGIN, &GAIN, &QUIET, &SAMPLE, &BYTE, &TRANSFER, &LOCKED, &FENCE, &CACHE,
        &DEADLINE, &SWAPS, &BYTES,
    ],
);

/// Values for all objects. For one object see [`control::set_attribute`](crate::control::set_attribute).
pub static ALL: ClassValues = ClassValues::new(&SCHEMA);

/// Snapshot of the settings of one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) freeze: bool,
    pub(crate) dry_run: bool,
    pub(crate) cooldown: Duration,
    pub(crate) margin: f64,
    pub(crate) gain: Duration,
    pub(crate) quiet: Duration,
    pub(crate) sample: Duration,
    pub(crate) byte_ns: f64,
    pub(crate) transfer_ns: f64,
    pub(crate) locked_ns: f64,
    pub(crate) fence_ns: f64,
    pub(crate) cache_bytes: u64,
    pub(crate) deadline: Duration,
}

/// Returns whether the object is frozen, and whether its policy only records its decisions. Cheaper than all
/// settings, for lists of many objects.
pub(crate) fn is_held(id: Id) -> (bool, bool) {
    let own = attribute::values_of(id).filter(|values| std::ptr::eq(values.schema(), &SCHEMA));
    let get = |attribute: &'static Attribute<bool>| match &own {
        Some(values) => values.get(attribute),
        None => ALL.get(attribute),
    };
    let (frozen, dry_run) = (ALL_FROZEN.load(Ordering::Relaxed), ALL_DRY_RUN.load(Ordering::Relaxed));
    (frozen || get(&FREEZE), dry_run || get(&DRY))
}

impl Settings {
    pub(crate) fn of(id: Id) -> Settings {
        let own = attribute::values_of(id).filter(|values| std::ptr::eq(values.schema(), &SCHEMA));
        macro_rules! get {
            ($attribute:expr) => {
                own.as_ref().map_or_else(|| ALL.get(&$attribute), |values| values.get(&$attribute))
            };
        }
        Settings {
            freeze: ALL_FROZEN.load(Ordering::Relaxed) || get!(FREEZE),
            dry_run: ALL_DRY_RUN.load(Ordering::Relaxed) || get!(DRY),
            cooldown: get!(COOLDOWN),
            margin: get!(MARGIN),
            gain: get!(GAIN),
            quiet: get!(QUIET),
            sample: get!(SAMPLE),
            byte_ns: get!(BYTE),
            transfer_ns: get!(TRANSFER),
            locked_ns: get!(LOCKED),
            fence_ns: get!(FENCE),
            cache_bytes: get!(CACHE),
            deadline: get!(DEADLINE),
        }
    }
}
