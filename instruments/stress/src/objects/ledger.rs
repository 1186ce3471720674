//! The ledger: the history of each object, its root and its representatives.
//!
//! Problem: a dropped value cannot report a second drop, because its memory may be reused by then. Idea: each
//! object has a page in the ledger. A page is never freed, and serves another object only after the first is
//! accounted for.
//!
//! - I1. A page belongs to the object whose serial number it bears. Serial numbers grow and are given once.
//!   So a late event bears a number that the page no longer has.
//! - I2. `parts` counts the writers of a page: the owner until `destroy` has returned, the gate until it is
//!   closed and empty, the root, and each representative. The last to leave balances the page and frees it.
//! - I3. On a balanced page everything made was dropped once: the counts and the sums of the numbers agree.
//! - I4. `begun` and `gone` never decrease. They are the newest serial number whose destruction was begun, or
//!   had returned, and numbers on a page grow.
//! - I5. A closed gate admits no caller. A thread that waits until the callers have left then sees all their
//!   effects. A gate bears its object's number, so that no caller enters through the gate of the next object.
//!
//! Not checked here: the memory itself. The representatives (`rep_core`) and the sanitizers check it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::interfaces::AnyHandle;
use crate::run::lock;

/// Maximum number of objects that are not yet accounted for.
const PAGES: usize = if cfg!(miri) { 64 } else { 8 << 10 };
/// Flag of a closed gate. Below it is the number of callers inside, above it the lower half of the object's
/// number.
const CLOSED: u64 = 1 << 31;
/// Maximum number of objects to name in a violation.
const NAMED_MAX: usize = 4;

/// An object: its page and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectKey {
    page: u32,
    pub(super) serial: u64,
}

impl ObjectKey {
    /// Returns the word of its gate when open and empty.
    fn tag(self) -> u64 {
        self.serial << 32
    }
}

#[derive(Default)]
struct Page {
    /// The owner's serial number; 0 while the page is free.
    serial: AtomicU64,
    begun: AtomicU64,
    gone: AtomicU64,
    parts: AtomicU64,
    class: AtomicU64,
    roots_made: AtomicU64,
    roots_dropped: AtomicU64,
    reps_made: AtomicU64,
    reps_made_sum: AtomicU64,
    reps_dropped: AtomicU64,
    reps_dropped_sum: AtomicU64,
    gate: AtomicU64,
    /// Sum of the additions that callers reported.
    added: AtomicU64,
    /// The object's own handle, for its methods and drops.
    handle: Mutex<Option<AnyHandle>>,
}

pub(super) struct Ledger {
    pages: Vec<Page>,
    free: Mutex<Vec<u32>>,
    serials: AtomicU64,
    /// Names of classes, by `Page::class`.
    classes: &'static [&'static str],
}

/// The result of a check.
pub(super) type Verdict = Result<(), String>;

