//! The per-VP operations by atomic instructions, for threads and platforms without restartable sequences.
//!
//! The VP is only a hint here, so several threads may use the same words at once. Each operation is correct
//! even if its thread has moved by the time it ends.
//!
//! A list's head is two words in each part: the first node, and a guard word. The guard protects `pop`
//! against the ABA problem: a node popped and pushed again between its two reads. A tag in spare bits of the
//! pointer is not enough, because sixteen bits wrap within one time slice. If the processor can exchange 16
//! bytes, the guard counts pops and is exchanged together with the first word. Otherwise the guard is a lock
//! that excludes other pops, since only a pop can let a node come back. `push` needs neither: after any
//! interference between its read and its exchange, the head it read is still the head it replaces.
//!
//! - I1. Each operation calls `settle` first, so no restartable sequence is in flight or will commit
//!   (`pervp/I4`).
//! - I2. Popped nodes stay readable while their list lives. So `pop` may read the link of a node that has
//!   just been popped; its exchange then fails. Links are accessed only atomically, or by sequences.
//! - I3. The processor alone decides which form of `pop` runs, so all threads use the same form.
//!
//! Progress: lock-free, with three exceptions. `pop` blocks without a 16-byte exchange (no x86-64 of the last
//! fifteen years and no aarch64 lacks it). In `compare_store_and_store` a preempted thread delays others that
//! need the same VP's lock. `put` and `take` of a magazine try for its lock once, and fail instead of
//! waiting.
//! Orderings: `add` and `swap` are relaxed. A compare-and-store releases, for threads that load the word.
//! Lists pass nodes on, so `push` releases and `pop` acquires.

use super::{CasError, ListNode, SHIFT, mode, restart::Pair};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use squall_sys::sync::{hint, thread};
use std::ptr::NonNull;

/// Returns the word of `home` in the part of `vp`.
///
/// # Safety
/// `home` is the home of an extent that outlives `'a`; `vp` is below the limit.
#[inline(always)]
pub(super) unsafe fn word<'a>(home: NonNull<u64>, vp: Vp) -> &'a AtomicU64 {
    // SAFETY: 1. within the chunk: there is a part for every VP below the limit. 2. Aligned to eight, as
    // every word is. 3. Live: chunks are never unmapped (alloc/I2). 4. No plain Rust access: words are
    // reached only through this function and by assembly, with aligned eight-byte accesses that are
    // single-copy atomic (see the header of `pervp`).
    unsafe { AtomicU64::from_ptr(home.byte_add(vp.index() << SHIFT).as_ptr()) }
}

/// Backs off once while a lock is held: spins first, later yields.
///
/// # Panics
/// In the child of a fork, where the holder may not exist.
fn relax(turn: &mut u32) {
    const SPINS: u32 = 64;
    *turn += 1;
    if *turn < SPINS {
        hint::spin_loop();
    } else {
        assert!(
            !squall_sys::fork::forked(),
            "squall-machine: a per-VP word is locked, and the process is the child of a fork, where the holder may not \
             exist; such a child may only exec"
        );
        thread::yield_now();
    }
}

/// # Safety
/// The contract of [`super::restart::add`].
#[cold]
#[inline(never)]
pub(super) unsafe fn add(home: NonNull<u64>, n: u64) {
    mode::settle();
    // SAFETY: passed on; `current` is below the limit (current/I2). Relaxed: no order is promised.
    unsafe { word(home, Vp::current()) }.fetch_add(n, Ordering::Relaxed);
}

/// # Safety
/// The contract of [`super::restart::swap`].
#[cold]
#[inline(never)]
pub(super) unsafe fn swap(home: NonNull<u64>, new: u64) -> (Vp, u64) {
    mode::settle();
    let vp = Vp::current();
    // SAFETY: passed on; `current` is below the limit (current/I2). Relaxed: no order is promised.
    (vp, unsafe { word(home, vp) }.swap(new, Ordering::Relaxed))
}

/// # Safety
/// The contract of [`super::restart::compare_and_store`].
#[cold]
#[inline(never)]
pub(super) unsafe fn compare_and_store(
    home: NonNull<u64>,
    vp: Vp,
    expected: u64,
    new: u64,
) -> Result<(), CasError> {
    mode::settle();
    let here = Vp::current();
    if here != vp {
        return Err(CasError::Elsewhere(here));
    }
    // SAFETY: passed on; `vp` equals the result of `current`, which is below the limit (current/I2).
    let word = unsafe { word(home, vp) };
    // Release: pairs with the Acquire load of `PerVpWords::load`.
    word.compare_exchange(expected, new, Ordering::Release, Ordering::Relaxed)
        .map(|_| ())
        .map_err(CasError::Changed)
}

