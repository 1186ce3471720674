//! The list of mechanisms, `docs/mechanisms.md`: the source of each, its files, and its tests.
//!
//! The list is one Markdown table with the columns of [`COLUMNS`]. A row in state `done` names, in
//! back-ticks, the files of the mechanism and the functions that test it.

use std::collections::BTreeSet;

use super::map::spans;
use super::problems::Problems;
use super::tree::Tree;

const LIST: &str = "docs/mechanisms.md";
const COLUMNS: [&str; 6] = ["id", "paper, section", "in our words", "where", "test", "state"];
/// The states, each with the word that introduces the open part in the text of a row.
const STATES: [(&str, Option<&str>); 4] =
    [("done", None), ("part", Some("Missing:")), ("out of scope", Some("Reason:")), ("planned", None)];

/// `mechanisms-tested`: ids are unique, states are known, and a row that is done names files and tests that
/// exist. A row in another state says its open part, or the reason.
pub(crate) fn mechanisms_tested(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(LIST) else {
        problems.file(LIST, "is missing");
        return;
    };
    let tests = test_names(tree);
    let mut ids = BTreeSet::new();
    let mut columns_seen = false;
    for (line, text) in text.lines().enumerate() {
        let Some(cells) = cells(text) else { continue };
        if cells[..] == COLUMNS {
            columns_seen = true;
            continue;
        }
        if cells.iter().all(|cell| cell.trim_matches(':').chars().all(|c| c == '-')) {
            continue;
        }
        let [id, paper, words, places, checks, state] = cells[..] else {
            problems.line(LIST, line, format!("{} columns, not {}", cells.len(), COLUMNS.len()));
            continue;
        };
        if !ids.insert(id) {
            problems.line(LIST, line, format!("{id} is listed twice"));
        }
        if id.is_empty() || paper.is_empty() || words.is_empty() {
            problems.line(LIST, line, "a row without id, paper or words");
        }
        match STATES.iter().find(|(known, _)| *known == state) {
            None => {
                problems.line(LIST, line, format!("state {state}: known are {:?}", STATES.map(|(s, _)| s)))
            }
            Some((_, Some(word))) if !words.contains(word) => {
                problems.line(LIST, line, format!("{id} is {state}, and its text has no `{word}`"));
            }
            Some(_) => {}
        }
        if state == "done" {
            for missing in missing(tree, &tests, places, checks) {
                problems.line(LIST, line, format!("{id} is done, but {missing}"));
            }
        }
    }
    if !columns_seen {
        problems.file(LIST, format!("no table with the columns {COLUMNS:?}"));
    }
}

/// The trimmed cells of a row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The files and tests that a finished row names and the tree lacks.
fn missing(tree: &Tree, tests: &BTreeSet<&str>, places: &str, checks: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let (places, checks) = (spans(places), spans(checks));
    if places.is_empty() {
        missing.push("names no file".to_owned());
    }
    for place in places {
        let file = place.split("::").next().unwrap_or(place);
        if tree.text(file).is_none() {
            missing.push(format!("{file} is not a file"));
        }
    }
    // A span with a space is a command; a row may name commands beside tests.
    let functions: Vec<&str> = checks.into_iter().filter(|check| !check.contains(' ')).collect();
    if functions.is_empty() {
        missing.push("names no test".to_owned());
    }
    for function in functions {
        let name = function.rsplit("::").next().unwrap_or(function);
        if !tests.contains(name) {
            missing.push(format!("{name} is not a test"));
        }
    }
    missing
}

/// The names of all tests: functions marked `#[test]`, and the names listed line by line in a call of a macro
/// that defines such functions.
fn test_names(tree: &Tree) -> BTreeSet<&str> {
    let macros = test_macros(tree);
    let mut names = BTreeSet::new();
    for (_, source) in tree.rust("") {
        let mut marked = false;
        let mut defines = false;
        let mut listing = false;
        for code in &source.code {
            let word = first_word(code);
            defines |= code.contains("macro_rules!");
            if ends_item(code) {
                (defines, listing) = (false, false);
            }
            if listing {
                names.insert(word);
            }
            listing |= macros.contains(word) && code[word.len()..].starts_with('!');
            marked |= !defines && code.contains("#[test]");
            if let Some((_, rest)) = code.split_once("fn ").filter(|_| marked) {
                names.insert(first_word(rest));
                marked = false;
            }
        }
    }
    names
}

/// The names of all macros that define functions marked `#[test]`. Crates share some.
fn test_macros(tree: &Tree) -> BTreeSet<&str> {
    let mut macros = BTreeSet::new();
    for (_, source) in tree.rust("") {
        let mut defined = "";
        for code in &source.code {
            if let Some((_, rest)) = code.split_once("macro_rules!") {
                defined = first_word(rest);
            }
            if ends_item(code) {
                defined = "";
            }
            macros.extend((!defined.is_empty() && code.contains("#[test]")).then_some(defined));
        }
    }
    macros
}

/// Returns whether the line ends an item of a file.
fn ends_item(code: &str) -> bool {
    code.starts_with('}') || code.starts_with(");")
}

/// The identifier at the start of a piece of code, after any white space.
fn first_word(code: &str) -> &str {
    let code = code.trim_start();
    &code[..code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len())]
}
