//! Objects that move to another cluster, and calls that go to where an object lives.
//!
//! Problem: an object is made near its first user. Later its users are elsewhere, and each call moves its
//! lines there.
//!
//! Idea: a hot-swap replaces the object by one that was made on a processor of the target. The id stays, and
//! with it the home that it names. The entry of the id there leads to the object in its new place.
//!
//! - I1. A lookup of an id is one step from the entry at its home, however often the object has moved: a swap
//!   stores the new object in that entry, and the old one is gone.
//!
//! Not promised: the place of memory that the values of the object point to. It is allocated by the threads
//! that fill them; a swap's imports run on the target.
//! Cost: a move is a swap, and a thread unless the caller is on the target. Each VP that calls the object
//! misses once afterwards.
//! Source: Unrau et al. 1995, §4.1 (HU-07). Deviation: the ghost is the entry in the global table.

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Interface};
use squall_machine::Vp;
use squall_parts::ship::{PendingCall, SendError, Target, ship};
use std::fmt;
use std::panic::resume_unwind;

pub use squall_core::place_of;

/// The error of [`move_to`]. The object serves on where it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum MoveError {
    /// The process may not run on any VP of the target, or none is online.
    Unreachable,
    /// The system refused a thread.
    NoThread(std::io::Error),
    /// The swap failed.
    Swap(SwapError),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::Unreachable => {
                f.write_str("the object was not moved: no processor of the target can run this process")
            }
            MoveError::NoThread(error) => {
                write!(f, "the object was not moved: no thread could be started on its target: {error}")
            }
            MoveError::Swap(error) => write!(f, "the object was not moved: {error}"),
        }
    }
}

impl std::error::Error for MoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MoveError::Unreachable => None,
            MoveError::NoThread(error) => Some(error),
            MoveError::Swap(error) => Some(error),
        }
    }
}

/// Ships a call to the VP where the object lives ([`place_of`]), and returns at once with the pending result.
/// If the object is gone, `call` runs before this returns, and finds out by itself.
///
/// # Errors
/// [`SendError`], with a closure that makes the call.
///
/// # Cost
/// That of [`ship`] and [`place_of`].
///
/// # Source
/// Gamsa et al. 1999, §3.1 and §6 (TO-04: function shipping to the processor of the data).
///
/// # Example
/// ```
/// use squall::objects::counter;
/// use squall::prelude::*;
/// use squall::ship::ship_to;
///
/// let hits = counter::shared();
/// let call = ship_to(hits.handle(), |hits| {
///     hits.inc();
///     hits.total()
/// });
/// assert_eq!(call?.wait()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ship_to<I, R, F>(
    handle: Handle<I>,
    call: F,
) -> Result<PendingCall<R>, SendError<impl FnOnce() -> R + Send + 'static>>
where
    I: ?Sized + Interface,
    R: Send + 'static,
    F: FnOnce(Handle<I>) -> R + Send + 'static,
{
    ship(place_of(handle).unwrap_or_else(Vp::current), move || call(handle))
}

/// Moves a live object to a VP of the target: swaps it for the result of `make`, which runs there. The swap
/// has its usual limits: no deadline, and 20 ms for calls to end.
///
/// The state moves in a format that the old object and the result of `make` have in common. Use the same
/// implementation for both to change only the place. Callers go on meanwhile, as in any
/// [swap](squall_core::swap). The handle and its id stay valid.
///
/// The work is done on the calling thread if it is on the target, and otherwise on a thread `squall-move`
/// that ends afterwards. Where the calling thread is not bound to its VP and moves away meanwhile, the object
/// may be made elsewhere. The target's [`Choice`](squall_parts::ship::Choice) has no effect.
///
/// # Errors
/// [`MoveError`]. The object then serves on where it was.
///
/// # Panics
/// If `make` panics, or if the machine has no such cluster.
///
/// # Cost
/// A swap, and the start of a thread. Afterwards calls cost as much as before.
///
/// # Source
/// Unrau et al. 1995, §4.1 (HU-07: migration).
///
/// # Example
/// ```
/// use squall::ship::{move_to, place_of};
/// use squall::swap::{Replacement, State, StateFormats};
/// use squall::{Cluster, ClusterSize};
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # #[squall::interface]
/// # trait Counter: Send + Sync { fn add(&self, n: u64); fn get(&self) -> u64; }
/// # #[derive(Default)]
/// # struct Central(AtomicU64);
/// # impl Counter for Central {
/// #     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
/// #     fn get(&self) -> u64 { self.0.load(Relaxed) }
/// # }
/// # impl State for Central {
/// #     fn formats(formats: &mut StateFormats<'_, Self>) {
/// #         formats.export_part(|this| Ok(this.get())).import_part(|this, n: u64| Ok(this.add(n)));
/// #     }
/// # }
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// counter.add(5);
/// let target = (ClusterSize::Node, Cluster::new(0));
/// move_to(counter.handle(), target, || Replacement::swappable(Central::default()))?;
/// assert_eq!(counter.get(), 5);
/// println!("the counter lives near {:?}", place_of(counter.handle()));
/// # Ok::<(), squall::ship::MoveError>(())
/// ```
pub fn move_to<I>(
    handle: Handle<I>,
    target: impl Into<Target>,
    make: impl FnOnce() -> Replacement<I> + Send,
) -> Result<SwapReport, MoveError>
where
    I: ?Sized + Interface,
{
    let (target, here) = (target.into(), Vp::current());
    // The swap may run on another thread, which does not know the state of this one.
    Swap::new(handle).__may_run().map_err(MoveError::Swap)?;
    let swap = || Swap::new(handle).run(make()).map_err(MoveError::Swap);
    if target.contains(here) {
        return swap();
    }
    let vps = target.vps(here);
    std::thread::scope(|scope| {
        let there = move || if settle(&vps) { swap() } else { Err(MoveError::Unreachable) };
        let thread = std::thread::Builder::new().name("squall-move".to_owned()).spawn_scoped(scope, there);
        let result = thread.map_err(MoveError::NoThread)?.join();
        result.unwrap_or_else(|payload| resume_unwind(payload))
    })
}

/// Moves the calling thread to the first of these VPs that admits it.
fn settle(vps: &[Vp]) -> bool {
    vps.iter().any(|vp| Vp::__move_current(*vp))
}
