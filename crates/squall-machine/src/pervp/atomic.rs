//! The per-VP operations by atomic instructions, for every thread and platform without restartable sequences.
//!
//! The VP is only a hint here, so that several threads may be at the same words at once: each operation is right
//! wherever its thread is by the time it ends.
//!
//! A list's head is two words in each part: the first node, and a word that guards `pop` against a node that was popped
//! and pushed again between its two reads (the ABA problem). A tag in spare bits of the pointer would not do: sixteen
//! bits wrap within one time slice. So where the processor can exchange 16 bytes the second word counts pops and is
//! exchanged with the first; elsewhere it is a lock that excludes other pops, which is all that can bring a node back.
//! `push` needs neither: whatever happened between its read and its exchange, the head it saw is the head it replaces.
//!
//! - I1. `settle` comes first in each operation: no restartable sequence is then in flight or will commit (`pervp/I4`).
//! - I2. Popped nodes stay readable while their list lives, so `pop` may read the link of a node that has just gone; the
//!   exchange then fails. Links are only accessed atomically (or by sequences).
//! - I3. Which form of `pop` runs depends on the processor alone: it is the same for all threads.
//!
//! Progress: lock-free, but for `pop` where no 16-byte exchange exists (not on any x86-64 of the last fifteen years, nor
//! on any aarch64) and `compare_store_and_store`, where a preempted thread holds up those that want the same VP's lock; `put`
//! and `take` of a magazine try for its lock once, and fail instead.
//! Orderings: `add` and `swap` promise none and are relaxed; a compare-and-store releases, for who loads the word; lists
//! pass nodes on, so push releases and pop acquires.

use super::{CasError, ListNode, SHIFT, mode, restart::Pair};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use squall_sys::sync::{hint, thread};
use std::ptr::NonNull;

/// The word of `home` in the part of `vp`.
///
/// # Safety
/// `home` is the home of an extent that outlives `'a`; `vp` is below the limit.
#[inline(always)]
pub(super) unsafe fn word<'a>(home: NonNull<u64>, vp: Vp) -> &'a AtomicU64 {
    // SAFETY: 1. within the chunk: there is a part for every VP below the limit. 2. Aligned to eight, as every word is.
    // 3. Live: chunks are never unmapped (alloc/I2). 4. No plain Rust access: words are reached only through here and
    // by assembly, whose aligned eight-byte accesses are single-copy atomic (see the header of `pervp`).
    unsafe { AtomicU64::from_ptr(home.byte_add(vp.index() << SHIFT).as_ptr()) }
}

/// Waits for a lock of ours, in small steps.
fn relax(turn: &mut u32) {
    const SPINS: u32 = 64;
    *turn += 1;
    if *turn < SPINS { hint::spin_loop() } else { thread::yield_now() }
}

/// # Safety
/// As for [`super::restart::add`].
#[cold]
#[inline(never)]
pub(super) unsafe fn add(home: NonNull<u64>, n: u64) {
    mode::settle();
    // SAFETY: passed on; `current` is below the limit (vp/I2). Relaxed: no order is promised.
    unsafe { word(home, Vp::current()) }.fetch_add(n, Ordering::Relaxed);
}

/// # Safety
/// As for [`super::restart::swap`].
#[cold]
#[inline(never)]
pub(super) unsafe fn swap(home: NonNull<u64>, new: u64) -> (Vp, u64) {
    mode::settle();
    let vp = Vp::current();
    // SAFETY: passed on; `current` is below the limit (vp/I2). Relaxed: no order is promised.
    (vp, unsafe { word(home, vp) }.swap(new, Ordering::Relaxed))
}

/// # Safety
/// As for [`super::restart::compare_and_store`].
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
    // SAFETY: passed on; `vp` is the answer of `current`, below the limit (vp/I2).
    let word = unsafe { word(home, vp) };
    // Release: pairs with the Acquire load of `PerVpWords::load`.
    word.compare_exchange(expected, new, Ordering::Release, Ordering::Relaxed)
        .map(|_| ())
        .map_err(CasError::Changed)
}

