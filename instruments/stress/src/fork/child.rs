//! The forking thread, and the body of its children.

use std::sync::atomic::{AtomicU64, Ordering};

use super::World;
use super::breaks::Break;
use super::calls::{Answer, Call, calls, keep_until_exit};
use super::raw::{Ended, Progress, Word, in_child};
use crate::run::{Rng, Run, Violation};

/// The time limit of a child, in seconds: much longer than any child needs.
const LIMIT: u32 = 30;
/// The time limit of a child of a run with a planned break.
const BROKEN_LIMIT: u32 = 3;
/// The status of a child that saw a wrong result.
const WRONG: i32 = 3;
/// One child in this many commits the planned break.
const BREAKS_ONE_IN: u64 = 8;

/// The counts of the children.
#[derive(Default)]
pub(super) struct Children {
    pub(super) by_exit: u64,
    pub(super) at_once: u64,
    pub(super) refused: u64,
    pub(super) done: u64,
}

/// Keeps its thread in an exit hook for ever.
struct Hangs;

impl Drop for Hangs {
    fn drop(&mut self) {
        wait_for_ever();
    }
}

thread_local! {
    static HANGS: Hangs = const { Hangs };
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Forks children until the run is over.
pub(super) fn fork_children(run: &Run, world: &World, children: &mut Children) -> Result<(), Violation> {
    let calls = calls(&world.objects);
    let progress =
        Progress::new().map_err(|error| Violation(format!("cannot start: no memory ({error})")))?;
    let mut rng = run.rng(u64::MAX);
    keep_until_exit(&world.objects);
    let limit = if world.broken.is_some() { BROKEN_LIMIT } else { LIMIT };
    while !run.is_over() {
        let by_exit = rng.one_in(2);
        let mut own = Rng::new(rng.next(), 0);
        call_in_parent(world, &mut rng);
        let mut held = world.objects.locks.adaptive.try_lock();
        for word in [Word::Call, Word::Wrong, Word::Refused, Word::Done] {
            progress.set(word, 0);
        }
        let ended = in_child(limit, || {
            held = None;
            (child(world, &calls, &progress, &mut own), by_exit)
        });
        drop(held);
        let ended = ended.map_err(|error| Violation(format!("cannot fork: {error}")))?;
        judge(&calls, &progress, ended, by_exit)?;
        *(if by_exit { &mut children.by_exit } else { &mut children.at_once }) += 1;
        children.refused += progress.get(Word::Refused);
        children.done += progress.get(Word::Done);
    }
    Ok(())
}

/// Makes calls, so that the thread has entries of its own in the local tables.
fn call_in_parent(world: &World, rng: &mut Rng) {
    use squall::objects::cached::CachedMapExt as _;
    use squall::objects::map::MapExt as _;
    use squall::objects::read_mostly::ReadMostlyExt as _;
    let (objects, key) = (&world.objects, rng.below(super::objects::KEYS));
    objects.maps.iter().for_each(|(_, map)| _ = map.get(&key));
    objects.cached.iter().for_each(|(_, map)| _ = map.get(&key));
    objects.cells.iter().for_each(|(_, cell)| cell.read(|_| ()));
}

/// Makes each call once, in random order. Returns the status of the child.
fn child(world: &World, calls: &[Call<'_>], progress: &Progress, rng: &mut Rng) -> i32 {
    let commits = world.broken.is_some() && rng.one_in(BREAKS_ONE_IN);
    let at = |by: Break| commits && world.is_broken(by);
    let mut order: Vec<usize> = (0..calls.len()).collect();
    for left in (1..order.len()).rev() {
        order.swap(left, rng.below(left as u64 + 1) as usize);
    }
    let (refused, done) = (AtomicU64::new(0), AtomicU64::new(0));
    for (made, &index) in order.iter().enumerate() {
        let is_half = made == calls.len() / 2;
        progress.set(Word::Call, index as u64 + 1);
        if is_half && at(Break::Hang) {
            wait_for_ever();
        }
        if is_half && at(Break::Abort) {
            std::process::abort();
        }
        let answer = (calls[index].make)(rng.next() >> 1);
        let answer = if is_half && at(Break::WrongResult) { Answer::Wrong } else { answer };
        match answer {
            Answer::Refused => refused.fetch_add(1, Ordering::Relaxed),
            Answer::Done => done.fetch_add(1, Ordering::Relaxed),
            Answer::Wrong => {
                progress.set(Word::Wrong, index as u64 + 1);
                return WRONG;
            }
        };
    }
    progress.set(Word::Call, calls.len() as u64 + 1);
    progress.set(Word::Refused, refused.into_inner());
    progress.set(Word::Done, done.into_inner());
    if at(Break::HangAtExit) {
        HANGS.with(|_| ());
    }
    0
}

/// Checks the end of a child.
fn judge(calls: &[Call<'_>], progress: &Progress, ended: Ended, by_exit: bool) -> Result<(), Violation> {
    let end = if by_exit { "exit" } else { "_exit" };
    let last = || match progress.get(Word::Call).checked_sub(1).map(|index| calls.get(index as usize)) {
        None => "before its first call".to_owned(),
        Some(Some(call)) => format!("in {}", call.describe()),
        Some(None) => format!("in {end}, after its calls"),
    };
    let wrong = || calls.get((progress.get(Word::Wrong) as usize).wrapping_sub(1));
    let what = match ended {
        Ended::With(0) => return Ok(()),
        Ended::TooLate => format!("a forked child hung {}", last()),
        Ended::With(WRONG) => {
            format!(
                "a call in a forked child had a wrong result: {}",
                wrong().map_or_else(last, Call::describe)
            )
        }
        Ended::With(status) => format!("a forked child ended with status {status} {}", last()),
        Ended::BySignal(signal) => format!("a forked child was ended by signal {signal} {}", last()),
    };
    Err(Violation(what))
}
