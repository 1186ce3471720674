//! The import graph of a crate, and the circles in it.
//!
//! Problem: files that import each other in a circle can only be understood together. Idea: `names.rs` builds
//! the modules of a crate and the names that each binds. `edges.rs` resolves every path in a file to the file
//! that defines the item. `circles.rs` finds the strongly connected components of the graph.
//!
//! - I1. An edge leads from the file that names an item to the file that defines the item. Re-exports are
//!   followed.
//! - I2. `mod x;` adds no edge. A re-export adds an edge only if its own file uses the name.
//! - I3. Test code (`#[cfg(test)]`) adds no edge.
//!
//! Not promised: names that exist only after macro expansion, and traits that a glob imports for their
//! methods. Cost: each file is parsed once, by `syn`.

mod circles;
mod edges;
mod names;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use self::circles::{components, feedback, largest_without};
use self::edges::{Edge, Edges};
use self::names::Names;
use super::manifests::packages;
use super::problems::Problems;
use super::ratchet::{self, Count, Measure};
use super::tree::Tree;
use crate::shell;

/// The most files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 5;
/// The crate with wings, and its wings: folders of `src` that may not form any circle.
const WINGED: (&str, &[&str]) = ("squall-core", &["protocol", "object", "call", "swap", "observe"]);

/// Files in the largest circle of a crate.
const FILES: Measure = Measure { rule: "no-import-circle", name: "circle-files", unit: "files in a circle" };
/// Wings in the largest circle of wings.
const WINGS: Measure = Measure { rule: "no-import-circle", name: "circle-wings", unit: "wings in a circle" };

/// The import graph of one crate.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The folder of its sources, which messages leave out of paths.
    folder: String,
    edges: Edges,
    /// Files that could not be parsed, and why.
    unread: Vec<(String, String)>,
}

impl Graph {
    /// Builds the graph of the crate `name` with its sources in `folder`.
    fn new(tree: &Tree, name: &str, folder: &str) -> Graph {
        let mut names = Names::default();
        let own_name = name.replace('-', "_");
        for (root, _) in tree.rust(folder).filter(|(path, _)| is_root(path, folder)) {
            names.add_crate(tree, &own_name, root);
        }
        let edges = edges::edges(tree, &names);
        Graph { folder: folder.to_owned(), edges, unread: names.unread }
    }

    /// The circles of files: components of two or more, largest first.
    fn circles(&self) -> Vec<Vec<String>> {
        circles(&self.edges)
    }

    /// The circles of the folders `wings`. A file directly in `src` is a node of its own, so a circle through
    /// it is found; it does not count as a wing.
    fn circles_of_wings(&self, wings: &[&str]) -> Vec<Vec<String>> {
        let circles = circles(&self.between_folders()).into_iter();
        let wings_of = |circle: Vec<String>| circle.into_iter().filter(|node| wings.contains(&node.as_str()));
        circles
            .map(|circle| wings_of(circle).collect())
            .filter(|circle: &Vec<String>| circle.len() > 1)
            .collect()
    }

    /// The edges with each file replaced by its top folder.
    fn between_folders(&self) -> Edges {
        let mut between = Edges::new();
        for ((from, to), edge) in &self.edges {
            let pair = (self.top(from), self.top(to));
            if pair.0 != pair.1 {
                let known = between.entry(pair).or_insert_with(|| Edge { uses: 0, ..edge.clone() });
                known.uses += edge.uses;
            }
        }
        between
    }

    /// The folder of `src` with this file, or the stem of a file directly in `src`.
    fn top(&self, path: &str) -> String {
        let inner = self.short(path);
        inner.split_once('/').map_or(inner.trim_end_matches(".rs"), |(folder, _)| folder).to_owned()
    }

    /// A path without the folder of the sources.
    fn short<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&self.folder).map_or(path, |rest| rest.trim_start_matches('/'))
    }
}

/// Whether `path` is the root of a library or a program below `folder`.
fn is_root(path: &str, folder: &str) -> bool {
    let inner = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
    let program = |rest: &str| !rest.contains('/') || rest.ends_with("/main.rs");
    inner == "lib.rs" || inner == "main.rs" || inner.strip_prefix("bin/").is_some_and(program)
}

/// The components with two or more nodes, largest first.
fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let mut circles: Vec<Vec<String>> =
        components(edges.keys().map(|(from, to)| (from.as_str(), to.as_str())))
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| component.into_iter().map(str::to_owned).collect())
            .collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// `no-import-circle`: at most 5 files of a crate import each other in a circle. Wings of squall-core never
/// do.
pub(crate) fn no_import_circle(tree: &Tree, problems: &mut Problems) {
    for (measure, counts) in counts(tree, problems) {
        ratchet::check(tree, problems, measure, &counts);
    }
}

