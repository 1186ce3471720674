//! One round of a duel: the action of the first thread, the requests of the others, and their times.

use std::sync::Arc;

use squall::lock::{Cancel, Waiting};

use super::super::disturbed::{DUEL_SLEEP_LOG, short_us};
use super::super::lock_types::any_waiting;
use crate::run::Rng;

/// A request in a duel. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Take an exclusive lock.
    Have,
    HaveWithin(u64),
    HaveUnlessCancelled,
    HaveBy(i32, Option<Waiting>),
    Read,
    ReadWithin(u64),
    Write,
    WriteWithin(u64),
    /// Enter as a request.
    Enter,
    /// Stop a counter and restart it.
    Stop,
    StopWithin(u64),
    /// Stop a counter and shut it down.
    ShutDown,
}

impl Wish {
    /// Returns whether the wait has another end than being granted.
    fn has_end(self) -> bool {
        use Wish::*;
        matches!(self, HaveWithin(_) | HaveUnlessCancelled | ReadWithin(_) | WriteWithin(_) | StopWithin(_))
    }
}

/// The moment of the cancellations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancels {
    Inside,
    After,
    Never,
}

pub(super) struct Round {
    pub(super) first: Wish,
    pub(super) others: Vec<Wish>,
    pub(super) cancels: Cancels,
    pub(super) cancel: Arc<Cancel>,
    /// The first thread stays until all others are about to request the lock.
    pub(super) waits_for_all: bool,
    /// Then it stays for this time, in microseconds.
    pub(super) hold_us: u64,
    /// With bit `n` set, it then stays until number `n` of the others has stopped waiting.
    pub(super) stays_for: u64,
    /// The first thread changes the attributes before and while it is inside.
    pub(super) meddles: bool,
    /// The lock was used without contention before.
    pub(super) quiet: bool,
}

/// The kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    One,
    /// A lock that supports cancellation and priorities.
    Configurable,
    Several,
    Gate,
}

impl Round {
    pub(super) fn draw(kind: Kind, others: usize, rng: &mut Rng) -> Round {
        let first = match kind {
            Kind::One | Kind::Configurable => Wish::Have,
            Kind::Several => [Wish::Read, Wish::Write][rng.below(2) as usize],
            Kind::Gate => [Wish::Enter, Wish::Enter, Wish::Stop, Wish::ShutDown][rng.below(4) as usize],
        };
        // A counter is stopped by one thread at a time.
        let mut may_stop = first == Wish::Enter;
        let others: Vec<Wish> = (0..others)
            .map(|_| {
                let wish = draw_wish(kind, may_stop, rng);
                may_stop &= wish == Wish::Enter || kind != Kind::Gate;
                wish
            })
            .collect();
        let cancels = [Cancels::Inside, Cancels::After, Cancels::Never][rng.below(3) as usize];
        let ends = |wish: &Wish| {
            wish.has_end() && (*wish != Wish::HaveUnlessCancelled || cancels == Cancels::Inside)
        };
        let has_end = |index: &usize| ends(&others[*index]);
        let stays_for = match rng.below(3) {
            0 => (0..others.len()).filter(has_end).fold(0, |bits, index| bits | 1 << index),
            _ => 0,
        };
        Round {
            first,
            others,
            cancels,
            cancel: Arc::new(Cancel::new()),
            waits_for_all: rng.one_in(2),
            hold_us: short_us(rng, DUEL_SLEEP_LOG + 1),
            stays_for,
            meddles: rng.one_in(3),
            quiet: rng.one_in(3),
        }
    }
}

fn draw_wish(kind: Kind, may_stop: bool, rng: &mut Rng) -> Wish {
    let us = short_us(rng, DUEL_SLEEP_LOG);
    match (kind, rng.below(8)) {
        (Kind::One, 0..2) => Wish::HaveWithin(us),
        (Kind::One, _) => Wish::Have,
        (Kind::Configurable, 0..2) => Wish::HaveWithin(us),
        (Kind::Configurable, 2) => Wish::HaveUnlessCancelled,
        (Kind::Configurable, 3) => {
            let waiting = rng.one_in(2).then(|| any_waiting(rng));
            Wish::HaveBy(rng.below(5) as i32 - 2, waiting)
        }
        (Kind::Configurable, _) => Wish::Have,
        (Kind::Several, 0) => Wish::ReadWithin(us),
        (Kind::Several, 1) => Wish::WriteWithin(us),
        (Kind::Several, 2..5) => Wish::Read,
        (Kind::Several, _) => Wish::Write,
        (Kind::Gate, 0..3) if may_stop => Wish::Stop,
        (Kind::Gate, 3) if may_stop => Wish::StopWithin(us),
        (Kind::Gate, _) => Wish::Enter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 2_000;

    #[test]
    fn rounds_are_such_that_all_can_end() {
        let mut rng = Rng::new(5, 0);
        for kind in [Kind::One, Kind::Configurable, Kind::Several, Kind::Gate] {
            for _ in 0..DRAWN {
                let round = Round::draw(kind, 3, &mut rng);
                let is_stop =
                    |wish: &&Wish| matches!(wish, Wish::Stop | Wish::StopWithin(_) | Wish::ShutDown);
                let stops = round.others.iter().chain([&round.first]).filter(is_stop).count();
                assert!(stops <= 1, "{:?} {:?}", round.first, round.others);
                for (index, wish) in round.others.iter().enumerate() {
                    let ends = wish.has_end()
                        && (*wish != Wish::HaveUnlessCancelled || round.cancels == Cancels::Inside);
                    assert!(round.stays_for >> index & 1 == 0 || ends, "{wish:?} {:?}", round.cancels);
                }
            }
        }
    }

    #[test]
    fn every_wish_is_drawn() {
        let mut rng = Rng::new(6, 0);
        let mut drawn = std::collections::HashSet::new();
        for kind in [Kind::One, Kind::Configurable, Kind::Several, Kind::Gate] {
            for _ in 0..DRAWN {
                let Round { first, others, .. } = Round::draw(kind, 2, &mut rng);
                drawn.extend(others.iter().chain([&first]).map(std::mem::discriminant));
            }
        }
        assert_eq!(drawn.len(), 12);
    }
}
