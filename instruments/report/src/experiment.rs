//! An experiment, its verdict, and its result.

use std::time::Duration;

use crate::{Found, Lab, Missing};

/// An experiment of the literature.
#[derive(Debug)]
pub struct Experiment {
    /// Its id, such as `EX-K1`. One repeated on another part of the library has a suffix.
    pub id: &'static str,
    /// Short title.
    pub title: &'static str,
    /// The question, in one sentence.
    pub question: &'static str,
    /// Result of the paper.
    pub paper: Paper,
    /// Our measurement, and its differences from the paper's.
    pub here: &'static str,
    /// Condition of the verdict `agrees`: a part of a sentence, with its limits.
    pub agrees_if: &'static str,
    /// Command that repeats the measurement alone.
    pub command: &'static str,
    /// Expected duration in seconds: of a quick run, and of a full one.
    pub seconds: (u32, u32),
    /// Runs the experiment.
    pub run: fn(&mut Lab<'_>) -> Result<Found, Missing>,
    /// Compares the shape of our figures with the paper's.
    pub verdict: fn(&Found) -> Verdict,
    /// Data with the shape of the paper. A test expects the verdict `agrees`.
    pub alike: fn() -> Found,
    /// Data with the opposite shape. A test expects the verdict `differs`.
    pub opposite: fn() -> Found,
}

/// The paper's result.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Author, title, year, and the figure or section.
    pub source: &'static str,
    /// The result in words, with its figures.
    pub found: &'static str,
}

/// Comparison of our figures with the paper's result. The text is the reason, with figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The shape is that of the paper.
    Agrees(String),
    /// The shape is another one.
    Differs(String),
    /// Only a part could be compared.
    Part(String),
}

impl Verdict {
    /// `Agrees` if `holds`, else `Differs`.
    pub(crate) fn of(holds: bool, why: String) -> Verdict {
        if holds { Verdict::Agrees(why) } else { Verdict::Differs(why) }
    }

    /// The word that scripts see.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Agrees(_) => "agrees",
            Verdict::Differs(_) => "differs",
            Verdict::Part(_) => "part",
        }
    }

    /// The reason.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Verdict::Agrees(why) | Verdict::Differs(why) | Verdict::Part(why) => why,
        }
    }
}

/// A finished experiment.
#[derive(Debug)]
pub struct Done {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Our figures; empty if the measurement was not possible.
    pub found: Found,
    /// The comparison.
    pub verdict: Verdict,
    /// Duration of the run.
    pub took: Duration,
    /// Part of the processors' time that other programs took meanwhile, from 0 to 1.
    pub foreign: f64,
}

impl Done {
    /// Whether timed figures may be too high, because other programs used the processors.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.foreign > crate::page::FOREIGN_TOLD && self.found.has(crate::Means::Timed)
    }
}
