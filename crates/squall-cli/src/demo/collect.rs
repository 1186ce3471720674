//! Reads a tree of files into memory once, so that later measurements do not include the disk.
//!
//! - I1. Every file is read, or skipped and counted under its reason. The demo neither fails nor waits
//!   because of a file. Links are followed only if they were named as paths. Only regular files are read.
//! - I2. All limits below hold at once. A limit that is reached is reported.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer files are skipped.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of files and folders to visit.
const ENTRIES_MAX: usize = 200_000;
/// A file with a zero byte among this many first bytes is binary, as in git.
const PROBE_BYTES: usize = 8 << 10;
/// Maximum time for reading.
const READING_MAX: Duration = Duration::from_secs(15);
/// Maximum number of skipped paths to name per reason.
const NAMED_MAX: usize = 3;
/// The file that marks a folder as reproducible, such as the output of a build.
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// First bytes of a `CACHEDIR.TAG` file.
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// A reason to skip a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// A named path that does not exist or cannot be reached.
    BadPath,
    /// The system refuses to open, list or read it.
    Unreadable,
    Binary,
    /// A device, a socket or a pipe.
    Special,
    TooLong,
    /// A symbolic link below a named path.
    Link,
    /// A folder of a version control system or of a build.
    Made,
}

impl Skip {
    pub(super) const ALL: [Skip; 7] =
        [Skip::BadPath, Skip::Unreadable, Skip::Binary, Skip::Special, Skip::TooLong, Skip::Link, Skip::Made];

    /// Returns the name of the reason, in singular and plural.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Skip::BadPath => ("bad path", "bad paths"),
            Skip::Unreadable => ("unreadable file or folder", "unreadable files or folders"),
            Skip::Binary => ("binary file", "binary files"),
            Skip::Special => ("device, socket or pipe", "devices, sockets or pipes"),
            Skip::TooLong => ("file of more than 16 MiB", "files of more than 16 MiB"),
            Skip::Link => ("symbolic link", "symbolic links"),
            Skip::Made => {
                ("folder of a build or of version control", "folders of a build or of version control")
            }
        }
    }
}

/// The paths that were skipped for one reason.
#[derive(Default)]
struct Skipped {
    count: u64,
    named: Vec<String>,
}

/// The text of a file.
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// The texts that were read, and the paths that were skipped.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) texts: Vec<Text>,
    pub(super) bytes: u64,
    /// Named paths that contributed no text.
    pub(super) fruitless: Vec<PathBuf>,
    skipped: [Skipped; Skip::ALL.len()],
    /// Limits that were reached, as sentences.
    pub(super) limits: Vec<String>,
}

impl Collected {
    fn skip(&mut self, path: &Path, why: Skip, error: Option<&io::Error>) {
        let skipped = &mut self.skipped[why as usize];
        skipped.count += 1;
        if skipped.named.len() < NAMED_MAX {
            // Paths are quoted, because a name may contain control sequences of a terminal.
            let error = error.map_or(String::new(), |error| format!(" ({error})"));
            skipped.named.push(format!("{path:?}{error}"));
        }
    }

    /// Returns the number of paths skipped for this reason.
    #[cfg(test)]
    fn count(&self, why: Skip) -> u64 {
        self.skipped[why as usize].count
    }

    /// Returns one line per reason.
    pub(super) fn complaints(&self) -> Vec<String> {
        let of = Skip::ALL.iter().map(|why| (why.name(), &self.skipped[*why as usize]));
        of.filter(|(_, skipped)| skipped.count > 0)
            .map(|((one, several), skipped)| {
                let what = if skipped.count == 1 { one } else { several };
                let more = if skipped.count > skipped.named.len() as u64 { ", ..." } else { "" };
                format!("skipped {} {what}: {}{more}", skipped.count, skipped.named.join(", "))
            })
            .collect()
    }

    fn reach(&mut self, limit: String) {
        if !self.limits.contains(&limit) {
            self.limits.push(limit);
        }
    }
}

/// Reads the texts below `paths`, at most `bytes_max` bytes in total. Each path gets an equal share, plus the
/// space that earlier paths left. `watch` receives the number of bytes read so far.
pub(super) fn collect(paths: &[PathBuf], bytes_max: u64, watch: &mut dyn FnMut(u64)) -> Collected {
    let mut collected = Collected::default();
    let mut reader = Reader { began: Instant::now(), entries: 0, is_full: false, watch };
    for (index, path) in paths.iter().enumerate() {
        let left = (paths.len() - index) as u64;
        let until = collected.bytes + bytes_max.saturating_sub(collected.bytes) / left;
        let before = collected.texts.len();
        reader.root(path, until, &mut collected);
        if collected.texts.len() == before {
            collected.fruitless.push(path.clone());
        }
    }
    collected
}

struct Reader<'a> {
    began: Instant,
    entries: usize,
    /// A file did not fit into the share of its path.
    is_full: bool,
    watch: &'a mut dyn FnMut(u64),
}