/// The sizes of the largest circles, by crate.
pub(crate) fn counts(tree: &Tree, problems: &mut Problems) -> Vec<(Measure, BTreeMap<String, Count>)> {
    let (mut files, mut wings) = (BTreeMap::new(), BTreeMap::new());
    for package in packages(tree, problems) {
        let graph = Graph::new(tree, &package.name, &format!("{}/src", package.folder));
        for (path, why) in &graph.unread {
            problems.file(path, format!("cannot be parsed: {why}"));
        }
        let circles = graph.circles();
        let count = Count::new(circles.first().map_or(0, Vec::len), CIRCLE_FILES_MAX);
        let list = circles.first().map_or(String::new(), |circle| describe(&graph, circle));
        files.insert(package.name.clone(), count.with_places(list));
        if package.name == WINGED.0 {
            let circles = graph.circles_of_wings(WINGED.1);
            let list = circles.first().map_or(String::new(), |circle| circle.join(", "));
            let count = Count::new(circles.first().map_or(0, Vec::len), 0).with_places(list);
            wings.insert(package.name.clone(), count);
        }
    }
    vec![(FILES, files), (WINGS, wings)]
}

/// The files of a circle and some edges that close it.
fn describe(graph: &Graph, circle: &[String]) -> String {
    const EDGES: usize = 3;
    let files: Vec<&str> = circle.iter().map(|path| graph.short(path)).collect();
    let mut inner = inner_edges(&graph.edges, circle);
    inner.sort_by_key(|((_, _), edge)| edge.uses);
    let edges: Vec<String> = inner
        .iter()
        .take(EDGES)
        .map(|((from, to), edge)| {
            format!("{}:{} names {} of {}", graph.short(from), edge.line, edge.path, graph.short(to))
        })
        .collect();
    format!("{}; {}; see `cargo run -p xtask -- imports`", files.join(", "), edges.join(", "))
}

/// The edges between members of a circle.
fn inner_edges<'a>(edges: &'a Edges, circle: &[String]) -> Vec<(&'a (String, String), &'a Edge)> {
    edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to)).collect()
}

/// Prints the circles of every crate, or of the crate `only`, and the edges of each.
///
/// # Errors
/// If there is no crate of that name, or a file cannot be parsed.
pub(crate) fn command(only: Option<&str>) -> Result<()> {
    let tree = Tree::read(&shell::root())?;
    let mut problems = Problems::new(FILES.rule);
    let packages: Vec<_> = packages(&tree, &mut problems)
        .into_iter()
        .filter(|package| only.is_none_or(|name| name == package.name))
        .collect();
    if packages.is_empty() {
        bail!("no crate is called {}", only.unwrap_or_default());
    }
    let mut unread = 0;
    for package in packages {
        let graph = Graph::new(&tree, &package.name, &format!("{}/src", package.folder));
        for (path, why) in &graph.unread {
            println!("{path}: cannot be parsed: {why}");
        }
        unread += graph.unread.len();
        for circle in graph.circles() {
            print_circle(&package.name, "files", &graph, &graph.edges, &circle);
        }
        if package.name == WINGED.0 {
            let between = graph.between_folders();
            for circle in circles(&between) {
                print_circle(&package.name, "folders", &graph, &between, &circle);
            }
        }
        if graph.circles().is_empty() && only.is_some() {
            println!("{}: no circle", package.name);
        }
    }
    if unread > 0 {
        bail!("{unread} files cannot be parsed");
    }
    Ok(())
}

