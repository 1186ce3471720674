//! What can be set of the policy by which objects adapt: for all of them, or for one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use squall_core::Id;

use squall_policy::attribute::{self, Attribute, ClassValues, Schema};
use crate::engine::{DRY_RUN, FROZEN};

/// Leaves the object as it is.
pub static FREEZE: Attribute<bool> = Attribute::new("freeze", false).about("leaves the object as it is");

/// Only says what would be done.
pub static DRY: Attribute<bool> = Attribute::new("dry-run", false).about("only says what would be done");

/// The least time between two swaps, and the time for which a load must have been steady before a change of it is followed
/// at once.
pub static COOLDOWN: Attribute<Duration> = Attribute::new("cooldown", Duration::from_millis(200))
    .between(Duration::from_millis(1), Duration::from_secs(3600))
    .about("the least time between two swaps, and the time for which a load must have been steady to be followed at once");

/// How many times dearer the present form must be than another one.
pub static MARGIN: Attribute<f64> = Attribute::new("margin", 1.3)
    .between(1.0, 100.0)
    .in_unit("times")
    .about("how many times dearer the present form must be than another one");

/// What must be won at least: callers' time in each second.
pub static GAIN: Attribute<Duration> = Attribute::new("gain", Duration::from_millis(1))
    .between(Duration::ZERO, Duration::from_secs(1))
    .in_unit("per second")
    .about("what must be won at least: callers' time in each second");

/// After how long without a call an object goes back to its first form.
pub static QUIET: Attribute<Duration> = Attribute::new("quiet", Duration::from_secs(1))
    .between(Duration::from_millis(100), Duration::from_secs(86_400))
    .about("after how long without a call an object goes back to its first form, if its family has it go");

/// For how long calls are counted.
pub static SAMPLE: Attribute<Duration> = Attribute::new("sample", Duration::from_micros(300))
    .between(Duration::from_micros(10), Duration::from_millis(100))
    .about("for how long calls are counted");

/// What a byte is worth: callers' time in each second.
pub static BYTE: Attribute<f64> = Attribute::new("byte", 10.0)
    .between(0.0, 1e9)
    .in_unit("ns per second")
    .about("what a byte is worth: callers' time in each second");

/// What a transfer of a cache line between two VPs costs.
pub static TRANSFER: Attribute<f64> = Attribute::new("transfer", 25.0)
    .between(1.0, 100_000.0)
    .in_unit("ns")
    .about("what a transfer of a cache line between two VPs costs");

/// What the caches of a node keep of an object's memory: beyond it what is read comes from memory, which may be another node's.
pub static CACHE: Attribute<u64> = Attribute::<u64>::new("cache", 32 << 20)
    .between(0, u64::MAX)
    .in_unit("bytes")
    .about("what the caches of a node keep of an object's memory");

/// How long a swap may take.
pub static DEADLINE: Attribute<Duration> = Attribute::new("deadline", Duration::from_millis(100))
    .between(Duration::from_millis(1), Duration::from_secs(60))
    .about("how long a swap may take before it is rolled back");

/// Swaps in each second, of all objects of the program. Of the class only.
pub static SWAPS: Attribute<f64> = Attribute::new("swaps", 50.0)
    .between(0.0, 1e6)
    .in_unit("per second")
    .about("swaps in each second, of all objects of the program, at most twice as many in one; set for one object it has no effect");

/// Bytes that grown forms may have, of all objects of the program: looked at when one is to grow, with the representatives that it
/// would have then; those that more VPs make later are not prevented. Of the class only.
pub static BYTES: Attribute<u64> =
    Attribute::<u64>::new("bytes", 256 << 20).between(0, u64::MAX).in_unit("bytes").about(
        "bytes that grown forms may have, of all objects of the program; set for one object it has no effect",
    );

/// The policy's attributes.
pub static SCHEMA: Schema = Schema::new(
    "adaptive",
    &[
        &FREEZE, &DRY, &COOLDOWN, &MARGIN, &GAIN, &QUIET, &SAMPLE, &BYTE, &TRANSFER, &CACHE, &DEADLINE,
        &SWAPS, &BYTES,
    ],
);

/// What is set for all objects: `settings::ALL.set(&settings::COOLDOWN, …)`. For one object, see
/// [`control::set_attribute`](crate::control::set_attribute).
pub static ALL: ClassValues = ClassValues::new(&SCHEMA);

/// The settings of one object, as they are now.
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
    pub(crate) cache_bytes: u64,
    pub(crate) deadline: Duration,
}

impl Settings {
    pub(crate) fn of(id: Id) -> Settings {
        let own = attribute::of(id).filter(|values| std::ptr::eq(values.schema(), &SCHEMA));
        macro_rules! get {
            ($attribute:expr) => {
                own.as_ref().map_or_else(|| ALL.get(&$attribute), |values| values.get(&$attribute))
            };
        }
        Settings {
            freeze: FROZEN.load(Ordering::Relaxed) || get!(FREEZE),
            dry_run: DRY_RUN.load(Ordering::Relaxed) || get!(DRY),
            cooldown: get!(COOLDOWN),
            margin: get!(MARGIN),
            gain: get!(GAIN),
            quiet: get!(QUIET),
            sample: get!(SAMPLE),
            byte_ns: get!(BYTE),
            transfer_ns: get!(TRANSFER),
            cache_bytes: get!(CACHE),
            deadline: get!(DEADLINE),
        }
    }
}
