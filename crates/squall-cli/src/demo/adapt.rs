//! Adaptive counters under changing load. Threads count texts in phases. Each decision about the counters is
//! printed when it happens, with its reason.
//!
//! - I1. The final totals of the counters are compared with plain counts of the same pieces. One thread made
//!   those counts before.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::adapt::engine::{EngineState, thread_state};

use super::collect::Text;
use super::count::{self, Adaptive, TextStats, Totals};
use super::tell::Teller;
use crate::output::{Failure, line};

/// Maximum length of a piece in bytes, and maximum number of pieces.
const PIECE: usize = 16 << 10;
const PIECES_MAX: usize = 1024;
/// Interval between two polls of the decision log.
const LOOK: Duration = Duration::from_millis(20);
/// Number of sums that a thread asks for after each piece in the `Ask` phase.
const ASKED: usize = 2_000;
/// Length in bytes of a piece in the `Ask` phase.
const SMALL: usize = 1 << 10;

/// The work of the threads in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    One,
    All,
    Ask,
    Nobody,
}

/// The phases, their durations, and their announcements. The last phase is longer than the time after which a
/// counter counts as quiet.
const PHASES: [(Phase, Duration, &str); 4] = [
    (Phase::One, Duration::from_millis(600), "One thread reads and counts."),
    (Phase::All, Duration::from_millis(900), "All threads read and count."),
    (Phase::Ask, Duration::from_millis(900), "All threads ask for the sum of words and count little."),
    (Phase::Nobody, Duration::from_millis(1600), "All threads are idle."),
];

/// A piece of text and its plain count.
struct Piece<'a> {
    text: &'a [u8],
    truth: Totals,
}

fn pieces(texts: &[Text]) -> Vec<Piece<'_>> {
    let cut = texts.iter().flat_map(|text| text.bytes.chunks(PIECE)).take(PIECES_MAX);
    cut.map(|text| Piece { text, truth: count::plainly(text) }).collect()
}

/// The current phase, shared with the threads.
struct Stage {
    phase: AtomicUsize,
    over: AtomicBool,
}

impl Stage {
    fn phase(&self) -> Phase {
        PHASES[self.phase.load(Ordering::Relaxed)].0
    }
}

/// Shows adaptive counters for `seconds` seconds. Returns a description of the first difference in their
/// totals, if any.
pub(super) fn show(texts: &[Text], threads: usize, seconds: u64) -> Result<Option<String>, Failure> {
    let pieces = pieces(texts);
    if seconds == 0 || pieces.is_empty() {
        return Ok(None);
    }
    line("\nNext, four adaptive counters (files, lines, words, bytes) while their load changes:")?;
    if thread_state() == EngineState::Off {
        line("  (SQUALL_ADAPT switches their policy off, so they will not adapt.)")?;
    }
    let counters = Adaptive::new();
    let stage = Stage { phase: AtomicUsize::new(0), over: AtomicBool::new(false) };
    let (shown, truths) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (stage, counters, pieces) = (&stage, &counters, &pieces[..]);
                scope.spawn(move || work(stage, counters, pieces, thread))
            })
            .collect();
        let shown = direct(&stage, &counters, Duration::from_secs(seconds));
        // Also stops the threads if printing failed because the reader is gone.
        stage.over.store(true, Ordering::Relaxed);
        let truths =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (shown, truths.collect::<Vec<Totals>>())
    });
    let swaps = shown?;
    let truth = truths.iter().fold(Totals::default(), Totals::plus);
    let totals = counters.totals();
    let by_thread = counters.by_thread().iter().fold(Totals::default(), Totals::plus);
    let Totals { files, lines, words, bytes, .. } = totals;
    line(format_args!(
        "Totals of the counters: pieces {files}, lines {lines}, words {words}, bytes {bytes}."
    ))?;
    if totals != truth || by_thread != truth {
        line("They DIFFER from a single-threaded count of the same pieces in plain variables.")?;
        return Ok(Some(format!("the adaptive counters have {totals:?}, not {truth:?}")));
    }
    line(format_args!(
        "After {swaps} swaps they agree exactly with a single-threaded count of the same pieces in plain variables."
    ))?;
    Ok(None)
}

/// The loop of one thread, until the demo is over. Returns the plain counts of all pieces that it counted
/// (I1).
fn work(stage: &Stage, counters: &Adaptive, pieces: &[Piece<'_>], thread: usize) -> Totals {
    let mut truth = Totals::default();
    let mut next = thread;
    // A small piece for the `Ask` phase.
    let small = &pieces[thread % pieces.len()].text;
    let small = &small[..small.len().min(SMALL)];
    let small = Piece { text: small, truth: count::plainly(small) };
    while !stage.over.load(Ordering::Relaxed) {
        let piece = match stage.phase() {
            Phase::Nobody => None,
            Phase::One if thread > 0 => None,
            Phase::Ask => Some(&small),
            _ => Some(&pieces[next % pieces.len()]),
        };
        let Some(piece) = piece else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        next = next.wrapping_add(1);
        count::by_calls(counters, thread, piece.text);
        truth = truth.plus(&piece.truth);
        if stage.phase() == Phase::Ask {
            for _ in 0..ASKED {
                std::hint::black_box(counters.words());
            }
        }
    }
    truth
}

/// Steps through the phases and prints the decisions. Returns the number of swaps.
fn direct(stage: &Stage, counters: &Adaptive, time: Duration) -> Result<u64, Failure> {
    let mut teller = Teller::new(Adaptive::NAMES.into_iter().zip(counters.ids()).collect());
    loop {
        for (index, (_, lasts, what)) in PHASES.iter().enumerate() {
            line(teller.now(what))?;
            stage.phase.store(index, Ordering::Relaxed);
            let phase = Instant::now();
            while phase.elapsed() < *lasts {
                thread::sleep(LOOK);
                teller.news().into_iter().try_for_each(line)?;
                if teller.elapsed() >= time && index + 1 < PHASES.len() {
                    break;
                }
            }
            line(format_args!("             forms now: {}", teller.forms()))?;
        }
        if teller.elapsed() >= time {
            return Ok(teller.swaps());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_counters_have_the_counts_of_all_threads() {
        let _serial = crate::serial::lock();
        let text =
            |n: usize| Text { path: PathBuf::new(), bytes: "one two\nthree\n".repeat(n * 50).into_bytes() };
        let texts: Vec<Text> = (1..40).map(text).collect();
        let wrong = show(&texts, 3, 1).expect("it can be printed");
        assert_eq!(wrong, None);
        assert_eq!(show(&[], 3, 1).expect("it can be printed"), None, "there is nothing to count");
    }
}
