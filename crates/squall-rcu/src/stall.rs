//! Stall reports: a grace period that does not end is reported with the operation that delays it. So is an
//! operation that blocked (see `blocking`).

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Arc, Mutex, OnceLock};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::raw::grace::Holdup;

/// Default stall timeout, in ms, unless [`set_stall_timeout`] or `SQUALL_STALL_MS` sets another.
const DEFAULT_MS: u64 = 10_000;
/// Marks a timeout that has not been read from the environment yet.
const UNSET: u64 = u64::MAX;

static STALL_TIMEOUT_MS: AtomicU64 = AtomicU64::new(UNSET);
static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);
static NAMES: OnceLock<fn(u64) -> String> = OnceLock::new();

type Handler = Arc<dyn Fn(&Stall) + Send + Sync>;

/// One operation that delays a grace period, or that blocked.
///
/// # Example
/// ```
/// // Reports to the log instead of stderr.
/// squall::rcu::on_stall(|stall| {
///     println!("thread {} is inside for {} ms", stall.thread_name, stall.since.as_millis());
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The kernel's name of the thread that is inside the operation.
    pub thread_name: String,
    /// The kernel's id of that thread.
    pub thread_id: u32,
    /// How long the grace period has been delayed: the time since its driver first slept. For an operation
    /// that blocked, its duration.
    pub since: Duration,
    /// Whether the operation has ended, and its thread slept or waited in it. Such operations are reported
    /// only in builds with debug assertions, once per place in the code.
    pub has_blocked: bool,
    /// The place where the outermost operation began. Recorded only in builds with debug assertions.
    pub began: Option<&'static Location<'static>>,
    /// The object called by the outermost operation, such as `Hits#17.3 of class demo::PerCore`. Recorded
    /// only in builds with debug assertions. `None` if the outermost operation is not a call of an object.
    pub object: Option<String>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_blocked {
            let object = self.object.as_ref().map(|object| format!("a call of {object}"));
            return write!(
                f,
                "squall-rcu: thread \"{}\" (id {}) slept or waited inside {}, which took {} ms{}; code there must not \
                 block, since it delays all reclamation (an allocation that waited counts, too; reported once per place)",
                self.thread_name,
                self.thread_id,
                object.as_deref().unwrap_or("an operation"),
                self.since.as_millis(),
                self.began.map_or_else(String::new, |at| format!(" and began at {at}")),
            );
        }
        write!(
            f,
            "squall-rcu: a grace period has waited {} ms for thread \"{}\" (id {}), which is inside ",
            self.since.as_millis(),
            self.thread_name,
            self.thread_id
        )?;
        match &self.object {
            Some(object) => write!(f, "a call of {object}")?,
            None => f.write_str("an operation")?,
        }
        match self.began {
            Some(at) => write!(f, " that began at {at}"),
            None if cfg!(debug_assertions) => Ok(()),
            None => f.write_str(" (build with debug assertions to see where it began, and in which object)"),
        }
    }
}

/// Calls `handler` when one operation has delayed a grace period for longer than the stall timeout.
///
/// In builds with debug assertions `handler` also gets operations that slept or waited
/// ([`Stall::has_blocked`]), on their own thread when they have ended. That thread may hold locks, so
/// `handler` must not wait then. Only a sample is measured: per thread and place in the code, the first eight
/// operations and then one in 64. An operation shorter than a millisecond is not reported. A major page fault
/// or a contended lock of another library counts as a wait. An operation that slept for one of Squall's own
/// locks is not reported. In the child of a fork nothing is reported.
///
/// The thread that waits for the grace period calls `handler`, once per grace period, outside every operation
/// and without holding a lock of Squall's. A slow handler delays only that thread. Each call of `on_stall`
/// replaces the previous handler. Without a handler the report goes to stderr. In the child of a fork, where
/// no thread waits, `on_stall` has no effect.
///
/// # Example
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// static STALLS: AtomicU64 = AtomicU64::new(0);
/// squall::rcu::on_stall(|stall| {
///     STALLS.fetch_add(1, Ordering::Relaxed);
///     eprintln!("{stall}");
/// });
/// ```
pub fn on_stall(handler: impl Fn(&Stall) + Send + Sync + 'static) {
    if squall_sys::fork::forked() {
        return;
    }
    *HANDLER.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(Arc::new(handler));
}

