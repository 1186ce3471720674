//! Examples in the documentation of the libraries: they compile in a program that depends on `squall` alone.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Captures, Regex};
use syn::{Item, UseTree};

use super::problems::Problems;
use super::tree::{Tree, below};
use super::words::example_lines;

/// The façade's root, with its re-exports.
const FACADE: &str = "crates/squall/src/lib.rs";

/// The items of one crate that the façade re-exports.
#[derive(Default)]
struct Exports {
    /// Items at the root of the façade.
    root: BTreeSet<String>,
    /// The module of the façade that has every item.
    module: Option<String>,
}

/// `examples-use-facade`: an example names no other crate of Squall where `squall` re-exports the item.
pub(crate) fn examples_use_facade(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(FACADE) else { return };
    let exports = match syn::parse_file(text) {
        Ok(file) => exports(&file.items),
        Err(error) => {
            problems.file(FACADE, format!("cannot be parsed: {error}"));
            return;
        }
    };
    let path = Regex::new(r"\b(squall_[a-z]+)::(\{[^}]*|\w+)").expect("a pattern");
    let libraries: Vec<String> =
        exports.keys().map(|name| format!("crates/{}", name.replace('_', "-"))).collect();
    let has_examples = |path: &str| {
        (path.ends_with(".rs") || path.ends_with(".md")) && libraries.iter().any(|folder| below(path, folder))
    };
    for (file, text) in tree.written().filter(|(path, _)| has_examples(path)) {
        for (line, example) in example_lines(file, text) {
            for found in path.captures_iter(example) {
                if let Some(better) = exports.get(&found[1]).and_then(|exports| exports.path(&found)) {
                    problems.line(file, line, format!("write {better} for {}", &found[0]));
                }
            }
        }
    }
}

impl Exports {
    /// The façade's path of the first name of `found` that the façade has, if there is one. `found` is
    /// a match of a crate, with a name or with the names after a brace.
    fn path(&self, found: &Captures<'_>) -> Option<String> {
        let names = found[2].trim_start_matches('{').split(',');
        let mut names = names.filter_map(|name| name.trim().split("::").next());
        if let Some(name) = names.clone().find(|name| self.root.contains(*name)) {
            return Some(format!("squall::{name}"));
        }
        Some(format!("squall::{}::{}", self.module.as_ref()?, names.next()?))
    }
}

/// The re-exports of the façade, by crate: `pub use squall_x::{..}` at the root, and `pub use squall_x::*` in
/// a module.
fn exports(items: &[Item]) -> BTreeMap<String, Exports> {
    let mut exports: BTreeMap<String, Exports> = BTreeMap::new();
    for item in items {
        match item {
            Item::Use(item) => {
                if let UseTree::Path(path) = &item.tree {
                    let root = &mut exports.entry(path.ident.to_string()).or_default().root;
                    add_names(&path.tree, root);
                }
            }
            Item::Mod(module) => {
                for item in module.content.iter().flat_map(|(_, items)| items) {
                    if let Item::Use(item) = item
                        && let UseTree::Path(path) = &item.tree
                        && let UseTree::Glob(_) = *path.tree
                    {
                        let exports = exports.entry(path.ident.to_string()).or_default();
                        exports.module = Some(module.ident.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    exports
}

/// Adds the names that a `use` ends in. A path of several parts is left out: the module of its crate has it.
fn add_names(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Name(name) => {
            names.insert(name.ident.to_string());
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_names(tree, names)),
        _ => {}
    }
}
