//! The tests and features that `.ci/run` names must exist.
//!
//! A filter that matches no test passes, so a renamed module would silently leave a step without tests. A
//! feature that is gone fails only in a late step, which is seldom run alone.

use std::collections::BTreeMap;

use super::manifests::packages;
use super::problems::Problems;
use super::tree::Tree;

const CI: &str = ".ci/run";

/// `ci-tests-exist`: a line of `.ci/run` that runs tests of named packages names existing ones. Each
/// `--test NAME` is a test program of one of the packages, and each filter after ` -- ` names modules or
/// functions of theirs.
pub(crate) fn ci_tests_exist(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(CI) else { return };
    let folders: BTreeMap<String, String> =
        packages(tree, problems).into_iter().map(|package| (package.name, package.folder)).collect();
    for (line, text) in text.lines().enumerate() {
        let words: Vec<&str> =
            text.split([' ', '(', ')', ';', '"']).filter(|word| !word.is_empty()).collect();
        let named =
            |flag: &'static str| words.windows(2).filter(move |pair| pair[0] == flag).map(|pair| pair[1]);
        let homes: Vec<&str> = named("-p").filter_map(|name| folders.get(name)).map(String::as_str).collect();
        let runs_tests = text.contains("test ") || text.contains("tests=(") || text.starts_with("-p ");
        if homes.is_empty() || !runs_tests || text.contains("cargo run") {
            continue;
        }
        for test in named("--test") {
            let is_program = |home: &str| {
                let paths = [format!("{home}/tests/{test}.rs"), format!("{home}/tests/{test}/main.rs")];
                paths.iter().any(|path| tree.text(path).is_some())
            };
            if !homes.iter().any(|home| is_program(home)) {
                problems.line(CI, line, format!("--test {test}: none of the packages has this test program"));
            }
        }
        let is_filter = |word: &&&str| word.chars().all(|c| c.is_alphanumeric() || "_:-".contains(c));
        let filters = words.iter().skip_while(|word| **word != "--").skip(1).take_while(is_filter);
        for filter in filters.filter(|word| !word.starts_with('-')) {
            for part in filter.split("::").filter(|part| !part.is_empty()) {
                if !homes.iter().any(|home| declares(tree, home, part)) {
                    problems.line(CI, line, format!("filter {filter}: no module or function matches {part}"));
                }
            }
        }
    }
}

/// `ci-features-exist`: each `--features LIST` of `.ci/run` names features of a package of the same line. An
/// entry `PACKAGE/FEATURE` names its package itself.
pub(crate) fn ci_features_exist(tree: &Tree, problems: &mut Problems) {
    let Some(text) = tree.text(CI) else { return };
    let packages = packages(tree, problems);
    for (line, text) in text.lines().enumerate() {
        let words: Vec<&str> = text.split([' ', '(', ')', ';']).filter(|word| !word.is_empty()).collect();
        let named =
            |flag: &'static str| words.windows(2).filter(move |pair| pair[0] == flag).map(|pair| pair[1]);
        let homes: Vec<_> =
            packages.iter().filter(|package| named("-p").any(|p| p == package.name)).collect();
        let lists = named("--features").filter(|list| !list.contains('$'));
        for feature in lists.flat_map(|list| list.split(',')) {
            let exists = match feature.split_once('/') {
                Some((name, feature)) => {
                    packages.iter().any(|package| package.name == name && package.has_feature(feature))
                }
                None => homes.iter().any(|home| home.has_feature(feature)),
            };
            if !exists {
                problems.line(
                    CI,
                    line,
                    format!("--features {feature}: none of the packages has this feature"),
                );
            }
        }
    }
}

/// Whether a file of the folder declares a module or function with a name that contains `part`.
fn declares(tree: &Tree, folder: &str, part: &str) -> bool {
    tree.rust(folder).any(|(path, _)| {
        let words = tree.text(path).unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut before = "";
        words.filter(|word| !word.is_empty()).any(|word| {
            let declared = matches!(before, "mod" | "fn") && word.contains(part);
            before = word;
            declared
        })
    })
}
