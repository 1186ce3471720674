//! Record buffer of a thread, and its removal when the thread ends.
//!
//! - I1. The centre (`centre`) lists a buffer from before its first record until its thread has ended.
//! - I2. An ending thread delivers its last records to the subscriptions itself. After that the buffer has no
//!   owner.

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
    /// `true` if the writer must execute a full fence (`asym/I2`).
    fenced: bool,
}

/// Reference of the calling thread to its buffer.
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

/// Number of records that found no buffer: on threads at their very end, and in forked children.
static UNBUFFERED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of records without a buffer since the last call.
pub(super) fn take_unbuffered() -> u64 {
    // Relaxed: a count that does not announce other memory.
    if UNBUFFERED.load(Ordering::Relaxed) == 0 { 0 } else { UNBUFFERED.swap(0, Ordering::Relaxed) }
}

/// Not inlined into other crates: there, access to the thread-local buffer would be a call.
#[inline(never)]
pub(super) fn emit(kind: &'static Kind, object: Object, values: [u64; 2]) {
    put(&Record::now(kind, object, values));
}

/// Writes a given record. Not inlined, like `emit`.
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
        UNBUFFERED.fetch_add(1, Ordering::Relaxed);
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
        // Pairs with the heavy fence of a collector that goes to rest (`centre/I3`).
        asym::light_or_full(self.0.fenced);
        centre::call_from_rest();
        if pushed == Pushed::KeptHalf {
            centre::call();
        }
    }
}
