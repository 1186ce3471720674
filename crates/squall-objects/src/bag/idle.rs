//! The thread `squall-bags`: does the idle work of distributed bags, in programs without calls of
//! `Bag::idle`.
//!
//! Problem: a strategy with idle work moves elements before clients need them, but most programs have no
//! moment at which they know that a processor is idle. Idea: one thread works for the bags that had demand
//! transfers, because the others are in balance.
//!
//! - I1. The thread is off unless the program asks for it. It sleeps until a demand transfer posts a bag.
//! - I2. A bag is in the list at most once, and asks only if its mark is clear. The thread clears the mark
//!   before a round, so a demand transfer during the round posts again.
//! - I3. The thread calls bags under no lock of its own, and outside every operation.

use squall_core::Id;
use squall_sys::fork::forked;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Largest number of rounds for one post.
const ROUNDS: usize = 64;
/// Pause between two rounds of one bag.
const PAUSE: Duration = Duration::from_millis(1);

const UNASKED: u8 = 0;
const OFF: u8 = 1;
const RUNNING: u8 = 2;
/// Switched off, but the thread exists.
const PAUSED: u8 = 3;

static THREAD: AtomicU8 = AtomicU8::new(UNASKED);
static POSTS: Mutex<VecDeque<Post>> = Mutex::new(VecDeque::new());
static BELL: Condvar = Condvar::new();

/// A bag that had a demand transfer.
struct Post {
    id: Id,
    /// The mark of the bag (I2).
    mark: Arc<AtomicBool>,
    /// Makes a round for the bag of this id. Returns its result, or `None` if the bag was destroyed.
    round: fn(Id) -> Option<Round>,
}

impl Post {
    /// Clears the mark and makes a round (I2). A panic of the round ends here.
    fn run(&self) -> Option<Round> {
        // Relaxed: a demand transfer that this store misses has left its trace in the sizes of the shards.
        self.mark.store(false, Ordering::Relaxed);
        let (round, id) = (self.round, self.id);
        // A round is a call of the bag, which an arbiter of the program may end by a panic.
        catch_unwind(|| round(id)).ok()?
    }
}

/// Result of a round.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Whether elements moved.
    pub(super) moved: bool,
    /// Number of clients. Each asks one peer in a round, so this many rounds ask all.
    pub(super) clients: usize,
}

/// Switches the thread `squall-bags` on or off, and returns whether it runs. It does the idle work
/// ([`Bag::idle`](super::Bag::idle)) of distributed bags that had demand transfers, and sleeps otherwise. The
/// default is off. `SQUALL_BAGS=on` in the environment switches it on when the first distributed or adaptive
/// bag is created.
///
/// ```
/// use squall::objects::bag::{has_thread, set_thread};
///
/// assert!(!has_thread());
/// assert!(set_thread(true));
/// assert!(!set_thread(false));
/// ```
pub fn set_thread(on: bool) -> bool {
    if forked() {
        return false;
    }
    // Relaxed, here and below: the lock of the posts orders the data.
    let change = |state| match (state, on) {
        (UNASKED | OFF | PAUSED, true) => Some(RUNNING),
        (UNASKED, false) => Some(OFF),
        (RUNNING, false) => Some(PAUSED),
        _ => None,
    };
    let changed = THREAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    if on && matches!(changed, Ok(UNASKED | OFF)) {
        let spawned = thread::Builder::new().name("squall-bags".to_owned()).spawn(work);
        if spawned.is_err() {
            THREAD.store(OFF, Ordering::Relaxed);
        }
    }
    has_thread()
}

/// Returns whether the thread `squall-bags` runs. For an example see [`set_thread`].
pub fn has_thread() -> bool {
    THREAD.load(Ordering::Relaxed) == RUNNING
}

/// Starts the thread if the environment asks for it. Constructors call this.
pub(super) fn start() {
    if THREAD.load(Ordering::Relaxed) == UNASKED {
        start_slow();
    }
}

#[cold]
fn start_slow() {
    set_thread(std::env::var_os("SQUALL_BAGS").is_some_and(|value| value == "on"));
}

/// Asks the thread to work for a bag, unless its mark says that it has asked (I2).
#[inline]
pub(super) fn ask(mark: &Arc<AtomicBool>, id: impl FnOnce() -> Id, round: fn(Id) -> Option<Round>) {
    if has_thread() && !mark.load(Ordering::Relaxed) && !mark.swap(true, Ordering::Relaxed) {
        posts().push_back(Post { id: id(), mark: mark.clone(), round });
        BELL.notify_one();
    }
}

fn posts() -> MutexGuard<'static, VecDeque<Post>> {
    POSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work() {
    loop {
        let post = next();
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let Some(result) = post.run() else { break };
            quiet = if result.moved { 0 } else { quiet + 1 };
            if quiet >= result.clients || !has_thread() {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Waits for a post.
fn next() -> Post {
    let mut posts = posts();
    loop {
        if let Some(post) = posts.pop_front() {
            return post;
        }
        posts = BELL.wait(posts).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::Handle;

    #[test]
    fn a_round_that_panics_or_is_refused_leaves_no_mark() {
        let bag = super::super::shared::<u32>();
        let rounds: [fn(Id) -> Option<Round>; 2] = [|_| panic!("an arbiter"), |_| None];
        for round in rounds {
            let post = Post { id: Handle::id(bag.handle()), mark: Arc::new(AtomicBool::new(true)), round };
            assert!(post.run().is_none());
            assert!(!post.mark.load(Ordering::Relaxed));
        }
    }
}
