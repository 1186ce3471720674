//! Reporting a grace period that does not end.

use squall_sync::atomic::{AtomicU64, Ordering};
use squall_sync::sync::{Arc, Mutex, OnceLock};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::raw::grace::Holdup;

/// Patience until [`set_patience`] or `SQUALL_STALL_MS` says otherwise, in ms.
const PATIENCE_MS: u64 = 10_000;
/// "Not looked at the environment yet".
const UNSET: u64 = u64::MAX;

static PATIENCE: AtomicU64 = AtomicU64::new(UNSET);
static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);
static NAMES: OnceLock<fn(u64) -> String> = OnceLock::new();

type Handler = Arc<dyn Fn(&Stall) + Send + Sync>;

/// One operation that holds up a grace period.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The name of the thread that is inside the operation, as the kernel knows it.
    pub thread_name: String,
    /// The kernel's id of that thread.
    pub thread_id: u32,
    /// For how long, at least: since a grace period began to sleep for it.
    pub since: Duration,
    /// Where the outermost operation began; only in builds with debug assertions.
    pub began: Option<&'static Location<'static>>,
    /// The object whose call the outermost operation is, as in `Hits#17.3 of class demo::PerCore`; only in builds with
    /// debug assertions. None for other operations, whatever they call.
    pub object: Option<String>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Calls `handler` whenever one operation has held up a grace period for longer than the patience, once per grace
/// period, on the thread that waits for it. Without a handler the report goes to stderr. The last handler set counts.
///
/// It is called outside every operation, and not in a lock of Squall's. What it does delays whoever waits, not the
/// others.
pub fn on_stall(handler: impl Fn(&Stall) + Send + Sync + 'static) {
    *HANDLER.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(Arc::new(handler));
}

/// Sets after how long one operation that holds up a grace period is reported. Overrides `SQUALL_STALL_MS`.
///
/// # Units
/// Rounded down to milliseconds; at least one.
pub fn set_patience(patience: Duration) {
    let ms = u64::try_from(patience.as_millis()).unwrap_or(UNSET - 1).clamp(1, UNSET - 1);
    PATIENCE.store(ms, Ordering::Relaxed);
}

pub(crate) fn patience() -> Duration {
    let ms = PATIENCE.load(Ordering::Relaxed);
    if ms != UNSET {
        return Duration::from_millis(ms);
    }
    let asked = std::env::var("SQUALL_STALL_MS").ok().and_then(|text| text.parse().ok());
    let patience = Duration::from_millis(asked.unwrap_or(PATIENCE_MS).max(1));
    set_patience(patience);
    patience
}

/// Not public: says what a tag that was given to [`__enter`](crate::__enter) means, in the report of a stall. The one floor
/// that gives tags sets it once, before the first.
///
/// `name` is called outside every operation, by a thread that waits for a grace period; the operation with that tag may be
/// over by then. It may open a short operation of its own, for which the grace period does not wait; it must not wait for
/// one.
#[doc(hidden)]
pub fn __name_tags(name: fn(u64) -> String) {
    NAMES.get_or_init(|| name);
}

/// Tells of a stall. Called with no lock and no role held, outside every operation.
pub(crate) fn report(holdup: &Holdup<'_>) {
    let Holdup { record, seen, since } = *holdup;
    let note = record.note_of(seen);
    let object = NAMES.get().filter(|_| note.tag != 0).map(|name| name(note.tag));
    let thread_id = record.thread();
    let thread_name = squall_sys::affinity::thread_name(thread_id).unwrap_or_else(|| String::from("?"));
    let stall = Stall { thread_name, thread_id, since, began: note.began, object };
    let handler = HANDLER.lock().unwrap_or_else(|poison| poison.into_inner()).clone();
    match handler {
        Some(handler) => handler(&stall),
        None => eprintln!("{stall}"),
    }
}
