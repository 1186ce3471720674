//! The index in use: built in a map of ours by one thread first, then by all, asked by all afterwards, and then asked for words; what is
//! decided about its objects meanwhile is told.
//!
//! - I1. An answer is given only from an index that is exactly the one that one thread builds in plain variables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::Handle;
use squall::objects::counter::{self, Counter};
use squall::objects::map::{MapExt, OwnedMap};

use super::build::Build;
use super::form::Form;
use super::job::Job;
use super::keep::{List, Ours};
use super::plain::Posting;
use super::words::Hasher;
use crate::demo::Progress;
use crate::demo::tell::Teller;
use crate::output::{Failure, line};

/// How often it is looked what was decided.
const LOOK: Duration = Duration::from_millis(20);
/// One thread builds until this part of the text is in the index.
const ALONE_PART: u64 = 3;
/// How long all ask.
const ASKED: Duration = Duration::from_millis(700);

/// An index that is built, with its texts.
pub(super) struct Index<'a> {
    map: OwnedMap<Box<str>, List, Hasher>,
    job: &'a Job,
    pub(super) time: Duration,
    teller: Teller,
}

/// Where it is told what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// On stdout, in lines.
    Stdout,
    /// Above the bar that shows the progress, and only where that is shown.
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
    /// Builds it, in the map that `form` makes.
    ///
    /// # Errors
    /// It is not the one that one thread builds (I1); or nobody reads what is told.
    pub(super) fn build(form: Form, job: &'a Job, told: Told) -> Result<Index<'a>, Failure> {
        let (totals, map) = (job.totals, form.make());
        let build = Build::new(job, 1);
        let mut objects = vec![("index", Handle::id(map.co()))];
        objects.extend(build.objects());
        let mut teller = Teller::new(objects);
        let bar = Progress::new(totals.bytes, "building");
        told.say(&bar, &teller.now("One thread builds."))?;
        let mut is_alone = true;
        let time = build.run(&map.co(), LOOK, &mut |build| {
            let bytes = build.statistics.totals().bytes;
            bar.0.set_position(bytes);
            if is_alone && bytes >= totals.bytes / ALONE_PART {
                is_alone = false;
                build.let_all_work();
                told.say(&bar, &teller.now("All threads do: so says its configuration from now on."))?;
            }
            teller.news().iter().try_for_each(|text| told.say(&bar, text))
        })?;
        told.say(&bar, &teller.now("It is built."))?;
        bar.clear();
        let kept = build.statistics.totals();
        if kept != totals {
            return Err(Failure::new(format!("the statistics are {kept:?}, not {totals:?}")));
        }
        if let Some(difference) = job.truth.difference(&map.co()) {
            return Err(Failure::new(format!("the index is not that of one thread: {difference}")));
        }
        Ok(Index { map, job, time, teller })
    }

    /// Lets all threads ask for its words for a while, and tells what is decided.
    pub(super) fn ask(&mut self) -> Result<(), Failure> {
        let questions = counter::adaptive();
        self.teller.also("questions", Handle::id(questions.co()));
        let (over, map, job) = (AtomicBool::new(false), self.map.co(), self.job);
        line(self.teller.now("All threads ask for words."))?;
        let began = Instant::now();
        let shown = thread::scope(|scope| {
            for thread in 0..job.threads {
                let (over, questions) = (&over, questions.co());
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
        let asked = questions.co().total();
        shown?;
        line(self.teller.now(&format!(
            "{:.1} million answers a second.",
            asked as f64 / began.elapsed().as_secs_f64() / 1e6
        )))?;
        line(format_args!("             at its end: {}", self.teller.forms()))
    }

    /// How often its objects were swapped, of what was told.
    pub(super) fn swaps(&self) -> u64 {
        self.teller.swaps()
    }

    /// The texts that have a word, those with most of it first; at most so many are listed.
    pub(super) fn answer(&self, word: &str, listed_max: usize) -> Result<(), Failure> {
        let mut found = find(self.map.co(), word);
        // Of texts that have it as often, the order is that of their names.
        let path = |posting: &Posting| &self.job.texts[posting.text as usize].path;
        found.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| path(one).cmp(path(other))));
        let all = self.job.totals.texts;
        let times: u64 = found.iter().map(|posting| u64::from(posting.count)).sum();
        match found.len() {
            0 => return line(format_args!("{word}: in none of {all} texts")),
            some => line(format_args!("{word}: in {some} of {all} texts, {times} times"))?,
        }
        for posting in found.iter().take(listed_max) {
            line(format_args!("{:>8}  {}", posting.count, printable(&path(posting).to_string_lossy())))?;
        }
        match found.len().saturating_sub(listed_max) {
            0 => Ok(()),
            more => line(format_args!("          and {more} more")),
        }
    }
}

/// The texts that have a word.
fn find(map: Ours, word: &str) -> Vec<Posting> {
    map.get(word).map_or(Vec::new(), |list| list.texts())
}

/// A name may hold anything, a terminal's commands too.
fn printable(name: &str) -> String {
    let letters = name.chars();
    letters.map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_printed_as_it_is_but_for_control_characters() {
        assert_eq!(printable("a b/ü.txt"), "a b/ü.txt");
        assert_eq!(printable("a\x1b[2J\n"), "a\\u{1b}[2J\\n");
    }
}