/// # Safety
/// The contract of [`super::restart::compare_store_and_store`].
#[cold]
#[inline(never)]
pub(super) unsafe fn compare_store_and_store(pair: Pair, lock: NonNull<u64>, vp: Vp) -> Result<(), CasError> {
    mode::settle();
    let here = Vp::current();
    if here != vp {
        return Err(CasError::Elsewhere(here));
    }
    // SAFETY: passed on; `vp` equals the result of `current`, which is below the limit (current/I2).
    let (key, side, lock) = unsafe { (word(pair.key, vp), word(pair.side, vp), word(lock, vp)) };
    lock_word(lock);
    // The lock excludes other pairs, so no pair succeeds between our comparison and our store of the side
    // word. Operations on single words do not take the lock. The exchange of the key fails if one of them
    // came in between.
    let mut outcome = Err(CasError::Changed(key.load(Ordering::Relaxed)));
    if outcome == Err(CasError::Changed(pair.expected)) {
        side.store(pair.value, Ordering::Relaxed);
        // Release: pairs with the Acquire load of `PerVpWords::load`. A thread that sees the new key sees the
        // side word's value.
        outcome = key
            .compare_exchange(pair.expected, pair.new, Ordering::Release, Ordering::Relaxed)
            .map(|_| ())
            .map_err(CasError::Changed);
    }
    unlock_word(lock);
    outcome
}

fn lock_word(lock: &AtomicU64) {
    let mut turn = 0;
    // Acquire: pairs with the Release store in `unlock_word`; makes the last holder's writes visible.
    while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        relax(&mut turn);
    }
}

fn unlock_word(lock: &AtomicU64) {
    // Release: pairs with the Acquire exchange in `lock_word`.
    lock.store(0, Ordering::Release);
}

/// Returns the first word of a list's head on `vp`.
///
/// # Safety
/// The contract of [`word`], for a list's head.
unsafe fn first<'a>(home: NonNull<u64>, vp: Vp) -> &'a AtomicPtr<ListNode> {
    // SAFETY: as in `word`; the head's first word holds a pointer, which sequences access as eight bytes.
    unsafe { AtomicPtr::from_ptr(home.byte_add(vp.index() << SHIFT).as_ptr().cast()) }
}

