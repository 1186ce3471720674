//! The text files of a repository, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use walkdir::{DirEntry, WalkDir};

use super::source::Source;

/// The text files of a repository, by their path from its root.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) sources: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads every text file below `root`. Build products are left out, and names that begin with a dot,
    /// except `.ci`.
    ///
    /// # Errors
    /// If a file or folder cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        let mut files = Vec::new();
        for entry in WalkDir::new(root).into_iter().filter_entry(|entry| entry.depth() == 0 || belongs(entry))
        {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            // Rules apply to text only.
            if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
                files.push((path, text));
            }
        }
        Ok(Tree::new(files))
    }

    /// A tree of these files.
    pub(crate) fn new(files: impl IntoIterator<Item = (String, String)>) -> Tree {
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
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files that people write, with their texts: all but `Cargo.lock`.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        named.filter(|(path, _)| !path.ends_with("Cargo.lock"))
    }

    /// The files of Rust below a folder, or all where `folder` is empty.
    pub(crate) fn rust<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Source)> {
        self.sources
            .iter()
            .map(|(path, source)| (path.as_str(), source))
            .filter(move |(path, _)| below(path, folder))
    }
}

/// Whether `path` lies in `folder`. Every path lies in the folder with the empty name.
pub(crate) fn below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The two files in which module `name` may lie, when the file `path` declares it.
pub(crate) fn module_files(path: &str, name: &str) -> [String; 2] {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
}

/// Whether people wrote this folder or file, and no build made it.
fn belongs(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let built = name == "target" || name.starts_with("target-");
    !built && (!name.starts_with('.') || name == ".ci")
}

/// Whether a whole file of Rust is test code, by its path.
pub(crate) fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}
