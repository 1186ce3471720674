//! The problems that rules find, and how they are printed.

use std::fmt;

/// One place where a rule is broken.
#[derive(Debug)]
pub(crate) struct Problem {
    rule: &'static str,
    path: String,
    /// The line, from 1; 0 stands for the whole file.
    line: usize,
    pub(crate) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { rule, path, line, text } = self;
        match line {
            0 => write!(f, "{path}: {rule}: {text}"),
            _ => write!(f, "{path}:{line}: {rule}: {text}"),
        }
    }
}

/// The problems that one rule found.
#[derive(Debug)]
pub(crate) struct Problems {
    rule: &'static str,
    pub(crate) list: Vec<Problem>,
}

impl Problems {
    /// An empty list of the problems of `rule`.
    pub(crate) fn new(rule: &'static str) -> Problems {
        Problems { rule, list: Vec::new() }
    }

    /// The id of the rule.
    pub(crate) fn rule(&self) -> &'static str {
        self.rule
    }

    /// Adds a problem of a whole file.
    pub(crate) fn file(&mut self, path: &str, text: impl Into<String>) {
        self.list.push(Problem { rule: self.rule, path: path.to_owned(), line: 0, text: text.into() });
    }

    /// Adds a problem of a line, counted from 0.
    pub(crate) fn line(&mut self, path: &str, line: usize, text: impl Into<String>) {
        self.list.push(Problem { rule: self.rule, path: path.to_owned(), line: line + 1, text: text.into() });
    }
}
