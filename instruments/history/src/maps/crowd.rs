//! Runs threads that begin at once, and collects their results.
//!
//! - I1. No thread waits for one that has returned or panicked: dropping a [`Member`] leaves the [`Meeting`],
//!   and dropping an [`Until`] marks its [`Over`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::contract::Outcome;
use crate::rng::Rng;

/// Runs `run` on several threads at once, numbered from zero, and waits for all.
///
/// # Errors
///
/// The error or panic of one of them.
pub fn crowd(threads: usize, run: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let barrier = Barrier::new(threads);
    let all = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, run) = (&barrier, &run);
                scope.spawn(move || {
                    barrier.wait();
                    run(thread)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
    });
    all.into_iter().collect()
}

/// Runs `run`; a panic becomes an error.
///
/// # Errors
///
/// The error or panic of `run`.
pub fn caught(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

fn panicked(what: Box<dyn Any + Send>) -> Outcome {
    let text = what.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| what.downcast_ref::<&str>().copied()).unwrap_or("a payload that is not text");
    Err(format!("a thread panicked: {text}"))
}

/// A reusable barrier that threads can leave.
#[derive(Debug)]
pub struct Meeting {
    state: Mutex<Meet>,
    all_here: Condvar,
}

#[derive(Debug)]
struct Meet {
    members: usize,
    here: usize,
    round: u64,
}

/// Membership of a thread in a [`Meeting`]; dropping it leaves the meeting.
#[derive(Debug)]
pub struct Member<'m>(&'m Meeting);

impl Meeting {
    /// A meeting of this many threads; each takes part through [`member`](Meeting::member).
    pub fn new(members: usize) -> Meeting {
        Meeting { state: Mutex::new(Meet { members, here: 0, round: 0 }), all_here: Condvar::new() }
    }

    /// Membership for one thread.
    pub fn member(&self) -> Member<'_> {
        Member(self)
    }

    fn state(&self) -> MutexGuard<'_, Meet> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release_if_complete(&self, meet: &mut Meet) {
        if meet.here > 0 && meet.here == meet.members {
            meet.here = 0;
            meet.round += 1;
            self.all_here.notify_all();
        }
    }
}

impl Member<'_> {
    /// Waits until all remaining members have arrived.
    pub fn wait(&self) {
        let mut meet = self.0.state();
        let round = meet.round;
        meet.here += 1;
        self.0.release_if_complete(&mut meet);
        drop(self.0.all_here.wait_while(meet, |meet| meet.round == round));
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut meet = self.0.state();
        meet.members -= 1;
        self.0.release_if_complete(&mut meet);
    }
}

/// Flag that tells waiting threads to stop.
#[derive(Debug, Default)]
pub struct Over(AtomicBool);

/// Guard that sets its [`Over`] when dropped.
#[derive(Debug)]
pub struct Until<'o>(&'o Over);

impl Over {
    /// Returns a guard that sets the flag when it is dropped, also by a panic.
    pub fn until_dropped(&self) -> Until<'_> {
        Until(self)
    }

    /// Whether the flag is set.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Sometimes yields or spins, so that other threads interleave.
pub fn pause(rng: &mut Rng) {
    match rng.below(8) {
        0 => thread::yield_now(),
        1 => (0..rng.below(200)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_left_are_not_awaited() {
        let meeting = Meeting::new(4);
        let ended = crowd(4, |thread| {
            let member = meeting.member();
            for round in 0..100 {
                match thread {
                    0 if round == 10 => return Err("as planned".to_owned()),
                    1 if round == 50 => panic!("planned"),
                    _ => member.wait(),
                }
            }
            Ok(())
        });
        assert_eq!(ended, Err("as planned".to_owned()));
        assert_eq!(meeting.state().round, 100);
    }

    #[test]
    fn a_panic_is_an_error() {
        let over = Over::default();
        let ended = crowd(2, |thread| {
            if thread == 0 {
                let _until = over.until_dropped();
                panic!("planned {thread}");
            }
            while !over.is_over() {
                thread::yield_now();
            }
            Ok(())
        });
        assert_eq!(ended, Err("a thread panicked: planned 0".to_owned()));
        assert_eq!(caught(|| panic!("planned")), Err("a thread panicked: planned".to_owned()));
    }
}