impl Reader<'_> {
    /// Reads one named path, and follows it if it is a link.
    fn root(&mut self, path: &Path, until: u64, into: &mut Collected) {
        self.is_full = false;
        match fs::metadata(path) {
            Err(error) => into.skip(path, Skip::BadPath, Some(&error)),
            Ok(found) if found.is_dir() => self.tree(path, until, into),
            // A device is not even opened, because opening it may have an effect.
            Ok(found) if !found.is_file() => into.skip(path, Skip::Special, None),
            Ok(_) if self.may_go_on(into) => self.file(path, path, until, into),
            Ok(_) => {}
        }
    }

    /// Reads a tree breadth first, sorted by name, so that two runs read the same texts.
    fn tree(&mut self, root: &Path, until: u64, into: &mut Collected) {
        let mut folders = VecDeque::from([root.to_owned()]);
        while let Some(folder) = folders.pop_front() {
            let entries = fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut entries = match entries {
                Ok(entries) => entries,
                Err(error) => {
                    into.skip(&folder, Skip::Unreadable, Some(&error));
                    continue;
                }
            };
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                if !self.may_go_on(into) {
                    return;
                }
                let path = entry.path();
                match entry.file_type() {
                    Err(error) => into.skip(&path, Skip::Unreadable, Some(&error)),
                    Ok(kind) if kind.is_symlink() => into.skip(&path, Skip::Link, None),
                    Ok(kind) if kind.is_dir() && is_made(&path) => into.skip(&path, Skip::Made, None),
                    Ok(kind) if kind.is_dir() => folders.push_back(path),
                    Ok(kind) if kind.is_file() => self.file(root, &path, until, into),
                    Ok(_) => into.skip(&path, Skip::Special, None),
                }
            }
        }
    }

    /// Counts one more entry. Returns false if a limit is reached (I2).
    fn may_go_on(&mut self, into: &mut Collected) -> bool {
        self.entries += 1;
        (self.watch)(into.bytes);
        if self.entries > ENTRIES_MAX {
            into.reach(format!("reading stopped after {ENTRIES_MAX} files and folders"));
        } else if self.began.elapsed() > READING_MAX {
            into.reach(format!("reading stopped after {} s", READING_MAX.as_secs()));
        } else {
            return !self.is_full;
        }
        false
    }

    /// Reads one file: `root` itself or a file below it.
    fn file(&mut self, root: &Path, path: &Path, until: u64, into: &mut Collected) {
        match read(path) {
            Err(error) => into.skip(path, Skip::Unreadable, Some(&error)),
            Ok(Err(why)) => into.skip(path, why, None),
            Ok(Ok(text)) if into.bytes + text.len() as u64 > until => {
                self.is_full = true;
                into.reach(format!("{root:?} holds more text than its share of the memory"));
            }
            Ok(Ok(text)) => {
                into.bytes += text.len() as u64;
                into.texts.push(Text { path: path.to_owned(), bytes: text });
            }
        }
    }
}

/// Returns whether the content of this folder can be generated again.
fn is_made(folder: &Path) -> bool {
    let tagged = || {
        let mut start = Vec::new();
        let tag = File::open(folder.join(CACHE_TAG)).ok()?;
        tag.take(CACHE_SIGNATURE.len() as u64).read_to_end(&mut start).ok()?;
        Some(start == CACHE_SIGNATURE)
    };
    folder.file_name().is_some_and(|name| name == ".git") || tagged() == Some(true)
}

/// Returns the text of a regular file, or the reason to skip it.
fn read(path: &Path) -> io::Result<Result<Vec<u8>, Skip>> {
    // Opened without blocking: a pipe may have no writer, and some files of the kernel have no data yet.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(Err(Skip::Special));
    }
    if found.len() > FILE_BYTES_MAX {
        return Ok(Err(Skip::TooLong));
    }
    let mut text = Vec::new();
    // The file may have grown, or may be a file of the kernel without a length. So the limit is checked
    // twice.
    let mut rest = file.take(FILE_BYTES_MAX + 1);
    rest.by_ref().take(PROBE_BYTES as u64).read_to_end(&mut text)?;
    if text.contains(&0) {
        return Ok(Err(Skip::Binary));
    }
    rest.read_to_end(&mut text)?;
    Ok(if text.len() as u64 > FILE_BYTES_MAX { Err(Skip::TooLong) } else { Ok(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_or_skipped_with_a_reason() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let paths = [here.join("src/demo"), here.join("no such path"), PathBuf::from("/dev/null")];
        let collected = collect(&paths, 64 << 20, &mut |_| {});
        let files = |folder: &str| {
            let found =
                fs::read_dir(here.join(folder)).expect("a folder").map(|entry| entry.expect("an entry"));
            found.filter(|entry| entry.path().is_file()).count()
        };
        let folders = ["", "/count", "/index", "/story", "/tsp"];
        let own: usize = folders.iter().map(|folder| files(&format!("src/demo{folder}"))).sum();
        assert_eq!(collected.texts.len(), own);
        assert_eq!(collected.bytes, collected.texts.iter().map(|text| text.bytes.len() as u64).sum::<u64>());
        assert_eq!(collected.count(Skip::BadPath), 1);
        assert_eq!(collected.count(Skip::Special), 1);
        assert_eq!(collected.fruitless, paths[1..]);
        let complaints = collected.complaints();
        assert!(
            complaints[0].starts_with("skipped 1 bad path: \"") && complaints.len() == 2,
            "{complaints:?}"
        );
    }

    #[test]
    fn a_budget_is_kept_and_reported() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let collected = collect(&[here], 4_000, &mut |_| {});
        assert!(collected.bytes <= 4_000);
        assert!(!collected.limits.is_empty());
    }
}
