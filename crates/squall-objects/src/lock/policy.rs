//! Which form an adaptive lock should have, by what its monitor saw.
//!
//! - I1. A decision is a function of two readings of the monitor, the processors there are, and the form that the lock has; what it
//!   does about it is the temper's to say (`squall_adapt::temper`).
//!
//! What the forms are for. Handing a lock from one processor to another costs some hundred nanoseconds, waking a thread some
//! ten microseconds, and a thread that holds the lock and does not run costs milliseconds. A section shorter than the first is
//! best run by one thread again and again, in turns, hardly disturbed by those who wait; one longer than the second is not worth
//! a spin; between them the lock goes to whoever runs and waits for it, unless more threads want to run than there are
//! processors: then again in turns, and whoever is awake looks often, since the thread that has the lock has other work, too.

use std::time::Duration;

use squall_lock::{Method, MonitorReading, Scheduling, Waiting};

/// A form of the lock.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) waiting: Waiting,
    pub(super) scheduling: Scheduling,
}

/// The one it begins with, and where more threads want to run than can: one waiter spins a little, the others sleep.
pub(super) const TURNS: usize = 0;
/// Short sections: the waiter that is awake looks seldom.
pub(super) const STAND_BY: usize = 1;
/// Each release is for whoever spins.
pub(super) const HAND_OFF: usize = 2;
/// Long sections: nobody spins.
pub(super) const BLOCK: usize = 3;

const TURN: Scheduling = Scheduling::FREE_FOR_ALL.patience(Duration::from_micros(500));

pub(super) const FORMS: [Form; 4] = [
    Form { name: "turns", waiting: Waiting::SPIN_THEN_BLOCK, scheduling: TURN },
    Form {
        name: "stand-by",
        waiting: Waiting::new(&[Method::StandBy(4096), Method::Block]),
        scheduling: TURN,
    },
    Form {
        name: "hand-off",
        waiting: Waiting::new(&[Method::Spin(1024), Method::Backoff(Method::AMOUNT_MAX), Method::Block]),
        scheduling: Scheduling::FREE_FOR_ALL.patience(Duration::ZERO).awake_max(u8::MAX),
    },
    Form { name: "block", waiting: Waiting::BLOCK, scheduling: TURN },
];

/// A section this short is over before the lock could have been handed to another processor and back.
const SHORT: Duration = Duration::from_nanos(600);
/// While a section this long lasts, a thread can be put to sleep and woken a few times.
const LONG: Duration = Duration::from_micros(60);
/// So many times further than where a form began to be right, it is wrong.
const SLACK: u32 = 2;

/// What happened between two looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How long the lock is held.
    pub(super) hold: Duration,
    /// The most threads that waited while another had the lock.
    pub(super) waiters: u32,
    /// Acquisitions that waited.
    pub(super) contended: u64,
    /// Times a waiter went to sleep.
    pub(super) sleeps: u64,
    /// Times the lock was kept for waiters that did not run.
    pub(super) missed: u64,
}

impl Seen {
    pub(super) fn between(before: &MonitorReading, after: &MonitorReading, waiters: u32) -> Seen {
        Seen {
            hold: after.hold,
            waiters,
            contended: after.contended - before.contended,
            sleeps: after.sleeps - before.sleeps,
            missed: after.missed - before.missed,
        }
    }

    /// In words.
    pub(super) fn explain(&self, processors: u32) -> String {
        let Seen { hold, waiters, contended, sleeps, missed } = self;
        format!(
            "held for {hold:?}; up to {waiters} wait, and {processors} processors are there; of {contended} that waited {sleeps} slept, and \
             {missed} times those who were to have it did not run"
        )
    }
}

/// Whether a form costs much if it is chosen wrongly, so that one look is not enough to choose it.
pub(super) fn is_bold(form: usize) -> bool {
    form == HAND_OFF || form == STAND_BY
}

/// The form that is best for what was seen.
pub(super) fn judge(seen: &Seen, processors: u32, now: usize) -> usize {
    // What the form is right for already is stretched, so that it does not waver at an edge.
    let short = if now == STAND_BY { SHORT * SLACK } else { SHORT };
    let long = if now == BLOCK { LONG / SLACK } else { LONG };
    if seen.hold >= long {
        return BLOCK;
    }
    if seen.hold <= short {
        return STAND_BY;
    }
    // Those who wait, and the one that has it; or somebody else needs the processors: what is kept for a thread that does not run
    // is lost time.
    let crowded = seen.waiters + 1 > processors;
    let often = if now == HAND_OFF { 16 } else { 64 };
    if crowded || seen.missed * often > seen.contended { TURNS } else { HAND_OFF }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(hold_ns: u64, waiters: u32) -> Seen {
        let hold = Duration::from_nanos(hold_ns);
        Seen { hold, waiters, contended: 1000, sleeps: 10, missed: 0 }
    }

    #[test]
    fn kt_15_long_sections_are_not_spun_for() {
        for waiters in [1, 7] {
            assert_eq!(judge(&seen(200_000, waiters), 2, TURNS), BLOCK);
        }
    }

    #[test]
    fn kt_16_what_runs_is_handed_to_what_runs() {
        assert_eq!(judge(&seen(3_000, 1), 2, TURNS), HAND_OFF);
        assert_eq!(judge(&seen(3_000, 7), 16, TURNS), HAND_OFF);
    }

    #[test]
    fn where_more_threads_want_to_run_than_can_it_goes_in_turns() {
        assert_eq!(judge(&seen(3_000, 2), 2, HAND_OFF), TURNS);
        let missed = Seen { missed: 100, ..seen(3_000, 1) };
        assert_eq!(judge(&missed, 2, HAND_OFF), TURNS);
    }

    #[test]
    fn short_sections_are_not_handed_on() {
        for waiters in [1, 40] {
            assert_eq!(judge(&seen(80, waiters), 16, HAND_OFF), STAND_BY);
        }
    }

    #[test]
    fn at_an_edge_a_form_stays_what_it_is() {
        for (hold_ns, forms) in [(50_000, [BLOCK, HAND_OFF]), (900, [STAND_BY, HAND_OFF])] {
            for form in forms {
                assert_eq!(judge(&seen(hold_ns, 1), 2, form), form, "{hold_ns} ns");
            }
        }
    }

    #[test]
    fn forms_have_names_of_their_own() {
        let names = FORMS.each_ref().map(|form| form.name);
        assert_eq!(names, ["turns", "stand-by", "hand-off", "block"]);
    }
}
