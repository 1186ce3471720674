//! The policy of adaptive locks: the best form for the readings of the monitor.
//!
//! - I1. A decision is a function of two readings of the monitor, the number of processors, and the present
//!   form. The hysteresis decides when to act on it (`squall_adapt::hysteresis`).
//!
//! The costs behind the rules: handing a lock to another processor takes some hundred nanoseconds. Waking a
//! thread takes some ten microseconds. An owner that is preempted costs milliseconds.
//!
//! Sections shorter than a hand-over run best in turns: one thread repeats them, and the waiters hardly
//! disturb it. Sections longer than a wake-up are not worth spinning for. In between, the lock goes to a
//! spinning waiter. If more threads want to run than there are processors, turns are best again. Then the
//! waiter that is awake polls often, since the owner has other work too.

use std::time::Duration;

use squall_lock::{Method, MonitorReading, Scheduling, Waiting};

/// A form of the lock.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) waiting: Waiting,
    pub(super) scheduling: Scheduling,
}

/// Initial form, also used when more threads want to run than can. One waiter spins briefly, the others
/// sleep.
pub(super) const TURNS: usize = 0;
/// Form for short sections. The waiter that is awake polls seldom.
pub(super) const STAND_BY: usize = 1;
/// Form in which each release hands the lock to a spinning waiter.
pub(super) const HAND_OFF: usize = 2;
/// Form for long sections. All waiters sleep.
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

/// A section of this length ends before the lock could be handed to another processor and back.
const SHORT: Duration = Duration::from_nanos(600);
/// During a section of this length a thread can be put to sleep and woken a few times.
const LONG: Duration = Duration::from_micros(60);
/// Factor by which a limit is moved in favour of the present form.
const SLACK: u32 = 2;

/// Readings between two runs of the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Hold time of the lock.
    pub(super) hold: Duration,
    /// Maximum number of threads that waited at once.
    pub(super) waiters: u32,
    /// Number of acquisitions that waited.
    pub(super) contended: u64,
    /// Number of times that a waiter went to sleep.
    pub(super) sleeps: u64,
    /// Number of times that the lock was reserved for a waiter that was not running.
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

    /// Describes the readings in words.
    pub(super) fn explain(&self, processors: u32) -> String {
        let Seen { hold, waiters, contended, sleeps, missed } = self;
        format!(
            "held for {hold:?}; up to {waiters} waiters on {processors} processors; {contended} acquisitions waited, \
             {sleeps} slept; the lock was reserved {missed} times for a waiter that was not running"
        )
    }
}

/// Returns whether a wrong choice of this form costs much. Such a form is chosen only after more than one
/// run.
pub(super) fn is_bold(form: usize) -> bool {
    form == HAND_OFF || form == STAND_BY
}

/// Returns the best form for these readings. `now` is the present form.
pub(super) fn judge(seen: &Seen, processors: u32, now: usize) -> usize {
    // Limits are moved in favour of the present form, so that it does not flip at a limit.
    let short = if now == STAND_BY { SHORT * SLACK } else { SHORT };
    let long = if now == BLOCK { LONG / SLACK } else { LONG };
    if seen.hold >= long {
        return BLOCK;
    }
    if seen.hold <= short {
        return STAND_BY;
    }
    // The waiters and the owner outnumber the processors, or other threads use them. Time reserved for a
    // thread that is not running is lost.
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
