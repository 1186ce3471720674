//! Rules about whole crates: their dependencies, their use of `unsafe`, and their manifests when published.

use toml::{Table, Value};

use super::crates::{self, Unsafe};
use super::problems::Problems;
use super::source::word_positions;
use super::tree::{Tree, below};

/// A package of the tree.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The path of its manifest.
    pub(crate) manifest: String,
    /// Its folder; empty for the root.
    pub(crate) folder: String,
    table: Table,
}

impl Package {
    /// Whether the package declares this feature, or has an optional dependency of this name.
    pub(crate) fn has_feature(&self, name: &str) -> bool {
        let entry = |part: &str| self.table.get(part).and_then(|table| table.get(name));
        let optional = |dependency: &Value| dependency.get("optional").and_then(Value::as_bool) == Some(true);
        entry("features").is_some() || entry("dependencies").is_some_and(optional)
    }

    /// Whether the package may be published.
    fn published(&self) -> bool {
        self.field("publish").and_then(Value::as_bool) != Some(false)
    }

    fn field(&self, key: &str) -> Option<&Value> {
        self.table.get("package")?.get(key)
    }

    /// Whether the package has a value for this key, its own or one inherited from the workspace.
    fn says(&self, key: &str, workspace: &Table) -> bool {
        let shared = workspace.get("workspace").and_then(|w| w.get("package")).and_then(|p| p.get(key));
        match self.field(key) {
            Some(Value::Table(inherit)) => inherit.get("workspace").is_some() && shared.is_some(),
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            _ => false,
        }
    }

    /// The names of all packages that it depends on, for building, testing or one target, except for
    /// [`ALLOCATOR_FOR_TESTS`] and [`FACADE`] for examples.
    fn dependencies(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect_dependencies(&self.table, &mut names);
        for (target, table) in self.table.get("target").and_then(Value::as_table).into_iter().flatten() {
            let mut of_target = Vec::new();
            if let Some(table) = table.as_table() {
                collect_dependencies(table, &mut of_target);
            }
            of_target.retain(|name| (target.as_str(), name.as_str()) != ALLOCATOR_FOR_TESTS);
            names.append(&mut of_target);
        }
        names
    }
}

/// The dependency that every crate may name: the allocator, for the build in which all tests run on it
/// (`.ci/run global`). The first part is the target under which it is named.
const ALLOCATOR_FOR_TESTS: (&str, &str) = ("cfg(squall_global_alloc)", "squall-alloc");

/// The crate that examples in the documentation of lower crates may name. They have it as a dev-dependency
/// without a version. With a version, neither crate could be published before the other.
const FACADE: &str = "squall";

fn collect_dependencies(table: &Table, names: &mut Vec<String>) {
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (key, value) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
            let has = |part| value.get(part).is_some();
            if (kind, key.as_str()) == ("dev-dependencies", FACADE) && has("path") && !has("version") {
                continue;
            }
            let renamed = value.get("package").and_then(Value::as_str);
            names.push(renamed.unwrap_or(key).to_owned());
        }
    }
}

/// Workspaces of their own, which the main workspace does not build. The fuzzer's targets need an
/// instrumenting compiler; the others need some hundred packages each.
const OWN_WORKSPACES: [&str; 3] = ["instruments/fuzz/", "instruments/bench/programs/", "engines/"];

/// The packages of the tree. A manifest that cannot be parsed is a problem.
pub(crate) fn packages(tree: &Tree, problems: &mut Problems) -> Vec<Package> {
    let mut packages = Vec::new();
    let is_manifest = |path: &str| path == "Cargo.toml" || path.ends_with("/Cargo.toml");
    let has_own_workspace = |path: &str| OWN_WORKSPACES.iter().any(|folder| path.starts_with(folder));
    for (path, text) in tree.written().filter(|(path, _)| is_manifest(path) && !has_own_workspace(path)) {
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                problems.file(path, format!("{error}"));
                continue;
            }
        };
        let name =
            table.get("package").and_then(|p| p.get("name")).and_then(Value::as_str).map(str::to_owned);
        let folder = path.strip_suffix("Cargo.toml").unwrap_or_default().trim_end_matches('/').to_owned();
        if let Some(name) = name {
            packages.push(Package { name, manifest: path.to_owned(), folder, table });
        }
    }
    packages
}

