//! Parses and prints sources.

use std::path::Path;

const ROUNDS: usize = 4;

/// All sources below this folder, in the order of their paths.
pub(crate) fn sources(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// Parses and prints all sources; returns the number of bytes printed.
pub(crate) fn run(sources: Vec<String>) -> u64 {
    assert!(!sources.is_empty(), "there are no sources below this folder");
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        for source in &sources {
            if let Ok(file) = syn::parse_file(source) {
                bytes += prettyplease::unparse(&file).len() as u64;
            }
        }
    }
    bytes
}
