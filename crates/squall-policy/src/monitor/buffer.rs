//! A thread's buffer, and its end.
//!
//! - I1. The centre knows a buffer from before its first record until its thread has ended.
//! - I2. The last records of a thread are gathered by the thread itself when it ends; then nobody holds the buffer.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_machine::asym;
use squall_sys::fork::forked;

use super::BUFFER_RECORDS;
use super::centre;
use super::kind::Kind;
use super::record::{Object, Record};
use super::ring::{Pushed, Ring};

#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) ring: Ring,
    /// Whether the writer must execute a full fence (`asym/I2`).
    fenced: bool,
}

/// The calling thread's hold on its buffer.
struct Own(Arc<Buffer>);

impl Drop for Own {
    fn drop(&mut self) {
        if !forked() {
            centre::leave(&self.0);
        }
    }
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// Records that found no buffer: of threads that are at their very end, and of forked children.
static HOMELESS: AtomicU64 = AtomicU64::new(0);

/// How many found none since this was last asked.
pub(super) fn take_homeless() -> u64 {
    // Relaxed: a count, and nothing else is seen by it.
    if HOMELESS.load(Ordering::Relaxed) == 0 { 0 } else { HOMELESS.swap(0, Ordering::Relaxed) }
}

/// Not inlined into callers of other crates: there the thread's buffer would be found by a call.
#[inline(never)]
pub(super) fn emit(kind: &'static Kind, object: Object, values: [u64; 2]) {
    put(&Record::now(kind, object, values));
}

/// As `emit`.
#[inline(never)]
pub(super) fn insert(record: &Record) {
    put(record);
}

#[inline(always)]
fn put(record: &Record) {
    let found = OWN.try_with(|own| match own.get() {
        Some(own) => {
            own.push(record);
            true
        }
        None => first(own, record),
    });
    if found != Ok(true) {
        HOMELESS.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn first(own: &OnceCell<Own>, record: &Record) -> bool {
    if forked() {
        return false;
    }
    own.get_or_init(|| {
        let fenced = matches!(asym::mode(), asym::Mode::Fence(_));
        let buffer = Arc::new(Buffer { ring: Ring::new(BUFFER_RECORDS), fenced });
        centre::join(&buffer);
        Own(buffer)
    })
    .push(record);
    true
}

impl Own {
    #[inline]
    fn push(&self, record: &Record) {
        let pushed = self.0.ring.push(record);
        // Pairs with the heavy fence of the collector that goes to rest (`centre/I3`).
        asym::light_or_full(self.0.fenced);
        centre::call_from_rest();
        if pushed == Pushed::KeptHalf {
            centre::call();
        }
    }
}