/// # Safety
/// As for [`super::restart::compare_store_and_store`].
#[cold]
#[inline(never)]
pub(super) unsafe fn compare_store_and_store(pair: Pair, lock: NonNull<u64>, vp: Vp) -> Result<(), CasError> {
    mode::settle();
    let here = Vp::current();
    if here != vp {
        return Err(CasError::Elsewhere(here));
    }
    // SAFETY: passed on; `vp` is the answer of `current`, below the limit (vp/I2).
    let (key, side, lock) = unsafe { (word(pair.key, vp), word(pair.side, vp), word(lock, vp)) };
    lock_word(lock);
    // The lock keeps other pairs out: none succeeds between our comparison and our store of the side word. Operations on
    // single words do not take it; the key is committed by an exchange, which fails if one of them came between.
    let mut outcome = Err(CasError::Changed(key.load(Ordering::Relaxed)));
    if outcome == Err(CasError::Changed(pair.expected)) {
        side.store(pair.value, Ordering::Relaxed);
        // Release: pairs with the Acquire load of `PerVpWords::load`. Who sees the new key sees the side word's value.
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
    // Acquire: pairs with the Release store in `unlock_word`; we see what the last holder did.
    while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        relax(&mut turn);
    }
}

fn unlock_word(lock: &AtomicU64) {
    // Release: pairs with the Acquire exchange in `lock_word`.
    lock.store(0, Ordering::Release);
}

/// The first word of a list's head on `vp`.
///
/// # Safety
/// As for [`word`], of a list's head.
unsafe fn first<'a>(home: NonNull<u64>, vp: Vp) -> &'a AtomicPtr<ListNode> {
    // SAFETY: as in `word`; the head's first word holds a pointer, which sequences access as eight bytes.
    unsafe { AtomicPtr::from_ptr(home.byte_add(vp.index() << SHIFT).as_ptr().cast()) }
}

