//! `cargo run -p xtask -- tidy`: checks the rules of STYLE.md that are marked T.
//!
//! Idea: a rule is a function from a tree of text files, in memory, to a list of problems. The examples of a
//! rule, good and bad, are small trees in `examples.rs`. The repository is one more tree.
//!
//! - I1. The rules marked T in STYLE.md are exactly those in [`RULES`]. Rule `style-matches-tidy` checks
//!   that.
//! - I2. Every rule has a tree that keeps it and one that breaks it. A test checks that.
//!
//! Not promised: that a rule understands Rust. Most rules look for words; each documents its words.
//! Source: TigerBeetle's `tidy.zig`, which also runs inside the test suite.

mod ci;
mod crates;
#[cfg(test)]
mod examples;
mod facade;
mod imports;
mod invariants;
mod manifests;
mod map;
mod mechanisms;
mod order;
mod plain;
mod problems;
mod prose;
mod ratchet;
mod shape;
mod source;
mod tree;
mod words;

use anyhow::{Result, bail};

use crate::shell;
pub(crate) use imports::command as imports_command;
use problems::{Problem, Problems};
use ratchet::{Counts, Measure};
use tree::Tree;

/// A rule.
pub(crate) struct Rule {
    /// Its id in STYLE.md.
    id: &'static str,
    /// Finds the places that break it.
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
    Rule { id: "ci-tests-exist", check: ci::ci_tests_exist },
    Rule { id: "ci-features-exist", check: ci::ci_features_exist },
    Rule { id: "no-machine-paths", check: prose::no_machine_paths },
    Rule { id: "no-leftovers", check: prose::no_leftovers },
    Rule { id: "clean-text", check: prose::clean_text },
    Rule { id: "plain-words", check: plain::plain_words },
    Rule { id: "plain-openings", check: plain::plain_openings },
    Rule { id: "comment-columns", check: plain::comment_columns },
    Rule { id: "safety-comment", check: plain::safety_comment },
    Rule { id: "glossary", check: map::glossary },
    Rule { id: "style-matches-tidy", check: map::style_matches_tidy },
    Rule { id: "examples-use-facade", check: facade::examples_use_facade },
];

/// A function that counts the violations of rules with a ratchet.
type Counter = fn(&Tree, &mut Problems) -> Vec<(Measure, Counts)>;

/// The counters of all rules with a ratchet.
const COUNTED: &[Counter] = &[imports::counts, plain::counts];

/// Options of `tidy`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write counts that have fallen into xtask/ratchet.txt, then check
    #[arg(long)]
    write: bool,
    /// List the sentences of more than 25 words, and check no rule
    #[arg(long)]
    long: bool,
}

/// Checks the repository.
///
/// # Errors
/// If a rule is broken. Every problem is printed first.
pub(crate) fn command(options: &Options) -> Result<()> {
    let root = shell::root();
    if options.long {
        plain::print_long(&Tree::read(&root)?);
        return Ok(());
    }
    if options.write {
        let tree = Tree::read(&root)?;
        let mut ignored = Problems::new("");
        let all: Vec<_> = COUNTED.iter().flat_map(|counts| counts(&tree, &mut ignored)).collect();
        ratchet::write(&tree, &root, &all)?;
    }
    let tree = Tree::read(&root)?;
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
        let mut problems = Problems::new(rule.id);
        (rule.check)(tree, &mut problems);
        all.append(&mut problems.list);
    }
    all
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
