//! Virtual processors: the processor that a thread is on, found in two loads.
//!
//! Problem: every local operation first asks for its processor, so the answer must not cost a call.
//!
//! Idea: the number is in the first word of a per-thread block. The block is either the kernel's rseq area,
//! which the kernel keeps up to date, or our own block of the same layout. One process-wide word,
//! `AREA_OFFSET`, selects the block. A negative number leads to the cold path.
//!
//! - I1. `AREA_OFFSET` is 0 (before the first call), the offset of the C library's rseq areas (restartable
//!   mode), or the offset of our own blocks. It leaves 0 once. Later it changes at most once, from the second
//!   value to the third (`pervp/I4`).
//! - I2. Every VP returned is below [`Machine::vp_limit`](crate::Machine::vp_limit). In restartable mode it
//!   is the number of a possible processor. In every other mode the number was compared with the limit before
//!   it was returned or stored.
//! - I3. The first word of our own block is negative, except in a virtual topology, where it is the thread's
//!   VP.
//!
//! Not promised: the thread may have left the VP by the time the number is used, so it is a locality hint,
//! never exclusion. In restartable mode a thread without a registration gets VP 0, until one of its
//! operations gives the mode up.
//! Cost: two loads and two branches that are never taken. Without restartable sequences on the real machine:
//! a call, and one query of the kernel (answered by the vDSO) per `USES_PER_QUESTION` calls.
//! Source: Tornado's `vp` of a thread; rseq(2) for `cpu_id_start`.

use crate::machine::machine;
use crate::pervp::mode;
use crate::vp::{AssignError, Vp};
use squall_sys::area::{self, CacheSlot};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Selects the per-thread block that is read (current/I1). Public only for the `restartable!` macro.
#[doc(hidden)]
pub static AREA_OFFSET: CachePadded<AtomicIsize> = CachePadded::new(AtomicIsize::new(0));

/// Number of uses of one answer of the kernel, for threads without restartable sequences.
const USES_PER_QUESTION: u32 = 64;

impl Vp {
    /// Returns the VP that the calling thread is on.
    ///
    /// On the real machine the kernel tells it. Without restartable sequences the answer may be up to 64
    /// calls old. In a virtual topology a thread without a VP is assigned one, round robin over all VPs.
    ///
    /// The answer is a locality hint, never exclusion: the thread may be elsewhere at the next instruction.
    /// The first call in a process reads the machine's topology, so make that call before any signal handler
    /// does.
    ///
    /// # Cost
    /// Two loads.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, machine};
    ///
    /// // Choose a shard near the thread. Shards must still be thread-safe.
    /// let shards: Vec<_> = (0..machine().vp_limit()).map(|_| std::sync::Mutex::new(0)).collect();
    /// *shards[Vp::current().index()].lock().unwrap() += 1;
    /// ```
    #[inline(always)]
    pub fn current() -> Vp {
        let offset = area_offset();
        if offset == 0 {
            return current_cold();
        }
        // SAFETY: `AREA_OFFSET` is not 0, so it is one of the two offsets that `cpu_id_start` requires
        // (current/I1).
        let id = unsafe { area::cpu_id_start(offset) };
        if id < 0 {
            return current_cold();
        }
        // Non-negative `i32`, so the cast keeps the value.
        Vp(id as u32)
    }