/// Sets the stall timeout: how long one operation may delay a grace period before it is reported. Overrides
/// `SQUALL_STALL_MS`. The default is ten seconds.
///
/// # Units
/// Rounded down to milliseconds; at least one millisecond.
/// # Example
/// ```
/// use std::time::Duration;
/// squall::rcu::set_stall_timeout(Duration::from_millis(500));
/// ```
pub fn set_stall_timeout(stall_timeout: Duration) {
    let ms = u64::try_from(stall_timeout.as_millis()).unwrap_or(UNSET - 1).clamp(1, UNSET - 1);
    STALL_TIMEOUT_MS.store(ms, Ordering::Relaxed);
}

pub(crate) fn stall_timeout() -> Duration {
    let ms = STALL_TIMEOUT_MS.load(Ordering::Relaxed);
    if ms != UNSET {
        return Duration::from_millis(ms);
    }
    let asked = std::env::var("SQUALL_STALL_MS").ok().and_then(|text| text.parse().ok());
    let stall_timeout = Duration::from_millis(asked.unwrap_or(DEFAULT_MS).max(1));
    set_stall_timeout(stall_timeout);
    stall_timeout
}

/// Not public: installs the function that translates a tag given to [`__enter`](crate::__enter) for stall
/// reports. The crate that assigns the tags calls this once, before the first tag.
///
/// A thread that waits for a grace period calls `name` outside every operation. The tagged operation may have
/// ended by then. `name` may open a short operation of its own, which the grace period does not wait for.
/// `name` must not wait for a grace period.
#[doc(hidden)]
pub fn __name_tags(name: fn(u64) -> String) {
    NAMES.get_or_init(|| name);
}

/// Not public: returns the object called by this thread's outermost operation, for error messages. It is
/// empty for an operation without an object, outside operations, and in builds without debug assertions.
#[doc(hidden)]
pub fn __object_of_operation() -> Option<String> {
    let record = crate::thread::own_record()?;
    object_of(record.note_of(record.seen()?).tag)
}

/// Returns the object that a tag names, if it names one.
fn object_of(tag: u64) -> Option<String> {
    NAMES.get().filter(|_| tag != 0).map(|name| name(tag))
}

/// Reports a stall. The caller holds no lock and no role, and is outside every operation.
pub(crate) fn report(holdup: &Holdup<'_>) {
    let Holdup { record, seen, since } = *holdup;
    let note = record.note_of(seen);
    let thread_id = record.thread();
    tell(&Stall {
        thread_name: name_of(thread_id),
        thread_id,
        since,
        has_blocked: false,
        began: note.began,
        object: object_of(note.tag),
    });
}

/// Reports an operation of this thread that blocked, after it has ended.
#[cfg(debug_assertions)]
pub(crate) fn report_blocked(began: &'static Location<'static>, tag: u64, since: Duration) {
    let thread_id = squall_sys::affinity::thread_id();
    tell(&Stall {
        thread_name: name_of(thread_id),
        thread_id,
        since,
        has_blocked: true,
        began: Some(began),
        object: object_of(tag),
    });
}

/// Returns the thread's name, or a question mark.
fn name_of(thread_id: u32) -> String {
    squall_sys::affinity::thread_name(thread_id).unwrap_or_else(|| String::from("?"))
}

fn tell(stall: &Stall) {
    let handler = HANDLER.lock().unwrap_or_else(|poison| poison.into_inner()).clone();
    match handler {
        Some(handler) => handler(stall),
        None => eprintln!("{stall}"),
    }
}
