//! `cargo run -p xtask -- tidy`: the rules of STYLE.md that are marked T, checked by a machine.
//!
//! Idea: a rule is a function from the tree of text files to a list of problems. It sees the tree in memory, so that
//! its examples, good and bad, are small trees written down in `examples.rs`; the repository is one more tree.
//!
//! - I1. The rules marked T in STYLE.md are exactly those in [`RULES`]; rule `style-matches-tidy` sees to it.
//! - I2. Every rule has a tree that keeps it and one that breaks it; a test sees to it.
//!
//! Not promised: that a rule understands Rust. They look for words, and each says what it looks for.
//! Source: TigerBeetle's `tidy.zig`, which runs inside the test suite as this does.

mod crates;
#[cfg(test)]
mod examples;
mod imports;
mod invariants;
mod manifests;
mod map;
mod mechanisms;
mod order;
mod prose;
mod ratchet;
mod shape;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use walkdir::{DirEntry, WalkDir};

use crate::shell;
pub(crate) use imports::command as imports_command;
use source::Source;

/// A rule.
pub(crate) struct Rule {
    /// Its id in STYLE.md.
    id: &'static str,
    /// Finds what breaks it.
    check: fn(&Tree, &mut Problems),
}

/// All rules, in the order of STYLE.md.
const RULES: &[Rule] = &[
    Rule { id: "depend-down", check: manifests::depend_down },
    Rule { id: "map-matches-tree", check: map::map_matches_tree },
    Rule { id: "one-concept-file", check: shape::one_concept_file },
    Rule { id: "short-functions", check: shape::short_functions },
    Rule { id: "header-essay", check: shape::header_essay },
    Rule { id: "numbered-invariants", check: invariants::numbered_invariants },
    Rule { id: "ordering-names-partner", check: order::ordering_names_partner },
    Rule { id: "one-sync-door", check: order::one_sync_door },
    Rule { id: "unsafe-floor", check: manifests::unsafe_floor },
    Rule { id: "owned-fd", check: order::owned_fd },
    Rule { id: "no-import-circle", check: imports::no_import_circle },
    Rule { id: "lints-inherited", check: manifests::lints_inherited },
    Rule { id: "published-complete", check: manifests::published_complete },
    Rule { id: "licences-here", check: manifests::licences_here },
    Rule { id: "no-ignored-doctest", check: prose::no_ignored_doctest },
    Rule { id: "mechanisms-tested", check: mechanisms::mechanisms_tested },
    Rule { id: "no-machine-paths", check: prose::no_machine_paths },
    Rule { id: "no-leftovers", check: prose::no_leftovers },
    Rule { id: "clean-text", check: prose::clean_text },
    Rule { id: "style-matches-tidy", check: map::style_matches_tidy },
];

/// Checks the repository.
///
/// # Errors
/// When a rule is broken, after every problem was printed.
pub(crate) fn command() -> Result<()> {
    let tree = Tree::read(&shell::root())?;
    let problems = check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    println!("tidy: {} rules hold in {} files", RULES.len(), tree.files.len());
    Ok(())
}

/// All problems of a tree.
fn check(tree: &Tree) -> Vec<Problem> {
    let mut all = Vec::new();
    for rule in RULES {
        let mut problems = Problems { rule: rule.id, list: Vec::new() };
        (rule.check)(tree, &mut problems);
        all.append(&mut problems.list);
    }
    all
}

/// One place where a rule is broken.
#[derive(Debug)]
pub(crate) struct Problem {
    rule: &'static str,
    path: String,
    /// From 1; 0 stands for the file as a whole.
    line: usize,
    text: String,
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

/// The problems that one rule finds.
#[derive(Debug)]
pub(crate) struct Problems {
    rule: &'static str,
    list: Vec<Problem>,
}

impl Problems {
    /// Notes a problem of a file as a whole.
    fn file(&mut self, path: &str, text: impl Into<String>) {
        self.list.push(Problem { rule: self.rule, path: path.to_owned(), line: 0, text: text.into() });
    }

    /// Notes a problem of a line, counted from 0.
    fn line(&mut self, path: &str, line: usize, text: impl Into<String>) {
        self.list.push(Problem { rule: self.rule, path: path.to_owned(), line: line + 1, text: text.into() });
    }
}

/// The text files of a repository, by their path from its root.
#[derive(Debug)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    sources: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads every text file below `root` but what is built and what begins with a dot (`.ci` excepted).
    ///
    /// # Errors
    /// When a file or folder cannot be read.
    fn read(root: &Path) -> Result<Tree> {
        let mut files = Vec::new();
        for entry in WalkDir::new(root).into_iter().filter_entry(|entry| entry.depth() == 0 || belongs(entry))
        {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            // What is not text has no rule.
            if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
                files.push((path, text));
            }
        }
        Ok(Tree::new(files))
    }

    /// A tree of these files.
    fn new(files: impl IntoIterator<Item = (String, String)>) -> Tree {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
        let mut sources: BTreeMap<String, Source> =
            rust.map(|(path, text)| (path.clone(), Source::new(text, is_test(path)))).collect();
        let tests: Vec<String> = sources
            .iter()
            .flat_map(|(path, source)| {
                source.test_modules().into_iter().flat_map(|name| module_files(path, name))
            })
            .collect();
        for path in tests {
            if let Some(text) = files.get(&path) {
                sources.insert(path, Source::new(text, true));
            }
        }
        Tree { files, sources }
    }

    /// The text of a file.
    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files that people write, and their text: everything but `Cargo.lock`.
    fn written(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        named.filter(|(path, _)| !path.ends_with("Cargo.lock"))
    }

    /// The files of Rust below a folder, or all where `folder` is empty.
    fn rust<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Source)> {
        self.sources
            .iter()
            .map(|(path, source)| (path.as_str(), source))
            .filter(move |(path, _)| below(path, folder))
    }
}

/// Whether `path` lies in `folder`; everything lies in the folder without a name.
fn below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The two files in which module `name` may lie, when the file `path` declares it.
fn module_files(path: &str, name: &str) -> [String; 2] {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
}

/// Whether a folder or file is part of the repository as people write it.
fn belongs(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let built = name == "target" || name.starts_with("target-");
    !built && (!name.starts_with('.') || name == ".ci")
}

/// Whether a file of Rust is a test as a whole.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};
    use crate::shell;

    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::read(&shell::root()).unwrap();
        let problems: String = check(&tree).iter().map(|problem| format!("{problem}\n")).collect();
        assert!(problems.is_empty(), "\n{problems}");
    }

    #[test]
    fn the_tree_holds_what_people_write_and_nothing_built() {
        let tree = Tree::read(&shell::root()).unwrap();
        assert!(tree.text("xtask/src/tidy/mod.rs").is_some());
        assert!(tree.text(".ci/run").is_some());
        assert!(tree.files.keys().all(|path| !path.starts_with("target") && !path.starts_with(".git")));
    }
}
