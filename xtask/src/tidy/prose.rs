//! Rules about text of any kind.

use regex::Regex;

use super::problems::Problems;
use super::tree::Tree;

/// `no-ignored-doctest`: the compiler reads every example. `no_run` is allowed.
pub(crate) fn no_ignored_doctest(tree: &Tree, problems: &mut Problems) {
    let fence = Regex::new(r"^\s*(?:///|//!)?\s*```[a-z0-9_,]*\bignore\b").expect("a pattern");
    for (path, text) in tree.written().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".md")) {
        let matches = |text: &str| text.contains("ignore") && fence.is_match(text);
        for (line, _) in text.lines().enumerate().filter(|(_, text)| matches(text)) {
            problems.line(path, line, "an ignored example: use no_run, or delete it");
        }
    }
}

/// `no-machine-paths`: no path that exists only on the author's machine.
pub(crate) fn no_machine_paths(tree: &Tree, problems: &mut Problems) {
    // Written in parts, so that this file keeps its own rule.
    let roots = ["home", "Users", "root", "work", "mnt"];
    let pattern =
        Regex::new(&format!(r#"(?:^|[\s"'`(=:])/(?:{})/[\w.-]"#, roots.join("|"))).expect("a pattern");
    // A search for plain words comes first: it is much faster than the pattern.
    let may_match = |text: &str| text.contains('/') && roots.iter().any(|root| text.contains(root));
    for (path, text) in tree.written() {
        let matches = |text: &str| may_match(text) && pattern.is_match(text);
        for (line, _) in text.lines().enumerate().filter(|(_, text)| matches(text)) {
            problems.line(path, line, "a path of one machine: use a relative path");
        }
    }
}

/// `no-leftovers`: no mark of unfinished work, neither a word nor a macro.
pub(crate) fn no_leftovers(tree: &Tree, problems: &mut Problems) {
    // Written in parts, so that this file keeps its own rule.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"]].map(|parts| parts.concat());
    let macros = [["to", "do"], ["unimple", "mented"], ["d", "bg"]].map(|parts| parts.concat());
    let pattern = format!(r"\b(?:{})\b|\b(?:{})!", words.join("|"), macros.join("|"));
    let pattern = Regex::new(&pattern).expect("a pattern");
    // A search for plain words comes first: it is much faster than the pattern.
    let may_match = |text: &str| words.iter().chain(&macros).any(|word| text.contains(word));
    for (path, text) in tree.written().filter(|(path, _)| !path.starts_with("LICENSE")) {
        for (line, text) in text.lines().enumerate().filter(|(_, text)| may_match(text)) {
            if let Some(found) = pattern.find(text) {
                problems.line(
                    path,
                    line,
                    format!("{} marks unfinished work: finish it, or write an issue", found.as_str()),
                );
            }
        }
    }
}

/// `clean-text`: no white space at the end of a line, one newline at the end of a file, tabs in C only.
pub(crate) fn clean_text(tree: &Tree, problems: &mut Problems) {
    for (path, text) in tree.written().filter(|(path, _)| !recorded(path)) {
        for (line, text) in text.lines().enumerate() {
            if text.ends_with(|c: char| c.is_whitespace()) {
                problems.line(path, line, "white space at the end of the line");
            }
            if text.contains('\t') && !path.ends_with(".c") {
                problems.line(path, line, "a tab outside C");
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            problems.file(path, "does not end with one newline");
        }
    }
}

/// Whether a file was recorded from a machine, and therefore stays unchanged.
fn recorded(path: &str) -> bool {
    path.contains("/tests/") && !path.ends_with(".rs")
}
