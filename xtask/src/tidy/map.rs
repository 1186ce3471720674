//! Rules that compare a document with the tree: the map of the crates, its glossary, and the list of rules.

use std::collections::BTreeSet;

use super::RULES;
use super::manifests::packages;
use super::problems::Problems;
use super::tree::Tree;

/// The map.
const MAP: &str = "ARCHITECTURE.md";
/// The rules.
const STYLE: &str = "STYLE.md";

/// `map-matches-tree`: ARCHITECTURE.md has one heading per crate and no heading for anything else. A heading
/// names its crate in back-ticks; under it stand an **Invariant** and a **Does not know**.
pub(crate) fn map_matches_tree(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(MAP) else {
        problems.file(MAP, "is missing");
        return;
    };
    let mut missing: BTreeSet<String> =
        packages(tree, problems).into_iter().map(|package| package.name).collect();
    let lines: Vec<&str> = text.lines().collect();
    for (line, heading) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("##")) {
        let names = spans(heading);
        let length = lines[line + 1..].iter().take_while(|next| !next.starts_with('#')).count();
        let section = lines[line + 1..][..length].join("\n");
        for name in names {
            if !missing.remove(name) {
                problems.line(MAP, line, format!("{name} is no crate, or has a heading already"));
            }
            for part in ["**Invariant", "**Does not know"] {
                if !section.contains(part) {
                    problems.line(MAP, line, format!("{name} has no {part}**"));
                }
            }
        }
    }
    for name in missing {
        problems.file(MAP, format!("{name} has no heading"));
    }
}

/// `glossary`: ARCHITECTURE.md has a section `## Glossary`, a list of lines `- **word**: meaning.`, each word
/// once.
pub(crate) fn glossary(tree: &Tree, problems: &mut Problems) {
    let lines: Vec<&str> = tree.text(MAP).unwrap_or_default().lines().collect();
    let Some(start) = lines.iter().position(|line| *line == "## Glossary") else {
        problems.file(MAP, "has no section ## Glossary: add one, a list of lines `- **word**: meaning.`");
        return;
    };
    let mut words = BTreeSet::new();
    let section = lines[start + 1..].iter().take_while(|line| !line.starts_with('#'));
    for (at, line) in section.enumerate().filter(|(_, line)| !line.is_empty()) {
        match entry(line) {
            Some(word) if words.insert(word) => {}
            Some(word) => problems.line(MAP, start + 1 + at, format!("{word} stands in the glossary twice")),
            // Text before the first entry introduces the list.
            None if words.is_empty() => {}
            None => problems.line(MAP, start + 1 + at, "is not one line `- **word**: meaning.`"),
        }
    }
    if words.is_empty() {
        problems.line(MAP, start, "the glossary has no entry");
    }
}

/// The word that a line of the glossary explains.
fn entry(line: &str) -> Option<&str> {
    let (word, meaning) = line.strip_prefix("- **")?.split_once("**: ")?;
    (!word.is_empty() && meaning.ends_with('.')).then_some(word)
}

/// `style-matches-tidy`: the rules marked T in STYLE.md are those that tidy checks. A rule is a line with a
/// number, the id in back-ticks and, in brackets, its marks: T, L, C or R.
pub(crate) fn style_matches_tidy(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(STYLE) else {
        problems.file(STYLE, "is missing");
        return;
    };
    let mut marked = BTreeSet::new();
    for (line, rule) in text.lines().enumerate() {
        let Some((number, rest)) = rule.split_once(". `") else { continue };
        let Some((id, rest)) = rest.split_once('`') else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let marks =
            rest.strip_prefix(" (").and_then(|rest| rest.split_once(')')).map_or("", |(marks, _)| marks);
        let marks: Vec<&str> = marks.split(", ").collect();
        if !marks.iter().all(|mark| ["T", "L", "C", "R"].contains(mark)) {
            problems.line(STYLE, line, format!("{id} has an unknown mark; known are T, L, C, R"));
        }
        if marks.contains(&"T") && !marked.insert(id) {
            problems.line(STYLE, line, format!("{id} is listed twice"));
        }
    }
    let checked: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    for id in marked.difference(&checked) {
        problems.file(STYLE, format!("{id} is marked T and not checked"));
    }
    for id in checked.difference(&marked) {
        problems.file(STYLE, format!("{id} is checked and not marked T"));
    }
}

/// The spans of a line between back-ticks.
pub(crate) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}
