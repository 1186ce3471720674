//! Rules about the size of files and functions, and about the header of a module.

use std::collections::BTreeMap;

use super::crates::{self, ESSAY_FLOOR};
use super::manifests::packages;
use super::problems::Problems;
use super::tree::{Tree, is_test};

/// Lines outside tests that a file may have.
const FILE_LINES_MAX: usize = 800;
/// Lines that a function may have.
const FUNCTION_LINES_MAX: usize = 70;
/// The list of longer functions with their lengths, which may only shrink.
const LONG_FUNCTIONS: &str = "xtask/long-functions.txt";

/// `one-concept-file`: at most 800 lines outside tests.
pub(crate) fn one_concept_file(tree: &Tree, problems: &mut Problems) {
    for (path, source) in tree.rust("") {
        let lines_count = source.shipped().count();
        if lines_count > FILE_LINES_MAX {
            problems.file(path, format!("{lines_count} lines outside tests, {FILE_LINES_MAX} are allowed"));
        }
    }
}

/// `short-functions`: at most 70 lines. Longer functions are listed with their lengths; the list may only
/// shrink.
pub(crate) fn short_functions(tree: &Tree, problems: &mut Problems) {
    let mut listed = BTreeMap::new();
    for (line, entry) in tree.text(LONG_FUNCTIONS).unwrap_or_default().lines().enumerate() {
        let words: Vec<&str> = entry.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            [path, name, length] if length.parse::<usize>().is_ok() => {
                listed.insert((path, name.to_owned()), (length.parse::<usize>().unwrap_or_default(), line));
            }
            _ => problems.line(LONG_FUNCTIONS, line, "is not: path, function, length"),
        }
    }
    for (path, source) in tree.rust("") {
        for function in source.functions().iter().filter(|function| function.lines_count > FUNCTION_LINES_MAX)
        {
            let (name, length) = (&function.name, function.lines_count);
            match listed.remove(&(path, name.clone())) {
                Some((allowed, _)) if allowed == length => {}
                Some((allowed, line)) if allowed > length => {
                    problems.line(
                        LONG_FUNCTIONS,
                        line,
                        format!("{name} has {length} lines now: write that down in the list"),
                    );
                }
                allowed => {
                    let allowed = allowed.map_or(FUNCTION_LINES_MAX, |(allowed, _)| allowed);
                    problems.line(
                        path,
                        function.line,
                        format!("{name} has {length} lines, {allowed} are allowed"),
                    );
                }
            }
        }
    }
    for ((path, name), (_, line)) in listed {
        problems.line(
            LONG_FUNCTIONS,
            line,
            format!("{name} in {path} is not a long function: strike it out"),
        );
    }
}

/// `header-essay`: each module of floors 0 to 3 opens with `//!`.
pub(crate) fn header_essay(tree: &Tree, problems: &mut Problems) {
    for package in packages(tree, problems) {
        let essay = crates::named(&package.name).is_some_and(|known| known.floor <= ESSAY_FLOOR);
        if !essay {
            continue;
        }
        for (path, _) in tree.rust(&format!("{}/src", package.folder)).filter(|(path, _)| !is_test(path)) {
            let text = tree.text(path).unwrap_or_default();
            let opens = text
                .lines()
                .find(|line| !line.trim().is_empty())
                .is_some_and(|line| line.starts_with("//! "));
            if !opens {
                problems.file(path, "does not open with //! and a header");
            }
        }
    }
}
