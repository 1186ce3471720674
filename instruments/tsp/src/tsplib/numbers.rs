//! The numbers of a section.

use std::str::{FromStr, SplitAsciiWhitespace};

use super::{Wrong, wrong};
use crate::WEIGHT_MAX;

/// Largest absolute value of a coordinate.
const COORDINATE_MAX: f64 = 1e9;

/// A reader of the numbers from one line on. It advances the caller's position over the lines that it used.
pub(super) struct Numbers<'a> {
    lines: &'a [&'a str],
    at: &'a mut usize,
    words: SplitAsciiWhitespace<'a>,
}

/// Whether a line belongs to a section: it is blank, or begins like a number.
fn has_numbers(line: &str) -> bool {
    let first = line.trim_start().bytes().next();
    first.is_none_or(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte))
}

impl<'a> Numbers<'a> {
    /// Begins at the line with this index.
    pub(super) fn new(lines: &'a [&'a str], at: &'a mut usize) -> Numbers<'a> {
        Numbers { lines, at, words: "".split_ascii_whitespace() }
    }

    /// The present line, from 1.
    pub(super) fn line(&self) -> usize {
        *self.at
    }

    fn word(&mut self) -> Option<&'a str> {
        loop {
            if let Some(word) = self.words.next() {
                return Some(word);
            }
            let line = self.lines.get(*self.at).filter(|line| has_numbers(line))?;
            *self.at += 1;
            self.words = line.split_ascii_whitespace();
        }
    }

    /// Reads a number. `missing` gives the reason if the section ends before.
    pub(super) fn next<T: FromStr>(&mut self, missing: impl Fn() -> String) -> Result<T, Wrong> {
        match self.word() {
            None => wrong(self.line(), missing()),
            Some(word) => match word.parse() {
                Ok(number) => Ok(number),
                Err(_) => {
                    let told: String = word.chars().take(40).collect();
                    wrong(self.line(), format!("{told:?} is no number that can stand here"))
                }
            },
        }
    }

    /// Reads a coordinate.
    pub(super) fn coordinate(&mut self, missing: impl Fn() -> String) -> Result<f64, Wrong> {
        let value: f64 = self.next(missing)?;
        if value.abs() <= COORDINATE_MAX {
            Ok(value)
        } else {
            wrong(self.line(), format!("the coordinate {value} is above {COORDINATE_MAX}; scale all down"))
        }
    }

    /// Reads a weight. Some files write whole numbers with a point.
    pub(super) fn weight(&mut self, missing: impl Fn() -> String) -> Result<u32, Wrong> {
        let value: f64 = self.next(missing)?;
        if value < 0.0 {
            wrong(self.line(), format!("the weight {value} is negative; add a constant to all weights"))
        } else if value > f64::from(WEIGHT_MAX) {
            wrong(self.line(), format!("the weight {value} is above {WEIGHT_MAX}; scale all weights down"))
        } else if value.fract() != 0.0 || value.is_nan() {
            wrong(self.line(), format!("the weight {value} is no whole number; scale all weights"))
        } else {
            Ok(value as u32)
        }
    }

    /// Ends the section. `more` gives the reason if it has another number.
    pub(super) fn end(mut self, more: impl Fn() -> String) -> Result<(), Wrong> {
        match self.word() {
            Some(_) => wrong(self.line(), more()),
            None => Ok(()),
        }
    }
}