    /// Not public API. Returns the index that [`current`](Vp::current) finds in the thread's block, or -1 if
    /// `current` would take the cold path.
    ///
    /// # Safety
    /// Some thread of this process has returned from [`current`](Vp::current) before.
    /// # Cost
    /// Two loads, no branch.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn index_at_hand() -> isize {
        // SAFETY: by contract `current` has returned once, so `AREA_OFFSET` is one of the two offsets that
        // `cpu_id_start` requires (current/I1).
        let id = unsafe { area::cpu_id_start(area_offset()) };
        debug_assert!(id >= -1, "the rseq area has the processor number {id}, which is below -1");
        id as isize
    }

    /// Assigns `vp` to the calling thread, until the next assignment.
    ///
    /// # Errors
    /// [`AssignError`] if the topology is not virtual, or has no such VP.
    ///
    /// # Example
    /// ```standalone_crate
    /// use squall::{Machine, Vp};
    ///
    /// Machine::set_virtual("cores:4".parse().unwrap()).unwrap();
    /// Vp::assign_current(Vp::new(2)).unwrap();
    /// assert_eq!(Vp::current(), Vp::new(2));
    /// ```
    pub fn assign_current(vp: Vp) -> Result<(), AssignError> {
        check_assignable(vp)?;
        area::set_own_vp(vp.0.cast_signed());
        Ok(())
    }

    /// Not public: moves the calling thread to this VP, for good. In a virtual topology the thread is
    /// assigned the VP, otherwise it may run on that processor alone. Returns false if the thread stays as
    /// it is: there is no such VP, or it is offline or not permitted.
    #[doc(hidden)]
    pub fn __move_current(vp: Vp) -> bool {
        if crate::machine().is_virtual() {
            Vp::assign_current(vp).is_ok()
        } else {
            squall_sys::affinity::restrict_to(&[vp.index()]).is_ok()
        }
    }

    /// Runs `f` while the calling thread is assigned `vp`. Restores the former assignment afterwards, also if
    /// `f` panics.
    ///
    /// # Errors
    /// [`AssignError`] if the topology is not virtual, or has no such VP. `f` then does not run.
    ///
    /// # Example
    /// ```standalone_crate
    /// use squall::{Machine, Vp};
    ///
    /// Machine::set_virtual("cores:4".parse().unwrap()).unwrap();
    /// let index = Vp::with_vp(Vp::new(3), || Vp::current().index()).unwrap();
    /// assert_eq!(index, 3);
    /// ```
    pub fn with_vp<R>(vp: Vp, f: impl FnOnce() -> R) -> Result<R, AssignError> {
        struct GiveBack(i32);
        impl Drop for GiveBack {
            fn drop(&mut self) {
                area::set_own_vp(self.0);
            }
        }
        check_assignable(vp)?;
        // SAFETY: `own_offset` is one of the two offsets that `cpu_id_start` requires.
        let _give_back = GiveBack(unsafe { area::cpu_id_start(area::own_offset()) } as i32);
        area::set_own_vp(vp.0.cast_signed());
        Ok(f())
    }
}

/// Loads `AREA_OFFSET`, relaxed: this thread has a block at each of its values (current/I1).
#[inline(always)]
fn area_offset() -> isize {
    squall_sys::near_static!(AREA_OFFSET, isize)
}

fn check_assignable(vp: Vp) -> Result<(), AssignError> {
    mode::initialise();
    if !machine().is_virtual() {
        return Err(AssignError::RealTopology);
    }
    let limit = mode::vp_limit();
    if vp.index() >= limit { Err(AssignError::OutOfRange { vp, limit }) } else { Ok(()) }
}

/// Finds the VP if the block has no number: before the first call, in a virtual topology, or without
/// restartable sequences.
#[cold]
#[inline(never)]
fn current_cold() -> Vp {
    mode::initialise();
    let offset = AREA_OFFSET.load(Ordering::Relaxed);
    // SAFETY: `initialise` has set `AREA_OFFSET` to one of the two offsets that `cpu_id_start` requires
    // (current/I1).
    let id = unsafe { area::cpu_id_start(offset) };
    if id >= 0 {
        return Vp(id as u32);
    }
    // Only the real machine fills this cache.
    let (cached, uses_left) = area::own_cache(CacheSlot::Machine);
    if uses_left > 0 {
        area::set_own_cache(CacheSlot::Machine, cached, uses_left - 1);
        return Vp(cached);
    }
    let limit = mode::vp_limit();
    if machine().is_virtual() {
        return assign_next(limit);
    }
    // Neither cast truncates: a processor's number is far below 2^32, and the limit is at least 1.
    let cpu = squall_sys::affinity::current_cpu().min(limit - 1) as u32;
    area::set_own_cache(CacheSlot::Machine, cpu, USES_PER_QUESTION - 1);
    Vp(cpu)
}

/// Assigns the next VP of a virtual topology to the calling thread.
fn assign_next(limit: usize) -> Vp {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the counter guards no other data.
    let vp = (NEXT.fetch_add(1, Ordering::Relaxed) % limit) as u32;
    area::set_own_vp(vp.cast_signed());
    Vp(vp)
}
