//! The ratchet: today's violations of a rule, counted by file or crate. Counts may only fall.
//!
//! Problem: a new rule that the whole tree breaks cannot be enforced at once. Idea: `xtask/ratchet.txt` has a
//! row for each file that breaks the rule, with its count. Tidy refuses a count above its row, and a row
//! above its count. `cargo run -p xtask -- tidy --write` lowers the rows.
//!
//! - I1. In a tidy tree a file is over its limit exactly if it has a row, and the row equals its count.
//! - I2. `--write` never raises the sum of a measure's rows, so a rise stays a problem. The count of a
//!   renamed file moves with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::problems::Problems;
use super::tree::Tree;

/// The list.
const RATCHET: &str = "xtask/ratchet.txt";
const HEAD: &str = "# Violations of today: measure, file or crate, count. Counts may only fall; `tidy --write` lowers them.\n";

/// A kind of violation that a rule counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// The rule that counts it.
    pub(crate) rule: &'static str,
    /// Its name in the list.
    pub(crate) name: &'static str,
    /// The words that follow the count in a message.
    pub(crate) unit: &'static str,
}

/// The violations of one measure in one file or crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    count: usize,
    limit: usize,
    places: String,
}

impl Count {
    /// A count. A count up to `limit` needs no row in the list.
    pub(crate) fn new(count: usize, limit: usize) -> Count {
        Count { count, limit, places: String::new() }
    }

    /// Adds the places of the violations, for messages.
    pub(crate) fn with_places(self, places: String) -> Count {
        Count { places, ..self }
    }

    fn is_over(&self) -> bool {
        self.count > self.limit
    }
}

/// The counts of one measure, by file or crate.
pub(crate) type Counts = BTreeMap<String, Count>;

/// A row of the list: its line from 0, and its count.
type Row = (usize, usize);

/// The rows of the list by measure and subject, and the lines that are not rows.
fn rows(tree: &Tree) -> (BTreeMap<(&str, &str), Row>, Vec<usize>) {
    let (mut rows, mut broken) = (BTreeMap::new(), Vec::new());
    for (line, text) in tree.text(RATCHET).unwrap_or_default().lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            [measure, subject, count] if count.parse::<usize>().is_ok() => {
                rows.insert((measure, subject), (line, count.parse().unwrap_or_default()));
            }
            _ => broken.push(line),
        }
    }
    (rows, broken)
}

/// Compares the counts of a measure with its rows in the list.
pub(crate) fn check(tree: &Tree, problems: &mut Problems, measure: Measure, counts: &Counts) {
    let Measure { name, unit, .. } = measure;
    let (rows, broken) = rows(tree);
    for line in broken {
        problems.line(RATCHET, line, "is not a row: measure, file or crate, count");
    }
    for (subject, count) in counts.iter().filter(|(_, count)| count.is_over()) {
        let Count { count, limit, places } = count;
        let row = rows.get(&(name, subject.as_str()));
        match row {
            Some((line, listed)) if listed > count => {
                let text = format!("{subject} has {count} {unit} now: write that down (tidy --write)");
                problems.line(RATCHET, *line, text);
            }
            Some((_, listed)) if listed == count => {}
            _ => {
                let allowed = row.map_or(*limit, |(_, listed)| *listed);
                let places = if places.is_empty() { String::new() } else { format!(": {places}") };
                problems.file(subject, format!("{count} {unit}, {allowed} are allowed{places}"));
            }
        }
    }
    for ((listed, subject), (line, _)) in rows {
        if listed == name && !counts.get(subject).is_some_and(Count::is_over) {
            problems.line(
                RATCHET,
                line,
                format!("{subject} keeps the rule now: strike it out (tidy --write)"),
            );
        }
    }
}

/// Writes the list anew from these counts. Rows of a measure with a risen sum are lowered only.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(tree: &Tree, root: &Path, all: &[(Measure, Counts)]) -> Result<()> {
    std::fs::write(root.join(RATCHET), rewritten(tree, all))
        .with_context(|| format!("cannot write {RATCHET}"))
}

