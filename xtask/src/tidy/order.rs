//! Rules about state that code shares with other threads and with the kernel.

use super::crates;
use super::manifests::packages;
use super::problems::Problems;
use super::source::word_positions;
use super::tree::Tree;

/// The number of lines above an ordering in which its comment may stand.
const COMMENT_LINES: usize = 6;
/// The orderings above `Relaxed`.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
/// The fences of std and of Squall.
const FENCES: &[&str] = &["fence", "compiler_fence", "light_fence", "heavy_fence", "light", "heavy"];
/// Words by which a comment names the other side of an ordering.
const PARTNER_WORDS: &[&str] =
    &["pair", "partner", "acquire", "release", "acqrel", "seqcst", "fence", "order"];

/// `ordering-names-partner`: a comment names the partner of each ordering above Relaxed and of each fence. It
/// stands on the line or within the six lines above, and contains one of [`PARTNER_WORDS`].
pub(crate) fn ordering_names_partner(tree: &Tree, problems: &mut Problems) {
    for (path, source) in tree.rust("").filter(|(path, _)| !path.starts_with("xtask/")) {
        for (line, code) in source.shipped() {
            let trimmed = code.trim_start();
            let import = trimmed.starts_with("use ") || trimmed.starts_with("pub use ") || is_list(trimmed);
            let Some(what) = promise(code).filter(|_| !import) else { continue };
            let comments = &source.comment[line.saturating_sub(COMMENT_LINES)..=line];
            let named = comments.iter().any(|comment| {
                let comment = comment.to_lowercase();
                PARTNER_WORDS.iter().any(|word| comment.contains(word))
            });
            if !named {
                problems.line(path, line, format!("{what} without a comment that names its partner"));
            }
        }
    }
}

/// The ordering or fence in a line of code.
fn promise(code: &str) -> Option<&'static str> {
    // A name before `::` is a type, not an ordering.
    let is_ordering = |word: &str, at: &usize| !code[at + word.len()..].starts_with("::");
    let ordering =
        ORDERINGS.iter().find(|word| word_positions(code, word).iter().any(|at| is_ordering(word, at)));
    let called = |word: &str| {
        word_positions(code, word).iter().any(|at| {
            let before = code[..*at].trim_end();
            code[at + word.len()..].starts_with('(') && !before.ends_with("fn") && !before.ends_with('.')
        })
    };
    ordering.or_else(|| FENCES.iter().find(|word| called(word))).copied()
}

/// Whether this line continues a list of imports: it holds names and commas only.
fn is_list(code: &str) -> bool {
    code.contains(',')
        && code.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ',' || c.is_whitespace())
}

/// `one-sync-door`: a crate that the model checker runs takes atomics, cells and threads from
/// `squall_sys::sync` alone.
pub(crate) fn one_sync_door(tree: &Tree, problems: &mut Problems) {
    for package in packages(tree, problems) {
        if !crates::named(&package.name).is_some_and(|known| known.one_door) {
            continue;
        }
        for (path, source) in tree.rust(&format!("{}/src", package.folder)) {
            for (line, code) in source.shipped() {
                if let Some(way) = other_way(code) {
                    problems.line(
                        path,
                        line,
                        format!("{way} bypasses squall_sys::sync: import it from there"),
                    );
                }
            }
        }
    }
}

/// The way in this line to an atomic, a cell or a thread that does not lead through `squall_sys::sync`.
fn other_way(code: &str) -> Option<&'static str> {
    const WAYS: &[&str] = &[
        "std::sync",
        "core::sync",
        "std::thread",
        "std::cell::UnsafeCell",
        "core::cell::UnsafeCell",
        "loom",
    ];
    let path = |way: &str, at: usize| match (way, &code[at + way.len()..]) {
        ("loom", rest) => rest.starts_with("::"),
        // `panicking` reads only the state of its own thread.
        ("std::thread", rest) => !rest.starts_with("::panicking()"),
        _ => true,
    };
    WAYS.iter().find(|way| word_positions(code, way).iter().any(|at| path(way, *at))).copied()
}

/// The file that turns the result of a system call into an `OwnedFd`, and the function that it uses.
const DESCRIPTORS: (&str, &str) = ("crates/squall-sys/src/system.rs", "from_raw_fd");

/// `owned-fd`: a descriptor is an `OwnedFd`. Code never makes one from a number, except in the file of
/// [`DESCRIPTORS`], and never closes one by hand.
pub(crate) fn owned_fd(tree: &Tree, problems: &mut Problems) {
    const BANNED: &[&str] = &["RawFd", "into_raw_fd", "from_raw_fd", "libc::close", "io::close"];
    for (path, source) in tree.rust("") {
        for (line, code) in source.shipped() {
            let banned = BANNED.iter().filter(|word| (path, **word) != DESCRIPTORS);
            for word in banned.filter(|word| !word_positions(code, word).is_empty()) {
                problems.line(path, line, format!("{word} is refused: use an OwnedFd"));
            }
        }
    }
}