fn workspace(tree: &Tree) -> Table {
    tree.text("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Reports the code of a package below the façade that names the façade. Examples are comments, or lie in
/// `tests/docs`.
fn only_examples_name_the_facade(tree: &Tree, package: &Package, problems: &mut Problems) {
    for (path, rust) in tree.rust(&package.folder).filter(|(path, _)| !path.contains("/tests/docs/")) {
        let names = |code: &str| {
            word_positions(code, FACADE).iter().any(|at| code[at + FACADE.len()..].starts_with("::"))
        };
        for (line, _) in rust.code.iter().enumerate().filter(|(_, code)| names(code)) {
            problems.line(path, line, format!("only examples may name {FACADE}"));
        }
    }
}

/// `depend-down`: a crate depends on crates of lower floors only.
pub(crate) fn depend_down(tree: &Tree, problems: &mut Problems) {
    for package in packages(tree, problems) {
        let Some(known) = crates::named(&package.name) else {
            problems.file(
                &package.manifest,
                format!("{} has no floor in xtask/src/tidy/crates.rs", package.name),
            );
            continue;
        };
        if crates::named(FACADE).is_some_and(|facade| known.floor < facade.floor) {
            only_examples_name_the_facade(tree, &package, problems);
        }
        for dependency in package.dependencies() {
            let Some(lower) = crates::named(&dependency) else { continue };
            if lower.floor >= known.floor {
                let (name, floor) = (&package.name, known.floor);
                problems.file(
                    &package.manifest,
                    format!("{name} on floor {floor} depends on {dependency} on floor {}", lower.floor),
                );
            }
        }
    }
}

/// `unsafe-floor`: a crate that may not use `unsafe` forbids it.
pub(crate) fn unsafe_floor(tree: &Tree, problems: &mut Problems) {
    for package in packages(tree, problems) {
        let Some(known) = crates::named(&package.name) else { continue };
        let attribute = match known.may_unsafe {
            Unsafe::Anywhere => continue,
            Unsafe::Below(_) => "#![deny(unsafe_code)]",
            Unsafe::Nowhere => "#![forbid(unsafe_code)]",
        };
        let source = if package.folder.is_empty() { "src".into() } else { format!("{}/src", package.folder) };
        for (path, rust) in tree.rust(&source) {
            let root = [format!("{source}/lib.rs"), format!("{source}/main.rs")].contains(&path.to_owned())
                || below(path, &format!("{source}/bin"));
            if root && !rust.code.iter().any(|line| line.contains(attribute)) {
                problems.file(path, format!("lacks {attribute}"));
            }
            let Unsafe::Below(places) = known.may_unsafe else { continue };
            let place = |place: &&str| format!("{}/{place}", package.folder);
            if places.iter().map(place).any(|place| path == place || below(path, &place)) {
                continue;
            }
            for (line, code) in rust.code.iter().enumerate() {
                if !word_positions(code, "unsafe").is_empty() {
                    problems.line(path, line, format!("unsafe outside of {}", places.join(", ")));
                }
            }
        }
    }
}

/// `lints-inherited`: every crate takes the workspace's lints.
pub(crate) fn lints_inherited(tree: &Tree, problems: &mut Problems) {
    for package in packages(tree, problems) {
        let inherits =
            package.table.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
        if inherits != Some(true) {
            problems.file(&package.manifest, "lacks `workspace = true` under [lints]");
        }
    }
}

/// `published-complete`: a published crate has a description, a readme, a licence, keywords and categories.
pub(crate) fn published_complete(tree: &Tree, problems: &mut Problems) {
    let workspace = workspace(tree);
    for package in packages(tree, problems) {
        if !package.published() {
            continue;
        }
        for key in ["description", "license", "keywords", "categories", "rust-version"] {
            if !package.says(key, &workspace) {
                problems.file(&package.manifest, format!("no {key}"));
            }
        }
        let readme = package.field("readme").and_then(Value::as_str);
        let path = readme.map(|name| format!("{}/{name}", package.folder));
        let text = path.as_deref().and_then(|path| tree.text(path)).unwrap_or_default();
        // A title alone is no readme.
        if text.lines().filter(|line| !line.trim().is_empty()).count() < 3 {
            problems.file(&package.manifest, "no readme of three lines or more");
        }
    }
}

/// `licences-here`: both licences lie at the root, and the manifest names both.
pub(crate) fn licences_here(tree: &Tree, problems: &mut Problems) {
    for (file, opening) in [("LICENSE-MIT", "MIT License"), ("LICENSE-APACHE", "Apache License")] {
        if !tree.text(file).is_some_and(|text| text.contains(opening)) {
            problems.file(file, format!("is not the {opening}"));
        }
    }
    let workspace = workspace(tree);
    let licence = workspace.get("workspace").and_then(|w| w.get("package")).and_then(|p| p.get("license"));
    if licence.and_then(Value::as_str) != Some("MIT OR Apache-2.0") {
        problems.file("Cargo.toml", "the workspace's licence is not MIT OR Apache-2.0");
    }
}
