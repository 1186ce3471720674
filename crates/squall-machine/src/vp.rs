//! Virtual processors: which one a thread is on, asked in one load.
//!
//! Problem: every local operation begins with this question, and nothing on its path may be a call. Idea: the answer
//! lies in the first word of a block per thread, either the kernel's (restartable sequences; the kernel keeps it up to
//! date) or our own of the same layout; one process-wide word says which, and a negative answer leads to the cold path.
//!
//! - I1. `AREA_OFFSET` is 0 (nobody has asked yet), the offset of the C library's areas (restartable mode), or that of
//!   our own blocks. It leaves 0 once, and after that goes only from the first to the second (`pervp/I4`).
//! - I2. Every answer is below [`Machine::vp_limit`](crate::Machine::vp_limit): in restartable mode it is the number of
//!   a possible processor; in every other case it was compared before it was given or stored.
//! - I3. Our own block's first word is negative unless the topology is virtual, where it is the thread's VP.
//!
//! Not promised: that the thread is still there when the answer is used. It is a hint of locality, never exclusion. In
//! restartable mode a thread that has no registration itself is told VP 0, until an operation of its gives the mode up.
//! Cost: two loads and two branches that are never taken; without restartable sequences on the real machine, a call,
//! and a question to the kernel (which the vDSO answers) once in `USES_PER_QUESTION` times.
//! Source: Tornado's `vp` of a thread; rseq(2) for `cpu_id_start`.

use crate::machine::machine;
use crate::pervp::mode;
use squall_sys::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use squall_sys::apart::Apart;
use squall_sys::area::{self, Asker};
use std::fmt;

/// Which block of a thread is read (vp/I1). Public for the `restartable!` macro alone.
#[doc(hidden)]
pub static AREA_OFFSET: Apart<AtomicIsize> = Apart::new(AtomicIsize::new(0));

/// How often a thread that has no restartable sequences uses one answer of the kernel.
const USES_PER_QUESTION: u32 = 64;

/// A virtual processor: the index of a processor as Squall sees it.
///
/// On the real machine this is the kernel's number of the CPU; in a virtual topology each thread is given one. Numbers
/// may have gaps; all are below [`Machine::vp_limit`](crate::Machine::vp_limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Vp(u32);

/// Why a thread could not be given a VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignError {
    /// The topology is the real machine's: there the kernel says where a thread is.
    RealTopology,
    /// No such VP.
    OutOfRange {
        /// What was asked for.
        vp: Vp,
        /// The VPs of this topology lie below it.
        limit: usize,
    },
}

impl fmt::Display for AssignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssignError::RealTopology => {
                f.write_str("threads are given VPs in a virtual topology only (SQUALL_TOPOLOGY)")
            }
            AssignError::OutOfRange { vp, limit } => write!(f, "{vp} does not exist: the limit is {limit}"),
        }
    }
}

impl std::error::Error for AssignError {}

impl fmt::Display for Vp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VP {}", self.0)
    }
}

impl Vp {
    /// The VP of this index. Whether the machine has it is asked where it is used.
    #[inline(always)]
    pub const fn new(index: u32) -> Vp {
        Vp(index)
    }

    /// Its index.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The VP that the calling thread is on: now on the real machine, always in a virtual topology.
    ///
    /// In a virtual topology a thread that has none yet is given one, round robin over all of them. On the real machine
    /// without restartable sequences the answer may be as old as 64 questions.
    ///
    /// A hint of where data is near, never exclusion: the thread may be elsewhere at the next instruction. The first
    /// call in a process reads the machine's topology, so make it before signal handlers do.
    ///
    /// # Cost
    /// Two loads (see the module's header).
    #[inline(always)]
    pub fn current() -> Vp {
        let offset = area_offset();
        if offset == 0 {
            return current_cold();
        }
        // SAFETY: `AREA_OFFSET` is not 0, so it is one of the two offsets that this asks for (vp/I1).
        let id = unsafe { area::cpu_id_start(offset) };
        if id < 0 {
            return current_cold();
        }
        // It was a number of 32 bits.
        Vp(id as u32)
    }

    /// Not public: the index of [`current`](Vp::current) where the thread's block has it, -1 where `current` would look
    /// further.
    ///
    /// # Safety
    /// A call of [`current`](Vp::current) has returned in this process, on any thread, before this one.
    /// # Cost
    /// Two loads, no branch.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn index_at_hand() -> isize {
        // SAFETY: somebody has asked, so `AREA_OFFSET` is not 0, and is one of the two offsets that this asks for (vp/I1).
        let id = unsafe { area::cpu_id_start(area_offset()) };
        debug_assert!(
            id >= -1,
            "the kernel's first word is never negative, and ours is -1 where it has no VP"
        );
        id as isize
    }

    /// Gives the calling thread this VP, until it is given another.
    ///
    /// # Errors
    /// [`AssignError`]: the topology is not virtual, or has no such VP.
    pub fn assign_current(vp: Vp) -> Result<(), AssignError> {
        check_assignable(vp)?;
        area::set_own_vp(vp.0.cast_signed());
        Ok(())
    }

    /// Runs `f` while the calling thread has this VP, then gives back what it had, also if `f` panics.
    ///
    /// # Errors
    /// As [`assign_current`](Vp::assign_current); `f` is then not run.
    pub fn with_vp<R>(vp: Vp, f: impl FnOnce() -> R) -> Result<R, AssignError> {
        struct GiveBack(i32);
        impl Drop for GiveBack {
            fn drop(&mut self) {
                area::set_own_vp(self.0);
            }
        }
        check_assignable(vp)?;
        // SAFETY: `own_offset` is one of the two offsets that this asks for.
        let _give_back = GiveBack(unsafe { area::cpu_id_start(area::own_offset()) } as i32);
        area::set_own_vp(vp.0.cast_signed());
        Ok(f())
    }
}

/// `AREA_OFFSET`, relaxed: whichever of its values is seen, a block of this thread lies there (vp/I1).
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

/// The answer where the block has none: nobody asked yet, a virtual topology, or no restartable sequences.
#[cold]
#[inline(never)]
fn current_cold() -> Vp {
    mode::initialise();
    let offset = AREA_OFFSET.load(Ordering::Relaxed);
    // SAFETY: `initialise` has set `AREA_OFFSET`, to one of the two offsets that this asks for (vp/I1).
    let id = unsafe { area::cpu_id_start(offset) };
    if id >= 0 {
        return Vp(id as u32);
    }
    // Only on the real machine is there ever something in it.
    let (cached, uses_left) = area::own_cache(Asker::Machine);
    if uses_left > 0 {
        area::set_own_cache(Asker::Machine, cached, uses_left - 1);
        return Vp(cached);
    }
    let limit = mode::vp_limit();
    if machine().is_virtual() {
        return assign_next(limit);
    }
    // Both fit: a processor's number is far below 2^32, and the limit is at least 1.
    let cpu = squall_sys::affinity::current_cpu().min(limit - 1) as u32;
    area::set_own_cache(Asker::Machine, cpu, USES_PER_QUESTION - 1);
    Vp(cpu)
}

/// Gives the calling thread the next VP of a virtual topology.
fn assign_next(limit: usize) -> Vp {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only the number counts.
    let vp = (NEXT.fetch_add(1, Ordering::Relaxed) % limit) as u32;
    area::set_own_vp(vp.cast_signed());
    Vp(vp)
}