/// # Safety
/// The contract of [`super::restart::push`].
#[cold]
#[inline(never)]
pub(super) unsafe fn push(home: NonNull<u64>, node: NonNull<ListNode>) {
    mode::settle();
    // SAFETY: passed on; `current` is below the limit (current/I2).
    let first = unsafe { first(home, Vp::current()) };
    // SAFETY: by this function's contract the node is live and no other thread writes it.
    let link = unsafe { &node.as_ref().next };
    let mut head = first.load(Ordering::Relaxed);
    loop {
        link.store(head, Ordering::Relaxed);
        // Release: pairs with the Acquire reads in `pop`. A thread that pops the node sees its link and its
        // content.
        match first.compare_exchange_weak(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// # Safety
/// The contract of [`super::restart::pop`].
#[cold]
#[inline(never)]
pub(super) unsafe fn pop(home: NonNull<u64>) -> *mut ListNode {
    mode::settle();
    let vp = Vp::current();
    // SAFETY: passed on; `current` is below the limit (current/I2), and a head has two words.
    let (first, guard) = unsafe { (first(home, vp), word(home.add(1), vp)) };
    if wide::available() {
        // SAFETY: the two words of a head are adjacent and aligned to 16.
        unsafe { pop_counted(first, guard) }
    } else {
        pop_locked(first, guard)
    }
}

/// Pops by exchanging the first node and the count of pops together.
///
/// # Safety
/// [`wide::available`] returned true. `count` is the word behind `first`, which is aligned to 16.
unsafe fn pop_counted(first: &AtomicPtr<ListNode>, count: &AtomicU64) -> *mut ListNode {
    loop {
        // Acquire: keeps the read of `first` after this read. If the exchange finds this count, no thread has
        // popped since.
        let pops = count.load(Ordering::Acquire);
        // Acquire: pairs with the Release exchange in `push`; the node's link is then the link stored there.
        let head = first.load(Ordering::Acquire);
        // SAFETY: a pointer in a head is null or a node's, which stays readable after it is popped
        // (atomic/I2).
        let Some(node) = (unsafe { head.as_ref() }) else { return head };
        let next = node.next.load(Ordering::Relaxed);
        // SAFETY: passed on. The exchange acquires and releases, so threads that read the new head see the
        // links pushed before.
        if unsafe { wide::exchange(first, (head, pops), (next, pops.wrapping_add(1))) } {
            return head;
        }
    }
}

/// Pops under a lock that excludes other pops.
fn pop_locked(first: &AtomicPtr<ListNode>, lock: &AtomicU64) -> *mut ListNode {
    lock_word(lock);
    // Acquire: pairs with the Release exchange in `push`.
    let mut head = first.load(Ordering::Acquire);
    // SAFETY: a pointer in a head is null or a node's, which stays readable (atomic/I2).
    while let Some(node) = unsafe { head.as_ref() } {
        let next = node.next.load(Ordering::Relaxed);
        // AcqRel: as in `pop_counted`. The node cannot have left and come back, because that requires a pop.
        match first.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    unlock_word(lock);
    head
}

/// Lock bit in a magazine's count.
pub(super) const LOCKED: u64 = 1 << 63;

/// Returns the word of pointer `index` of a magazine.
///
/// # Safety
/// The contract of [`word`], for a magazine with room for more than `index` pointers.
#[inline]
pub(super) unsafe fn pointer<'a>(home: NonNull<u64>, vp: Vp, index: usize) -> &'a AtomicPtr<()> {
    // SAFETY: as in `word`; sequences access a pointer as eight bytes.
    unsafe { AtomicPtr::from_ptr(home.add(1 + index).byte_add(vp.index() << SHIFT).as_ptr().cast()) }
}

/// Tries once to lock a magazine that holds `least` to `most` pointers. Returns the count, or `None` if the
/// count is out of that range or another thread holds the lock.
#[inline]
fn lock_magazine(word: &AtomicU64, least: u64, most: u64) -> Option<u64> {
    let count = word.load(Ordering::Relaxed);
    // The lock bit makes a locked count larger than any capacity.
    if count < least || count > most {
        return None;
    }
    // Acquire: pairs with the Release store that unlocks; makes the last holder's writes visible.
    word.compare_exchange(count, count | LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()
}

/// Fast path of [`put`] and [`take`]: returns the calling thread's VP if its block has the number and
/// [`mode::settle`] has no work left. Makes no call.
#[inline(always)]
fn settled_vp() -> Option<Vp> {
    if !mode::is_settled() {
        return None;
    }
    // SAFETY: the mode is settled, so it was chosen: `AREA_OFFSET` is set.
    let index = unsafe { Vp::index_at_hand() };
    (index >= 0).then(|| Vp::new(index as u32))
}

#[cold]
#[inline(never)]
fn settle_and_ask() -> Vp {
    mode::settle();
    Vp::current()
}

/// # Safety
/// The contract of [`super::restart::put`].
#[cold]
#[inline(never)]
pub(super) unsafe fn put(home: NonNull<u64>, vp: Vp, capacity: usize, new: NonNull<()>) -> bool {
    match settled_vp() {
        // SAFETY: passed on.
        Some(here) => unsafe { put_on(home, here, vp, capacity, new) },
        // SAFETY: passed on.
        None => unsafe { put_later(home, vp, capacity, new) },
    }
}

/// # Safety
/// The contract of [`super::restart::put`].
#[cold]
#[inline(never)]
unsafe fn put_later(home: NonNull<u64>, vp: Vp, capacity: usize, new: NonNull<()>) -> bool {
    // SAFETY: passed on.
    unsafe { put_on(home, settle_and_ask(), vp, capacity, new) }
}

/// # Safety
/// The contract of [`super::restart::put`], and the mode is settled. `here` is a recent result of
/// [`Vp::current`].
#[inline(always)]
unsafe fn put_on(home: NonNull<u64>, here: Vp, vp: Vp, capacity: usize, new: NonNull<()>) -> bool {
    if here != vp || capacity == 0 {
        return false;
    }
    // SAFETY: passed on; `vp` equals a result of `current`, which is below the limit (current/I2).
    let word = unsafe { word(home, vp) };
    let Some(count) = lock_magazine(word, 0, capacity as u64 - 1) else { return false };
    // SAFETY: the count is below the capacity. Relaxed: the lock orders it.
    unsafe { pointer(home, vp, count as usize) }.store(new.as_ptr(), Ordering::Relaxed);
    // Release: pairs with the Acquire in `lock_magazine`; a thread that takes the pointer sees the data
    // behind it.
    word.store(count + 1, Ordering::Release);
    true
}

/// # Safety
/// The contract of [`super::restart::take`].
#[cold]
#[inline(never)]
pub(super) unsafe fn take(home: NonNull<u64>) -> *mut () {
    match settled_vp() {
        // SAFETY: passed on.
        Some(here) => unsafe { take_on(home, here) },
        // SAFETY: passed on.
        None => unsafe { take_later(home) },
    }
}

/// # Safety
/// The contract of [`super::restart::take`].
#[cold]
#[inline(never)]
unsafe fn take_later(home: NonNull<u64>) -> *mut () {
    // SAFETY: passed on.
    unsafe { take_on(home, settle_and_ask()) }
}

/// # Safety
/// The contract of [`super::restart::take`], and the mode is settled. `here` is a result of [`Vp::current`].
#[inline(always)]
unsafe fn take_on(home: NonNull<u64>, here: Vp) -> *mut () {
    // SAFETY: passed on; `current` is below the limit (current/I2).
    let word = unsafe { word(home, here) };
    let Some(count) = lock_magazine(word, 1, LOCKED - 1) else { return std::ptr::null_mut() };
    // SAFETY: below the count.
    let top = unsafe { pointer(home, here, count as usize - 1) }.load(Ordering::Relaxed);
    // Release: as in `put_on`.
    word.store(count - 1, Ordering::Release);
    top
}

/// Compare-exchange of 16 bytes.
mod wide {
    use super::{AtomicPtr, ListNode};

    /// True if this processor has the instruction. Every call returns the same answer.
    #[inline]
    pub(super) fn available() -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri), not(squall_tsan)))]
        return std::arch::is_x86_feature_detected!("cmpxchg16b");
        #[cfg(all(target_arch = "aarch64", not(miri), not(squall_tsan)))]
        return true;
        #[allow(unreachable_code)]
        false
    }

    /// Exchanges the 16 bytes at `at` if they equal `old`. Acquires and releases. Returns true on success.
    ///
    /// # Safety
    /// [`available`] returned true. `at` is aligned to 16, and the eight bytes behind it are the second word.
    #[cfg(all(target_arch = "x86_64", not(miri), not(squall_tsan)))]
    pub(super) unsafe fn exchange(
        at: &AtomicPtr<ListNode>,
        old: (*mut ListNode, u64),
        new: (*mut ListNode, u64),
    ) -> bool {
        let equal: u8;
        // SAFETY: 1. the processor has the instruction. 2. 16 aligned bytes of the head, accessed atomically
        // only. 3. The compiler reserves rbx: the block restores it before it ends, and no operand of ours is
        // in it.
        unsafe {
            std::arch::asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "mov rbx, rsi",
                "sete r8b",
                in("rdi") at.as_ptr(),
                inout("rsi") new.0 => _,
                in("rcx") new.1,
                inout("rax") old.0 => _,
                inout("rdx") old.1 => _,
                lateout("r8b") equal,
                options(nostack),
            );
        }
        equal != 0
    }

    /// Exchanges the 16 bytes at `at` if they equal `old`. Acquires and releases. Returns true on success.
    ///
    /// # Safety
    /// `at` is aligned to 16, and the eight bytes behind it are the second word.
    #[cfg(all(target_arch = "aarch64", not(miri), not(squall_tsan)))]
    pub(super) unsafe fn exchange(
        at: &AtomicPtr<ListNode>,
        old: (*mut ListNode, u64),
        new: (*mut ListNode, u64),
    ) -> bool {
        let differs: u64;
        // SAFETY: 16 aligned bytes of the head, accessed atomically only. The pair is a snapshot only if the
        // exclusive store succeeds. If the comparison fails, the values read are discarded.
        unsafe {
            std::arch::asm!(
                "2:",
                "ldaxp {lo}, {hi}, [{at}]",
                "cmp {lo}, {old_lo}",
                "ccmp {hi}, {old_hi}, #0, eq",
                "cset {differs}, ne",
                "b.ne 3f",
                "stlxp {differs:w}, {new_lo}, {new_hi}, [{at}]",
                "cbnz {differs:w}, 2b",
                "b 4f",
                "3:",
                "clrex",
                "4:",
                at = in(reg) at.as_ptr(),
                old_lo = in(reg) old.0,
                old_hi = in(reg) old.1,
                new_lo = in(reg) new.0,
                new_hi = in(reg) new.1,
                lo = out(reg) _,
                hi = out(reg) _,
                differs = out(reg) differs,
                options(nostack),
            );
        }
        differs == 0
    }

    /// Never called: [`available`] returns false.
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(squall_tsan))))]
    pub(super) unsafe fn exchange(
        _at: &AtomicPtr<ListNode>,
        _old: (*mut ListNode, u64),
        _new: (*mut ListNode, u64),
    ) -> bool {
        unreachable!("an exchange of 16 bytes was called on a platform without it")
    }
}