impl Ledger {
    pub(super) fn new(classes: &'static [&'static str]) -> Ledger {
        Ledger {
            pages: (0..PAGES).map(|_| Page::default()).collect(),
            // The last freed page is reused first, so pages are reused soon.
            free: Mutex::new((0..PAGES as u32).rev().collect()),
            serials: AtomicU64::new(1),
            classes,
        }
    }

    /// Opens a page for a new object of this class and records its owner. Returns `None` while all pages are
    /// in use.
    pub(super) fn open(&self, class: usize) -> Option<ObjectKey> {
        let index = lock(&self.free).pop()?;
        let key = ObjectKey { page: index, serial: self.serials.fetch_add(1, Ordering::Relaxed) };
        let page = &self.pages[index as usize];
        // Only this thread writes to the page. Threads that look for an older object find its number gone.
        let zeroes = [
            &page.roots_made,
            &page.roots_dropped,
            &page.reps_made,
            &page.reps_made_sum,
            &page.reps_dropped,
            &page.reps_dropped_sum,
            &page.added,
        ];
        zeroes.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        page.class.store(class as u64, Ordering::Relaxed);
        // The owner and the gate.
        page.parts.store(2, Ordering::Relaxed);
        page.gate.store(key.tag(), Ordering::Relaxed);
        // Release: pairs with the acquire in `page`: a thread that finds the number finds the opened page.
        page.serial.store(key.serial, Ordering::Release);
        Some(key)
    }

    /// Returns the page, if it still belongs to this object.
    fn page(&self, key: ObjectKey) -> Option<&Page> {
        let page = &self.pages[key.page as usize];
        // Acquire: pairs with the release in `open`.
        (page.serial.load(Ordering::Acquire) == key.serial).then_some(page)
    }

    /// Returns the page of an object to which an event happens. The object must not be accounted for yet.
    fn page_of(&self, key: ObjectKey, what: &str) -> Result<&Page, String> {
        self.page(key).ok_or_else(|| {
            format!("{what} of object #{} came after the object was balanced: it happened twice", key.serial)
        })
    }

    fn name(&self, page: &Page) -> &'static str {
        let class = page.class.load(Ordering::Relaxed) as usize;
        self.classes.get(class).copied().unwrap_or("?")
    }

    pub(super) fn root_made(&self, key: ObjectKey) -> Verdict {
        let page = self.page_of(key, "the creation of a root")?;
        page.parts.fetch_add(1, Ordering::Relaxed);
        page.roots_made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn root_dropped(&self, key: ObjectKey) -> Verdict {
        let page = self.page_of(key, "the drop of the root")?;
        let dropped = page.roots_dropped.fetch_add(1, Ordering::Relaxed) + 1;
        let reps =
            page.reps_made.load(Ordering::Relaxed).wrapping_sub(page.reps_dropped.load(Ordering::Relaxed));
        if dropped > 1 {
            return Err(format!(
                "the root of object #{} ({}) was dropped twice",
                key.serial,
                self.name(page)
            ));
        }
        if reps != 0 {
            return Err(format!(
                "the root of object #{} ({}) was dropped before {reps} of its representatives",
                key.serial,
                self.name(page)
            ));
        }
        self.leave(key, page)
    }

    /// Records a representative and returns its number.
    pub(super) fn rep_made(&self, key: ObjectKey) -> Result<u64, String> {
        let page = self.page_of(key, "the creation of a representative")?;
        page.parts.fetch_add(1, Ordering::Relaxed);
        let number = page.reps_made.fetch_add(1, Ordering::Relaxed) + 1;
        page.reps_made_sum.fetch_add(number, Ordering::Relaxed);
        Ok(number)
    }

    pub(super) fn rep_dropped(&self, key: ObjectKey, number: u64) -> Verdict {
        let page = self.page_of(key, "the drop of a representative")?;
        if page.roots_dropped.load(Ordering::Relaxed) > 0 {
            return Err(format!(
                "representative {number} of object #{} ({}) was dropped after its root",
                key.serial,
                self.name(page)
            ));
        }
        page.reps_dropped.fetch_add(1, Ordering::Relaxed);
        page.reps_dropped_sum.fetch_add(number, Ordering::Relaxed);
        self.leave(key, page)
    }

    /// Records that the owner is about to call `destroy`.
    pub(super) fn begin_destroy(&self, key: ObjectKey) {
        // Release: pairs with the acquire in `destroy_begun`.
        self.pages[key.page as usize].begun.store(key.serial, Ordering::Release);
    }

    /// Records that `destroy` has returned; the owner leaves.
    pub(super) fn end(&self, key: ObjectKey) -> Verdict {
        self.mark_destroyed(key);
        self.close(key)?;
        let page = self.page_of(key, "the end of the owner")?;
        self.leave(key, page)
    }

    /// Marks the object: each call that begins from now on must fail.
    pub(super) fn mark_destroyed(&self, key: ObjectKey) {
        // Release: pairs with the acquire in `is_destroyed`: the effects of `destroy` come before.
        self.pages[key.page as usize].gone.store(key.serial, Ordering::Release);
    }

    /// Returns whether `destroy` has returned.
    pub(super) fn is_destroyed(&self, key: ObjectKey) -> bool {
        // Acquire: pairs with the release in `mark_destroyed`.
        self.pages[key.page as usize].gone.load(Ordering::Acquire) >= key.serial
    }

    /// Returns whether `destroy` was called.
    pub(super) fn destroy_begun(&self, key: ObjectKey) -> bool {
        // Acquire: pairs with the release in `begin_destroy`.
        self.pages[key.page as usize].begun.load(Ordering::Acquire) >= key.serial
    }

    /// Returns whether the whole object was dropped and balanced.
    pub(super) fn is_over(&self, key: ObjectKey) -> bool {
        self.page(key).is_none()
    }

    pub(super) fn set_handle(&self, key: ObjectKey, handle: AnyHandle) {
        if let Some(page) = self.page(key) {
            *lock(&page.handle) = Some(handle);
        }
    }

    /// Returns the object's own handle, once it has one.
    pub(super) fn handle(&self, key: ObjectKey) -> Option<AnyHandle> {
        *lock(&self.page(key)?.handle)
    }

    /// Admits a caller that will add. Returns false if the gate is closed.
    pub(super) fn come_in(&self, key: ObjectKey) -> bool {
        let gate = &self.pages[key.page as usize].gate;
        let mut seen = gate.load(Ordering::Relaxed);
        while seen & !(CLOSED - 1) == key.tag() {
            match gate.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Records an addition whose call has returned.
    pub(super) fn acknowledge(&self, key: ObjectKey, added: u64) {
        self.pages[key.page as usize].added.fetch_add(added, Ordering::Relaxed);
    }

    pub(super) fn go_out(&self, key: ObjectKey) -> Verdict {
        let page = self.page_of(key, "the exit of a caller")?;
        // Release: pairs with the acquire in `is_empty` (I5).
        let before = page.gate.fetch_sub(1, Ordering::Release);
        if before == key.tag() | CLOSED | 1 { self.leave(key, page) } else { Ok(()) }
    }

    /// Closes the gate.
    pub(super) fn close(&self, key: ObjectKey) -> Verdict {
        let page = self.page_of(key, "the closing of the gate")?;
        let before = page.gate.fetch_or(CLOSED, Ordering::Relaxed);
        if before == key.tag() { self.leave(key, page) } else { Ok(()) }
    }

    /// Returns whether the gate is closed and empty.
    pub(super) fn is_empty(&self, key: ObjectKey) -> bool {
        // Acquire: pairs with the release in `go_out` (I5).
        self.pages[key.page as usize].gate.load(Ordering::Acquire) == key.tag() | CLOSED
    }

    /// Returns the sum of the additions of callers that have left.
    pub(super) fn added(&self, key: ObjectKey) -> u64 {
        self.pages[key.page as usize].added.load(Ordering::Relaxed)
    }

    /// Removes one part. The last one balances the page (I2, I3).
    fn leave(&self, key: ObjectKey, page: &Page) -> Verdict {
        // AcqRel: the last one sees the writes of all others.
        let parts = page.parts.fetch_sub(1, Ordering::AcqRel);
        if parts == 0 {
            return Err(format!("object #{} ({}) lost more parts than it had", key.serial, self.name(page)));
        }
        if parts > 1 {
            return Ok(());
        }
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let pairs = [
            ("roots", read(&page.roots_made), read(&page.roots_dropped)),
            ("representatives", read(&page.reps_made), read(&page.reps_dropped)),
            ("sum of representatives' numbers", read(&page.reps_made_sum), read(&page.reps_dropped_sum)),
        ];
        if let Some((what, made, dropped)) = pairs.into_iter().find(|(_, made, dropped)| made != dropped) {
            return Err(format!(
                "object #{} ({}): {what}: made {made}, dropped {dropped}",
                key.serial,
                self.name(page)
            ));
        }
        *lock(&page.handle) = None;
        // Relaxed: the lock of `free` hands the page on.
        page.serial.store(0, Ordering::Relaxed);
        lock(&self.free).push(key.page);
        Ok(())
    }

    /// Describes the objects that are not accounted for, if any.
    pub(super) fn left(&self) -> Option<String> {
        // Acquire: pairs with the release in `open`.
        let left = self.pages.iter().filter(|page| page.serial.load(Ordering::Acquire) != 0);
        let left: Vec<&Page> = left.collect();
        if left.is_empty() {
            return None;
        }
        let describe = |page: &&Page| {
            let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let serial = read(&page.serial);
            let stage = match () {
                () if read(&page.gone) == serial => "destroyed",
                () if read(&page.begun) == serial => "being destroyed",
                () => "never destroyed",
            };
            format!(
                "#{serial} ({}, {stage}; roots made {} and dropped {}, representatives made {} and dropped {})",
                self.name(page),
                read(&page.roots_made),
                read(&page.roots_dropped),
                read(&page.reps_made),
                read(&page.reps_dropped)
            )
        };
        let named: Vec<String> = left.iter().take(NAMED_MAX).map(describe).collect();
        Some(format!("{} objects are not accounted for: {}", left.len(), named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: &[&str] = &["only"];

    #[test]
    fn a_page_is_free_when_all_parts_have_left() {
        let ledger = Ledger::new(CLASSES);
        let key = ledger.open(0).expect("a page");
        ledger.root_made(key).unwrap();
        let (one, two) = (ledger.rep_made(key).unwrap(), ledger.rep_made(key).unwrap());
        ledger.begin_destroy(key);
        assert!(ledger.destroy_begun(key) && !ledger.is_destroyed(key));
        ledger.end(key).unwrap();
        assert!(ledger.is_destroyed(key));
        ledger.rep_dropped(key, two).unwrap();
        assert!(ledger.left().is_some_and(|left| left.starts_with("1 objects")));
        ledger.rep_dropped(key, one).unwrap();
        ledger.root_dropped(key).unwrap();
        assert!(ledger.is_over(key));
        assert_eq!(ledger.left(), None);
        assert!(ledger.rep_dropped(key, one).is_err_and(|what| what.contains("it happened twice")));
        let next = ledger.open(0).expect("the same page");
        assert!(ledger.is_destroyed(key) && !ledger.is_destroyed(next));
    }

    #[test]
    fn what_is_out_of_order_is_told() {
        let ledger = Ledger::new(CLASSES);
        let key = ledger.open(0).expect("a page");
        ledger.root_made(key).unwrap();
        let rep = ledger.rep_made(key).unwrap();
        assert!(ledger.root_dropped(key).is_err_and(|what| what.contains("before 1 of its")));
        assert!(ledger.rep_dropped(key, rep).is_err_and(|what| what.contains("after its root")));
        let other = ledger.open(0).expect("a page");
        let (one, two) = (ledger.rep_made(other).unwrap(), ledger.rep_made(other).unwrap());
        assert_eq!((one, two), (1, 2));
        ledger.end(other).unwrap();
        ledger.rep_dropped(other, two).unwrap();
        // The same representative again instead of the other: the counts agree, the sums of the numbers
        // differ.
        assert!(ledger.rep_dropped(other, two).is_err_and(|what| what.contains("numbers")));
    }

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let ledger = Ledger::new(CLASSES);
        let key = ledger.open(0).expect("a page");
        assert!(ledger.come_in(key));
        ledger.acknowledge(key, 5);
        ledger.close(key).unwrap();
        assert!(!ledger.come_in(key) && !ledger.is_empty(key));
        ledger.go_out(key).unwrap();
        assert!(ledger.is_empty(key));
        assert_eq!(ledger.added(key), 5);
        ledger.end(key).unwrap();
        assert!(ledger.is_over(key));
        let next = ledger.open(0).expect("the same page");
        assert!(!ledger.come_in(key) && ledger.come_in(next));
    }
}
