//! Trees of `/sys` and `/proc` as found on very different machines, and a directory to unpack one into.
//!
//! The `.tree` files follow the reports of such machines. They contain the files that make a topology, and a
//! few that must not disturb it. One line is one file, `path = content`; a repeated path adds a line to that
//! file. A path that ends in `/` is a directory; `#` begins a comment. Braces in a path hold a list of
//! numbers and stand for one file each: in the content `{i}` is the number and `{}` the list. `{0-3&+4}` is
//! short for the lists `0,4`, `1,5`, `2,6`, `3,7`.

#![cfg(not(miri))] // Files and processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use squall_machine::topology::{Reader, Topology};
use squall_machine::{Machine, VpSet};

/// Lists all trees, by name.
pub(crate) fn all() -> Vec<String> {
    let entries = fs::read_dir(home()).unwrap();
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".tree")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() >= 16, "tests/trees has too few .tree files: {names:?}");
    names
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees")
}

/// A directory of the test's own, removed when it is dropped.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Creates an empty directory.
    pub(crate) fn empty() -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tree-{}-{number}", std::process::id());
        // In memory if possible, because a tree has thousands of files.
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        let root = place.join(format!("squall-{name}"));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Tree { root }
    }

    /// Creates a directory with a machine in it.
    pub(crate) fn of(name: &str) -> Tree {
        let tree = Tree::empty();
        tree.unpack(name);
        tree
    }

    /// Replaces the machine by another.
    pub(crate) fn become_machine(&self, name: &str) {
        fs::remove_dir_all(&self.root).unwrap();
        self.unpack(name);
    }

    fn unpack(&self, name: &str) {
        let file = home().join(name).with_extension("tree");
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            for (path, content) in expand(line) {
                let file = files.entry(path).or_default();
                file.push_str(&content);
                file.push('\n');
            }
        }
        let mut made = String::new();
        for (path, content) in files {
            let directory = path.rsplit_once('/').unwrap().0;
            if directory != made {
                fs::create_dir_all(self.root.join(directory)).unwrap();
                made = directory.to_owned();
            }
            if !path.ends_with('/') {
                fs::write(self.root.join(path), content).unwrap();
            }
        }
    }

    /// Writes a file and replaces the old one in one step, for concurrent readers.
    pub(crate) fn put(&self, path: &str, content: &str) {
        let file = self.root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let staged = self.root.join("staged");
        fs::write(&staged, format!("{content}\n")).unwrap();
        fs::rename(staged, file).unwrap();
    }

    /// Removes a file or directory, if it exists.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.root.join(path);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::at(&self.root)
    }

    pub(crate) fn topology(&self) -> Topology {
        self.reader().topology().unwrap()
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::read(self.reader())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Expands a line to files with their contents.
fn expand(line: &str) -> Vec<(String, String)> {
    let (path, content) = line.split_once(" =").map_or((line, ""), |(p, c)| (p, c.trim_start()));
    let Some((before, rest)) = path.split_once('{') else {
        return vec![(path.to_owned(), content.to_owned())];
    };
    let (list, after) = rest.split_once('}').unwrap();
    let numbers = |list: &str| -> Vec<usize> {
        list.parse::<VpSet>().unwrap().iter().map(squall_machine::Vp::index).collect()
    };
    let sets: Vec<Vec<usize>> = match list.split_once("&+") {
        Some((list, step)) => {
            let step: usize = step.parse().unwrap();
            numbers(list).into_iter().map(|n| vec![n, n + step]).collect()
        }
        None => vec![numbers(list)],
    };
    let one = |n: &usize, set: &[usize]| {
        let all: Vec<String> = set.iter().map(usize::to_string).collect();
        let all: VpSet = all.join(",").parse().unwrap();
        let content = content.replace("{i}", &n.to_string()).replace("{}", &all.to_string());
        (format!("{before}{n}{after}"), content)
    };
    sets.iter().flat_map(|set| set.iter().map(|n| one(n, set)).collect::<Vec<_>>()).collect()
}
