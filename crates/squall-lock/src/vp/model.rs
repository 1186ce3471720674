//! The modelled gate and mark, model tests of the shipped lock, and their twins with one weakened site.
//!
//! The shipped sequence is assembly and cannot be model-checked. The modelled one does the same loads in
//! the same order, and commits unless it was interrupted since it began: by a sequence of the same VP that
//! committed, or by the kernel that restarts the sequences in flight. A lock is the kernel.

use super::sites;
#[cfg(not(loom))]
use squall_machine::Vp;
use squall_sys::sync::Mutex;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The VP of all threads of a model, except those that call `lock_commonly`.
#[cfg(loom)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vp(u32);

#[cfg(loom)]
impl Vp {
    /// The VP with this index.
    pub fn new(index: u32) -> Vp {
        Vp(index)
    }

    pub(super) fn current() -> Vp {
        Vp(0)
    }
}

#[derive(Debug)]
pub(super) struct GatedMark {
    mark: AtomicU32,
    open: AtomicBool,
    /// The number of interruptions so far.
    kernel: Mutex<u32>,
    vp: Vp,
}

impl GatedMark {
    pub(super) fn new(vp: Vp) -> GatedMark {
        let (mark, open, kernel) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(0));
        GatedMark { mark, open, kernel, vp }
    }

    pub(super) fn vp(&self) -> Vp {
        self.vp
    }

    pub(super) fn open(&self) -> bool {
        // Release: pairs with the Acquire of the sequence.
        self.open.store(true, sites::OPEN.order(Ordering::Release));
        true
    }

    pub(super) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        if !sites::RESTART.is_weak() {
            *self.kernel.lock().unwrap() += 1;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The sequence, in a thread of the VP. A test's thread elsewhere calls `lock_commonly` or
    /// `try_lock_commonly`.
    pub(super) fn set_at_gate(&self) -> bool {
        loop {
            let began = *self.kernel.lock().unwrap();
            // Acquire, both: pair with the Release of `open` and of `clear`.
            if !self.open.load(Ordering::Acquire)
                || self.mark.load(sites::AGAIN.order(Ordering::Acquire)) != 0
            {
                return false;
            }
            let mut interruptions = self.kernel.lock().unwrap();
            if *interruptions == began {
                *interruptions += 1;
                self.mark.store(1, Ordering::Relaxed);
                return true;
            }
        }
    }

    pub(super) fn clear(&self) {
        // Release: pairs with the Acquire of the sequence and of `is_set`.
        self.mark.store(0, sites::CLEAR.order(Ordering::Release));
    }

    pub(super) fn is_set(&self) -> bool {
        // Acquire: pairs with the Release of `clear`.
        self.mark.load(sites::SEEN.order(Ordering::Acquire)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::Vp;
    use super::super::{VpLock, VpLockGuard};
    #[cfg(loom)]
    use super::sites;
    use squall_sys::sync::Arc;
    use squall_sys::sync::thread;

    type Shared = Arc<VpLock<usize>>;

    fn lock() -> Shared {
        Arc::new(VpLock::new(Vp::new(0), 0))
    }

    fn add(mut guard: VpLockGuard<'_, usize>) {
        *guard += 1;
    }

    fn total(lock: &VpLock<usize>) -> usize {
        // SAFETY: the pointer is valid in the closure, and all other threads have ended.
        lock.value.with(|value| unsafe { *value })
    }

    fn beside(lock: &Shared, f: impl FnOnce(&Shared) + Send + 'static) -> thread::JoinHandle<()> {
        let lock = lock.clone();
        thread::spawn(move || f(&lock))
    }

    /// A thread of the VP goes in while a thread elsewhere closes the gate.
    fn closed() {
        let lock = lock();
        add(lock.lock()); // in models, one acquisition opens the gate
        let elsewhere = beside(&lock, |lock| add(lock.lock_commonly()));
        add(lock.lock());
        elsewhere.join().unwrap();
        assert_eq!(total(&lock), 3);
    }

    /// Two threads of the VP go in by the gate.
    fn both() {
        let lock = lock();
        add(lock.lock());
        let other = beside(&lock, |lock| add(lock.lock()));
        add(lock.lock());
        other.join().unwrap();
        assert_eq!(total(&lock), 3);
    }

    /// A thread elsewhere tries the lock twice, while a thread of the VP is inside.
    fn tried() {
        let lock = lock();
        add(lock.lock());
        let added = {
            let lock = lock.clone();
            thread::spawn(move || (0..2).filter(|_| lock.try_lock_commonly().map(add).is_some()).count())
        };
        add(lock.lock());
        let added = added.join().unwrap();
        assert_eq!(total(&lock), 2 + added);
    }

    /// Makes a test of each model, which must hold.
    use squall_sys::models;
    models! { closed both tried }

    #[cfg(loom)]
    #[test]
    fn twins() {
        use sites::*;
        for (site, model) in [
            (RESTART, "closed"),
            (LOOK, "closed"),
            (TRY_LOOK, "tried"),
            (LAST, "closed"),
            (CLEAR, "closed"),
            (SEEN, "closed"),
            (AGAIN, "both"),
            (OPEN, "closed"),
        ] {
            squall_sys::sync::weaken::twin(site, &[], &format!("vp::model::tests::{model}::holds"));
        }
    }
}
