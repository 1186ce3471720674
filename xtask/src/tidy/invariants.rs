//! Numbered invariants: the places that state them and the places that cite them.
//!
//! A statement is a list item: `- I`, a number and a full stop. It stands in the comments of a module or the
//! text of a crate's README. A comment of the same file may cite the bare number. Other files cite the file's
//! stem, a slash and the number. The stem of `mod.rs` and of a README is its folder; that of `lib.rs` and
//! `main.rs` is the crate's name without `squall-`.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::problems::Problems;
use super::tree::Tree;

/// `numbered-invariants`: numbers in a file run from 1 without a gap, and each citation leads to an
/// invariant.
pub(crate) fn numbered_invariants(tree: &Tree, problems: &mut Problems) {
    let stated = Regex::new(r"^\s*(?:///|//!|//)?\s*- \**I(\d+)\.").expect("a pattern");
    let cited = Regex::new(r"\b([a-z][a-z0-9_-]*)/I(\d+)\b").expect("a pattern");
    let bare = Regex::new(r"(?:^|[^/\w])I(\d+)\b").expect("a pattern");
    let texts = texts(tree);
    let mut known: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (path, lines) in &texts {
        let mut here = BTreeSet::new();
        for (line, text) in lines.iter().enumerate().filter(|(_, text)| text.contains('I')) {
            let Some(number) = stated.captures(text).and_then(|c| c[1].parse().ok()) else { continue };
            if !here.insert(number) {
                problems.line(path, line, format!("I{number} is stated twice in this file"));
            } else if number as usize != here.len() {
                problems.line(path, line, format!("I{number} is stated where I{} comes next", here.len()));
            }
        }
        known.entry(stem(path)).or_default().append(&mut here.clone());
        known.insert(format!("{path}:"), here);
    }
    for (path, lines) in &texts {
        let here = &known[&format!("{path}:")];
        for (line, text) in lines.iter().enumerate().filter(|(_, text)| text.contains('I')) {
            for citation in cited.captures_iter(text) {
                let number: u32 = citation[2].parse().unwrap_or_default();
                if !known.get(&citation[1]).is_some_and(|numbers| numbers.contains(&number)) {
                    problems.line(path, line, format!("{} is stated nowhere", &citation[0]));
                }
            }
            for citation in bare.captures_iter(text) {
                let number: u32 = citation[1].parse().unwrap_or_default();
                if !here.contains(&number) {
                    problems.line(path, line, format!("I{number} is not stated in this file"));
                }
            }
        }
    }
}

/// The comments of every file of Rust and the text of every Markdown file of a crate, by lines.
fn texts(tree: &Tree) -> Vec<(&str, Vec<&str>)> {
    let comments =
        tree.rust("").map(|(path, source)| (path, source.comment.iter().map(String::as_str).collect()));
    let prose = tree.written().filter(|(path, _)| path.starts_with("crates/") && path.ends_with(".md"));
    comments.chain(prose.map(|(path, text)| (path, text.lines().collect()))).collect()
}

/// The name by which other files cite a file's invariants.
fn stem(path: &str) -> String {
    let mut parts = path.rsplit('/');
    let file = parts.next().unwrap_or_default();
    let folder = parts.find(|part| *part != "src").unwrap_or_default();
    match file {
        "mod.rs" | "lib.rs" | "main.rs" | "README.md" => {
            folder.strip_prefix("squall-").unwrap_or(folder).to_owned()
        }
        _ => file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_lowercase(),
    }
}
