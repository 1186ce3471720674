//! The index in use. One thread builds it first, then all threads build, and then all threads query it. The
//! decisions about its objects are printed when they happen.
//!
//! - I1. Answers are given only from an index that equals the index built by one thread in plain variables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::Handle;
use squall::objects::counter::{self, Counter};
use squall::objects::map::{MapExt, OwnedMap};

use super::build::Build;
use super::form::Form;
use super::job::Job;
use super::keep::Posting;
use super::keep::{List, Ours};
use super::words::Hasher;
use crate::demo::progress::Progress;
use crate::demo::tell::Teller;
use crate::output::{Failure, line};

/// Interval between two polls of the decision log.
const LOOK: Duration = Duration::from_millis(20);
/// One thread builds until one part in this many of the bytes is indexed.
const ALONE_PART: u64 = 3;
/// Duration of the queries by all threads.
const ASKED: Duration = Duration::from_millis(700);

/// A finished index and its texts.
pub(super) struct Index<'a> {
    map: OwnedMap<Box<str>, List, Hasher>,
    job: &'a Job,
    pub(super) time: Duration,
    teller: Teller,
}

/// Destination of the progress lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Lines on stdout.
    Stdout,
    /// Lines above the progress bar, shown only on a terminal.
    Terminal,
}

impl Told {
    fn say(self, bar: &Progress, text: &str) -> Result<(), Failure> {
        match self {
            Told::Stdout => bar.0.suspend(|| line(text)),
            Told::Terminal => {
                bar.0.println(text);
                Ok(())
            }
        }
    }
}

impl<'a> Index<'a> {
    /// Builds the index in a map of the given form.
    ///
    /// # Errors
    /// The index differs from the single-threaded one (I1), or a line could not be printed.
    pub(super) fn build(form: Form, job: &'a Job, told: Told) -> Result<Index<'a>, Failure> {
        let (totals, map) = (job.totals, form.make());
        let build = Build::new(job, 1);
        let mut objects = vec![("index", Handle::id(map.handle()))];
        objects.extend(build.objects());
        let mut teller = Teller::new(objects);
        let bar = Progress::new(totals.bytes, "building");
        told.say(&bar, &teller.now("One thread builds the index."))?;
        let mut is_alone = true;
        let time = build.run(&map.handle(), LOOK, &mut |build| {
            let bytes = build.statistics.totals().bytes;
            bar.0.set_position(bytes);
            if is_alone && bytes >= totals.bytes / ALONE_PART {
                is_alone = false;
                build.let_all_work();
                told.say(&bar, &teller.now("The configuration changes: all threads build."))?;
            }
            teller.news().iter().try_for_each(|text| told.say(&bar, text))
        })?;
        told.say(&bar, &teller.now("The index is complete."))?;
        bar.clear();
        let kept = build.statistics.totals();
        if kept != totals {
            return Err(Failure::new(format!("the statistics are {kept:?}, not {totals:?}")));
        }
        if let Some(difference) = job.truth.difference(&map.handle()) {
            return Err(Failure::new(format!("the index differs from that of one thread: {difference}")));
        }
        Ok(Index { map, job, time, teller })
    }

    /// Lets all threads look up words for a while and prints the decisions.
    pub(super) fn ask(&mut self) -> Result<(), Failure> {
        let questions = counter::adaptive();
        self.teller.also("questions", Handle::id(questions.handle()));
        let (over, map, job) = (AtomicBool::new(false), self.map.handle(), self.job);
        line(self.teller.now("All threads look up words."))?;
        let began = Instant::now();
        let shown = thread::scope(|scope| {
            for thread in 0..job.threads {
                let (over, questions) = (&over, questions.handle());
                scope.spawn(move || {
                    let words = job.truth.words().cycle().skip(thread * 1_000);
                    for word in words.take_while(|_| !over.load(Ordering::Relaxed)) {
                        std::hint::black_box(find(map, word));
                        questions.inc();
                    }
                });
            }
            let mut shown = Ok(());
            while shown.is_ok() && began.elapsed() < ASKED {
                thread::sleep(LOOK);
                shown = self.teller.news().into_iter().try_for_each(line);
            }
            over.store(true, Ordering::Relaxed);
            shown
        });
        let asked = questions.handle().total();
        shown?;
        line(self.teller.now(&format!(
            "{:.1} million lookups per second.",
            asked as f64 / began.elapsed().as_secs_f64() / 1e6
        )))?;
        line(format_args!("             forms now: {}", self.teller.forms()))
    }

    /// Returns the number of swaps among the printed decisions.
    pub(super) fn swaps(&self) -> u64 {
        self.teller.swaps()
    }

    /// Prints the texts that contain `word`, those with most occurrences first. Lists at most `listed_max`
    /// texts.
    pub(super) fn answer(&self, word: &str, listed_max: usize) -> Result<(), Failure> {
        let mut found = find(self.map.handle(), word);
        // Texts with the same number of occurrences are sorted by name.
        let path = |posting: &Posting| &self.job.texts[posting.text as usize].path;
        found.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| path(one).cmp(path(other))));
        let all = self.job.totals.texts;
        let times: u64 = found.iter().map(|posting| u64::from(posting.count)).sum();
        match found.len() {
            0 => return line(format_args!("{word}: in 0 of {all} texts")),
            some => line(format_args!("{word}: in {some} of {all} texts, {times} times"))?,
        }
        for posting in found.iter().take(listed_max) {
            line(format_args!("{:>8}  {}", posting.count, printable(&path(posting).to_string_lossy())))?;
        }
        match found.len().saturating_sub(listed_max) {
            0 => Ok(()),
            more => line(format_args!("          and {more} more texts")),
        }
    }
}

/// Returns the texts that contain `word`.
fn find(map: Ours, word: &str) -> Vec<Posting> {
    map.get_cloned(word).map_or(Vec::new(), |list| list.texts())
}

/// Escapes control characters: a file name may contain commands for the terminal.
fn printable(name: &str) -> String {
    let letters = name.chars();
    letters.map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_a_name_are_escaped() {
        assert_eq!(printable("a b/ü.txt"), "a b/ü.txt");
        assert_eq!(printable("a\x1b[2J\n"), "a\\u{1b}[2J\\n");
    }
}