/// # Safety
/// As for [`super::restart::push`].
#[cold]
#[inline(never)]
pub(super) unsafe fn push(home: NonNull<u64>, node: NonNull<ListNode>) {
    mode::settle();
    // SAFETY: passed on; `current` is below the limit (vp/I2).
    let first = unsafe { first(home, Vp::current()) };
    // SAFETY: by this function's contract the node is live and nobody else writes it.
    let link = unsafe { &node.as_ref().next };
    let mut head = first.load(Ordering::Relaxed);
    loop {
        link.store(head, Ordering::Relaxed);
        // Release: pairs with the Acquire reads in `pop`. Who pops the node sees the link and what lies behind it.
        match first.compare_exchange_weak(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// # Safety
/// As for [`super::restart::pop`].
#[cold]
#[inline(never)]
pub(super) unsafe fn pop(home: NonNull<u64>) -> *mut ListNode {
    mode::settle();
    let vp = Vp::current();
    // SAFETY: passed on; `current` is below the limit (vp/I2), and a head has two words.
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
/// [`wide::available`]; `count` lies behind `first`, which is aligned to 16.
unsafe fn pop_counted(first: &AtomicPtr<ListNode>, count: &AtomicU64) -> *mut ListNode {
    loop {
        // Acquire: keeps the read of `first` behind this one. If the exchange finds this count, nobody popped since.
        let pops = count.load(Ordering::Acquire);
        // Acquire: pairs with the Release exchange in `push`; the node's link is then the one stored there.
        let head = first.load(Ordering::Acquire);
        // SAFETY: a pointer in a head is null or a node's, which stays readable after it is popped (atomic/I2).
        let Some(node) = (unsafe { head.as_ref() }) else { return head };
        let next = node.next.load(Ordering::Relaxed);
        // SAFETY: passed on. The exchange acquires and releases, so that the links pushed before stay visible to those
        // who read the new head.
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
        // AcqRel: as in `pop_counted`. The node cannot have left and come back: that takes a pop.
        match first.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    unlock_word(lock);
    head
}

/// The bit of a magazine's count by which a thread has locked it.
pub(super) const LOCKED: u64 = 1 << 63;

/// The word of pointer `index` of a magazine.
///
/// # Safety
/// As for [`word`], of a magazine with more room than `index`.
#[inline]
pub(super) unsafe fn pointer<'a>(home: NonNull<u64>, vp: Vp, index: usize) -> &'a AtomicPtr<()> {
    // SAFETY: as in `word`; sequences access a pointer as eight bytes.
    unsafe { AtomicPtr::from_ptr(home.add(1 + index).byte_add(vp.index() << SHIFT).as_ptr().cast()) }
}

/// Locks a magazine that holds from `least` to `most` pointers. Returns how many, if it does and nobody else is at it.
#[inline]
fn lock_magazine(word: &AtomicU64, least: u64, most: u64) -> Option<u64> {
    let count = word.load(Ordering::Relaxed);
    // One that is locked seems to hold more than there is room for.
    if count < least || count > most {
        return None;
    }
    // Acquire: pairs with the Release store that unlocks; we see what the last holder did.
    word.compare_exchange(count, count | LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()
}

/// The VP of the calling thread if it is at hand and [`mode::settle`] would have nothing to do: what [`put`] and [`take`]
/// need without a call.
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
/// As for [`super::restart::put`].
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
/// As for [`super::restart::put`].
#[cold]
#[inline(never)]
unsafe fn put_later(home: NonNull<u64>, vp: Vp, capacity: usize, new: NonNull<()>) -> bool {
    // SAFETY: passed on.
    unsafe { put_on(home, settle_and_ask(), vp, capacity, new) }
}

/// # Safety
/// As for [`super::restart::put`], and the mode is settled. `here` is where the thread was just now.
#[inline(always)]
unsafe fn put_on(home: NonNull<u64>, here: Vp, vp: Vp, capacity: usize, new: NonNull<()>) -> bool {
    if here != vp || capacity == 0 {
        return false;
    }
    // SAFETY: passed on; `vp` is an answer of `current`, below the limit (vp/I2).
    let word = unsafe { word(home, vp) };
    let Some(count) = lock_magazine(word, 0, capacity as u64 - 1) else { return false };
    // SAFETY: below the room's end. Relaxed: the lock orders it.
    unsafe { pointer(home, vp, count as usize) }.store(new.as_ptr(), Ordering::Relaxed);
    // Release: pairs with the Acquire in `lock_magazine`; who takes the pointer sees what lies behind it.
    word.store(count + 1, Ordering::Release);
    true
}

/// # Safety
/// As for [`super::restart::take`].
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
/// As for [`super::restart::take`].
#[cold]
#[inline(never)]
unsafe fn take_later(home: NonNull<u64>) -> *mut () {
    // SAFETY: passed on.
    unsafe { take_on(home, settle_and_ask()) }
}

/// # Safety
/// As for [`super::restart::take`], and the mode is settled. `here` is an answer of [`Vp::current`].
#[inline(always)]
unsafe fn take_on(home: NonNull<u64>, here: Vp) -> *mut () {
    // SAFETY: passed on; `current` is below the limit (vp/I2).
    let word = unsafe { word(home, here) };
    let Some(count) = lock_magazine(word, 1, LOCKED - 1) else { return std::ptr::null_mut() };
    // SAFETY: below the count.
    let top = unsafe { pointer(home, here, count as usize - 1) }.load(Ordering::Relaxed);
    // Release: as in `put_on`.
    word.store(count - 1, Ordering::Release);
    top
}

/// The exchange of 16 bytes.
mod wide {
    use super::{AtomicPtr, ListNode};

    /// Whether this processor has it. Always the same answer.
    #[inline]
    pub(super) fn available() -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri), not(squall_tsan)))]
        return std::arch::is_x86_feature_detected!("cmpxchg16b");
        #[cfg(all(target_arch = "aarch64", not(miri), not(squall_tsan)))]
        return true;
        #[allow(unreachable_code)]
        false
    }

    /// Exchanges the 16 bytes at `at` if they are `old`; acquires and releases.
    ///
    /// # Safety
    /// [`available`]; `at` is aligned to 16, and the eight bytes behind it are the second word.
    #[cfg(all(target_arch = "x86_64", not(miri), not(squall_tsan)))]
    pub(super) unsafe fn exchange(
        at: &AtomicPtr<ListNode>,
        old: (*mut ListNode, u64),
        new: (*mut ListNode, u64),
    ) -> bool {
        let equal: u8;
        // SAFETY: 1. the processor has the instruction. 2. 16 aligned bytes of the head, accessed atomically only. 3. The
        // compiler keeps rbx for itself: it is put back before the block ends, and no operand of ours lives there.
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

    /// As above.
    ///
    /// # Safety
    /// As above.
    #[cfg(all(target_arch = "aarch64", not(miri), not(squall_tsan)))]
    pub(super) unsafe fn exchange(
        at: &AtomicPtr<ListNode>,
        old: (*mut ListNode, u64),
        new: (*mut ListNode, u64),
    ) -> bool {
        let differs: u64;
        // SAFETY: 16 aligned bytes of the head, accessed atomically only. The pair is a snapshot only if the exclusive
        // store succeeds, and it is used for nothing else: on a difference what was read is given up.
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

    /// Never called: [`available`] says no.
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(squall_tsan))))]
    pub(super) unsafe fn exchange(
        _at: &AtomicPtr<ListNode>,
        _old: (*mut ListNode, u64),
        _new: (*mut ListNode, u64),
    ) -> bool {
        unreachable!("no exchange of 16 bytes here")
    }
}