/// The text of the list for these counts. Without a list, every count is accepted.
fn rewritten(tree: &Tree, all: &[(Measure, Counts)]) -> String {
    let (old, _) = rows(tree);
    let is_new = tree.text(RATCHET).is_none();
    let mut text = HEAD.to_owned();
    for (measure, counts) in all {
        let over = || counts.iter().filter(|(_, count)| count.is_over());
        let rows_of_measure = old.iter().filter(|((name, _), _)| *name == measure.name);
        let before: usize = rows_of_measure.map(|(_, row)| row.1).sum();
        let now: usize = over().map(|(_, count)| count.count).sum();
        let has_risen = now > before && !is_new;
        for (subject, count) in over() {
            let count = match old.get(&(measure.name, subject.as_str())) {
                Some((_, listed)) if has_risen => count.count.min(*listed),
                None if has_risen => continue,
                _ => count.count,
            };
            let _ = writeln!(text, "{} {subject} {count}", measure.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Count, Counts, Measure, RATCHET, check, rewritten};
    use crate::tidy::problems::Problems;
    use crate::tidy::tree::Tree;

    const MEASURE: Measure = Measure { rule: "r", name: "m", unit: "faults" };

    fn tree(list: &str) -> Tree {
        Tree::new([(RATCHET.to_owned(), list.to_owned())])
    }

    fn counts(counts: &[(&str, usize)]) -> Counts {
        counts.iter().map(|(path, count)| ((*path).to_owned(), Count::new(*count, 3))).collect()
    }

    /// The problems of these counts, limit 3, with this list.
    fn found(list: &str, of: &[(&str, usize)]) -> Vec<String> {
        let mut problems = Problems::new("r");
        check(&tree(list), &mut problems, MEASURE, &counts(of));
        problems.list.into_iter().map(|problem| problem.text).collect()
    }

    #[test]
    fn counts_may_only_fall() {
        assert!(found("", &[("a", 3)]).is_empty());
        assert!(found("# m a b c\n\nm a 9\n", &[("a", 9), ("b", 1)]).is_empty());
        assert_eq!(found("", &[("a", 4)]), ["4 faults, 3 are allowed"]);
        assert_eq!(found("m a 9\n", &[("a", 10)]), ["10 faults, 9 are allowed"]);
        assert_eq!(found("m a 9\n", &[("a", 8)]), ["a has 8 faults now: write that down (tidy --write)"]);
        assert_eq!(found("m a 9\n", &[("a", 3)]), ["a keeps the rule now: strike it out (tidy --write)"]);
        assert_eq!(found("m a 9\n", &[]), ["a keeps the rule now: strike it out (tidy --write)"]);
        assert_eq!(found("other a 9\n", &[]), [""; 0]);
        assert_eq!(found("m a\n", &[]), ["is not a row: measure, file or crate, count"]);
    }

    #[test]
    fn writing_lowers_counts_and_lets_files_move() {
        let write = |list: &str, of: &[(&str, usize)]| rewritten(&tree(list), &[(MEASURE, counts(of))]);
        let body = |text: String| text.split_once('\n').unwrap().1.to_owned();
        assert_eq!(body(write("m a 9\nm b 5\n", &[("a", 4), ("b", 2)])), "m a 4\n");
        assert_eq!(body(write("m a 9\n", &[("c", 9)])), "m c 9\n");
        // The sum rises from 9 to 12: the row of `a` is lowered, and `b` gets no row.
        assert_eq!(body(write("m a 9\n", &[("a", 8), ("b", 4)])), "m a 8\n");
        assert_eq!(body(write("m a 9\n", &[("a", 10)])), "m a 9\n");
        let new = rewritten(&Tree::new([]), &[(MEASURE, counts(&[("a", 9)]))]);
        assert_eq!(body(new), "m a 9\n");
    }
}
