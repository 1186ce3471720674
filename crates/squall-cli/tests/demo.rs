//! `squall demo` on trees of every kind of file: what is text is counted exactly, what is not is named and skipped, and
//! nothing makes it panic.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{run, squall, stderr, stdout};

/// A folder that is deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn demo(paths: &[&Path], more: &[&str]) -> Output {
    run(squall().arg("demo").args(paths).args(more))
}

/// Counts as the demo says it does, by itself.
fn totals(texts: &[&[u8]]) -> String {
    let space = |byte: &u8| b" \t\n\x0b\x0c\r".contains(byte);
    let lines: Vec<&[u8]> =
        texts.iter().flat_map(|text| text.split_inclusive(|&byte| byte == b'\n')).collect();
    let words = texts.iter().flat_map(|text| text.split(space)).filter(|word| !word.is_empty()).count();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    let longest = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let (files, lines) = (texts.len(), lines.len());
    format!("Totals: files {files}, lines {lines}, words {words}, bytes {bytes}, longest line {longest}.")
}

#[track_caller]
fn agrees(output: &Output, texts: &[&[u8]]) {
    let (said, complaint) = (stdout(output), stderr(output));
    assert!(output.status.success(), "{said}\n{complaint}");
    assert!(said.contains(&totals(texts)), "{} is not in\n{said}", totals(texts));
    assert!(said.contains("All totals agree exactly"), "{said}");
    assert!(!said.contains("DIFFER") && !complaint.contains("panicked"), "{said}\n{complaint}");
    let rows = ["nobody", "Mutex", "atomics", "Squall, shared", "Squall, distributed"];
    for row in rows {
        let found = said.lines().find(|line| line.contains(row) && line.trim_end().ends_with("agree"));
        assert!(found.is_some(), "no row of {row} in\n{said}");
    }
}

#[test]
fn a_tree_of_every_kind_of_file_is_counted_or_named() {
    let folder = Folder::new("kinds");
    let text = "one two  three\n\n\tfour\r\nfive".as_bytes();
    let latin = b"caf\xe9 cr\xe8me\n\xff\xfe\n";
    let long = "word ".repeat(20_000);
    folder.write("text.txt", text);
    folder.write("below/latin.txt", latin);
    folder.write("below/deep/er/long.txt", &long);
    folder.write("empty", "");
    folder.write("binary.bin", b"text, and then\0binary");
    folder.write(".git/config", "not read");
    folder.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    folder.write("target/made.txt", "not read either");
    symlink("loop", folder.0.join("loop")).expect("a link to itself");
    symlink("..", folder.0.join("below/up")).expect("a link upwards");
    let _socket = UnixListener::bind(folder.0.join("socket")).ok();
    let locked = folder.write("locked.txt", "nobody may read this");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("its owner may");
    // The superuser may read it all the same.
    let readable = fs::File::open(&locked).is_ok();
    let (missing, memory) = (folder.0.join("missing"), Path::new("/proc/self/mem"));

    let output = demo(&[&folder.0, &missing, &folder.0.join("loop"), memory], &["--threads", "3"]);
    let mut texts: Vec<&[u8]> = vec![text, latin, long.as_bytes(), b""];
    texts.extend(readable.then_some(b"nobody may read this".as_slice()));
    agrees(&output, &texts);
    let complaint = stderr(&output);
    for expected in [
        "skipped 2 bad paths: ",
        "missing\" (No such file",
        "skipped 1 binary file: ",
        "skipped 2 symbolic links: ",
        "skipped 2 folders of a build or of version control: ",
        "/proc/self/mem",
    ] {
        assert!(complaint.contains(expected), "{expected} is not in\n{complaint}");
    }
    let unreadable = if readable {
        "skipped 1 unreadable file or folder"
    } else {
        "skipped 2 unreadable files or folders"
    };
    assert!(complaint.contains(unreadable), "{complaint}");
    // Rows of three threads, and nothing of a progress bar where there is no terminal.
    assert!(!complaint.contains('\u{1b}'), "{complaint}");
}

#[test]
fn a_budget_is_kept_and_said() {
    let folder = Folder::new("budget");
    let half = "a line of text\n".repeat(40_000);
    let names = ["a.txt", "b.txt", "c.txt"];
    names.iter().for_each(|name| drop(folder.write(name, &half)));
    let output = demo(&[&folder.0], &["--mib", "1"]);
    agrees(&output, &[half.as_bytes()]);
    assert!(stdout(&output).contains("holds more"), "{}", stdout(&output));
}

#[test]
fn nothing_to_read_is_an_error() {
    let folder = Folder::new("nothing");
    folder.write("binary", b"\0");
    for paths in [&[folder.0.as_path()][..], &[Path::new("/no/such/path")], &[Path::new("/dev/null")]] {
        let output = demo(paths, &[]);
        assert!(!output.status.success(), "{paths:?}: {}", stdout(&output));
        assert!(stderr(&output).contains("there is no text to read"), "{}", stderr(&output));
    }
}

#[test]
fn it_agrees_in_every_mode() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, value) in [
        ("SQUALL_RSEQ", "off"),
        ("SQUALL_MEMBARRIER", "off"),
        ("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2"),
    ] {
        let output = run(squall().args(["demo", "--threads", "9"]).arg(here.join("src")).env(name, value));
        let said = stdout(&output);
        assert!(output.status.success(), "{name}={value}: {said}\n{}", stderr(&output));
        assert!(said.contains("All totals agree exactly"), "{name}={value}: {said}");
    }
}