/// Prints a circle: its members, then its edges. A small set of edges to cut comes first.
fn print_circle(name: &str, kind: &str, graph: &Graph, edges: &Edges, circle: &[String]) {
    println!("{name}: {} {kind} in a circle:", circle.len());
    for member in circle {
        println!("    {}", graph.short(member));
    }
    println!("  edges (CUT: removing all edges marked so ends the circle;");
    println!(
        "  rest: files in the largest circle after removing this edge alone; uses: places that name it):"
    );
    let inner = inner_edges(edges, circle);
    let pairs: Vec<(&str, &str)> = inner.iter().map(|((from, to), _)| (from.as_str(), to.as_str())).collect();
    let weighted: Vec<(&str, &str, usize)> =
        inner.iter().map(|((from, to), edge)| (from.as_str(), to.as_str(), edge.uses)).collect();
    let cut = feedback(&weighted);
    let mut rows: Vec<_> = inner
        .iter()
        .map(|((from, to), edge)| (largest_without(&pairs, (from, to)), edge, from, to))
        .collect();
    let is_cut = |from: &str, to: &str| cut.contains(&(from, to));
    rows.sort_by_key(|(rest, edge, from, to)| (!is_cut(from, to), *rest, edge.uses, *from, *to));
    for (rest, edge, from, to) in rows {
        let mark = if is_cut(from, to) { "CUT " } else { "    " };
        let (from, to) = (graph.short(from), graph.short(to));
        println!(
            "    {mark}rest {rest:3}, uses {:3}: {from} -> {to}: {}:{}: {}",
            edge.uses,
            graph.short(&edge.file),
            edge.line,
            edge.path
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Graph, Tree};

    /// The edges of a crate of these files, as "from -> to" with paths below `src`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files);
        assert!(graph.unread.is_empty(), "{:?}", graph.unread);
        graph.edges.keys().map(|(from, to)| format!("{} -> {}", graph.short(from), graph.short(to))).collect()
    }

    fn graph(files: &[(&str, &str)]) -> Graph {
        let files = files.iter().map(|(path, text)| (format!("c/src/{path}"), (*text).to_owned()));
        Graph::new(&Tree::new(files), "the-crate", "c/src")
    }

    #[test]
    fn an_import_leads_to_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use b::inner::Deep;\n"),
            ("a.rs", "use crate::Deep;\nuse super::b::Alias as Other;\n"),
            ("b/mod.rs", "mod inner;\npub(crate) use self::inner::Deep as Alias;\n"),
            ("b/inner.rs", "pub struct Deep;\n"),
        ];
        assert_eq!(edges(&files), ["a.rs -> b/inner.rs"]);
    }

    #[test]
    fn modules_and_unused_re_exports_are_no_edges() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\nuse crate::b;\n"),
            ("a.rs", "pub struct A;\n"),
            ("b.rs", "use super::a;\n"),
        ];
        assert_eq!(edges(&files), [""; 0]);
        let used = [("lib.rs", "mod a;\npub use a::A;\nfn f(_: A) {}\n"), ("a.rs", "pub struct A;\n")];
        assert_eq!(edges(&used), ["lib.rs -> a.rs"]);
    }

    #[test]
    fn inline_paths_and_paths_in_macros_are_edges() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub fn f() { a::go(); }\n"),
            ("a.rs", "pub fn go() { assert!(super::b::yes() && !self::no()); }\nfn no() -> bool { false }\n"),
            ("b.rs", "pub fn yes() -> bool { crate::c::C.0 }\n"),
            ("c.rs", "pub struct C(pub bool);\nimpl the_crate::f::X for C {}\n"),
        ];
        assert_eq!(edges(&files), ["a.rs -> b.rs", "b.rs -> c.rs", "c.rs -> lib.rs", "lib.rs -> a.rs"]);
    }

    #[test]
    fn a_path_through_an_imported_module_leads_to_its_file() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b;\nfn f() { b::c::go() }\n"),
            ("b/mod.rs", "pub mod c;\n"),
            ("b/c.rs", "pub fn go() {}\n"),
        ];
        assert_eq!(edges(&files), ["a.rs -> b/c.rs"]);
    }

    #[test]
    fn globs_lead_to_the_names_that_are_used() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::*;\nfn f(_: C) {}\n"),
            ("b.rs", "pub use crate::c::*;\npub struct B;\n"),
            ("c.rs", "pub struct C;\n"),
        ];
        assert_eq!(edges(&files), ["a.rs -> c.rs"]);
    }

    #[test]
    fn tests_add_no_edge() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod model;\n"),
            ("a.rs", "pub fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::b::g;\n}\n"),
            ("b.rs", "pub fn g() {}\n#[cfg(test)]\nuse crate::a::f;\n"),
            ("model.rs", "use crate::a::f;\n"),
        ];
        assert_eq!(edges(&files), [""; 0]);
    }

    #[test]
    fn a_macro_is_an_item_of_its_file() {
        let files = [
            ("lib.rs", "#[macro_use]\nmod m;\nmod a;\nmod b;\n"),
            ("m.rs", "macro_rules! twice { ($e:expr) => { $crate::b::go($e) }; }\n"),
            ("a.rs", "fn f() { twice!(1) }\n"),
            ("b.rs", "pub fn go(_: u8) {}\n"),
        ];
        assert_eq!(edges(&files), ["a.rs -> m.rs", "m.rs -> b.rs"]);
    }

    #[test]
    fn a_wing_takes_part_in_a_circle_through_a_file_of_the_root() {
        let files = [
            ("lib.rs", "mod call;\nmod object;\nmod error;\n"),
            ("call/mod.rs", "mod x;\n"),
            ("call/x.rs", "use crate::error::E;\npub struct X;\n"),
            ("object/mod.rs", "pub mod y;\n"),
            ("object/y.rs", "use crate::call::x::X;\npub struct Y;\n"),
            ("error.rs", "use crate::object::y::Y;\npub struct E;\n"),
        ];
        assert_eq!(graph(&files).circles_of_wings(&["call", "object"]), [["call", "object"]]);
        assert_eq!(graph(&files).circles(), [["c/src/call/x.rs", "c/src/error.rs", "c/src/object/y.rs"]]);
        assert!(graph(&files[..5]).circles_of_wings(&["call", "object"]).is_empty());
    }
}
