//! `squall demo` on trees with every kind of file. Texts are indexed and counted exactly, other files are
//! named and skipped, and no file makes it panic.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread;

use squall::browse::{Client, Target};

use crate::common::{run, squall, stderr, stdout};

/// A folder that is deleted on drop.
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

/// Runs the whole demo without its adaptive part.
fn demo(paths: &[&Path], more: &[&str]) -> Output {
    run(squall().args(["demo", "--seconds", "0"]).args(paths).args(more))
}

fn count(paths: &[&Path], more: &[&str]) -> Output {
    run(squall().args(["demo", "count"]).args(paths).args(more))
}

fn index(paths: &[&Path], more: &[&str]) -> Output {
    run(squall().args(["demo", "index"]).args(paths).args(more))
}

/// The rows of the comparison of maps.
const KEEPERS: [&str; 10] = [
    "one thread, std's HashMap",
    "none: reading only",
    "Mutex<HashMap>",
    "dashmap",
    "scc::HashMap",
    "Squall, one lock",
    "Squall, shared",
    "Squall, partitioned",
    "Squall, replicated",
    "Squall, adaptive",
];

/// Checks that each row of the comparison is present and reports an identical index.
#[track_caller]
fn is_identical(output: &Output) {
    let (said, complaint) = (stdout(output), stderr(output));
    assert!(output.status.success(), "{said}\n{complaint}");
    for keeper in KEEPERS {
        let verdict = if keeper.starts_with("none") { "none" } else { "identical" };
        let found = said.lines().find(|line| line.contains(keeper) && line.trim_end().ends_with(verdict));
        assert!(found.is_some(), "no row of {keeper} in\n{said}");
    }
    assert!(said.contains("and builds an identical index"), "{said}");
    assert!(said.contains("Every build of every row is identical to that of one thread"), "{said}");
    assert!(!said.contains("DIFFER") && !complaint.contains("panicked"), "{said}\n{complaint}");
}

/// Returns the words and the texts that contain them, counted independently of the demo.
fn words<'a>(texts: &[(&'a Path, &'a str)]) -> BTreeMap<String, Vec<(usize, &'a Path)>> {
    let mut all: BTreeMap<String, Vec<(usize, &Path)>> = BTreeMap::new();
    for (path, text) in texts {
        let mut own: BTreeMap<String, usize> = BTreeMap::new();
        let mut word = String::new();
        for letter in text.chars().chain([' ']) {
            if letter.is_alphanumeric() || letter == '_' {
                word.extend(letter.to_lowercase());
            } else if !word.is_empty() {
                *own.entry(std::mem::take(&mut word)).or_default() += 1;
            }
        }
        own.into_iter().for_each(|(word, count)| all.entry(word).or_default().push((count, path)));
    }
    all
}

/// Returns the totals line that the demo must print, counted independently.
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
    let rows =
        ["none: reading", "Mutex", "atomics", "Squall, shared", "Squall, distributed", "Squall, adaptive"];
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
    // Root can read the file nevertheless.
    let readable = fs::File::open(&locked).is_ok();
    let (missing, memory) = (folder.0.join("missing"), Path::new("/proc/self/mem"));

    let output = count(&[&folder.0, &missing, &folder.0.join("loop"), memory], &["--threads", "3"]);
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
    // No progress bar appears without a terminal.
    assert!(!complaint.contains('\u{1b}'), "{complaint}");
}

#[test]
fn a_budget_is_kept_and_reported() {
    let folder = Folder::new("budget");
    let half = "a line of text\n".repeat(40_000);
    let names = ["a.txt", "b.txt", "c.txt"];
    names.iter().for_each(|name| drop(folder.write(name, &half)));
    let output = count(&[&folder.0], &["--mib", "1"]);
    agrees(&output, &[half.as_bytes()]);
    assert!(stdout(&output).contains("holds more text"), "{}", stdout(&output));
    let output = index(&[&folder.0], &["--mib", "1", "--query", "line"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.contains("holds more text") && said.contains("\nline: in 1 of 1 texts, 40000 times\n"),
        "{said}"
    );
}

#[test]
fn an_answer_lists_the_texts_with_most_occurrences_first() {
    let folder = Folder::new("answers");
    let texts = [
        ("one.txt", "A fish, a fish: FISH!  fish_bone 42\n"),
        ("below/two.txt", "fish\r\nÜber_maß, ÜBER; über\n"),
        ("below/three", "Fish und fish; the bone's end—end"),
        ("empty", ""),
    ];
    let paths: Vec<PathBuf> = texts.iter().map(|(name, text)| folder.write(name, text)).collect();
    let texts: Vec<(&Path, &str)> =
        paths.iter().zip(texts).map(|(path, (_, text))| (&**path, text)).collect();
    let known = words(&texts);
    let mut asked: Vec<&str> = known.keys().map(String::as_str).collect();
    asked.push("no_such_word");
    let mut expected = Vec::new();
    for word in &asked {
        let Some(found) = known.get(*word) else {
            expected.push(format!("{word}: in 0 of 4 texts"));
            continue;
        };
        let mut found = found.clone();
        found.sort_by_key(|(count, path)| (std::cmp::Reverse(*count), *path));
        let times: usize = found.iter().map(|(count, _)| count).sum();
        expected.push(format!("{word}: in {} of 4 texts, {times} times", found.len()));
        expected.extend(found.iter().map(|(count, path)| format!("{count:>8}  {}", path.display())));
    }
    for threads in ["1", "5"] {
        let mut more = vec!["--threads", threads];
        asked.iter().for_each(|word| more.extend(["--query", word]));
        let output = index(&[&folder.0], &more);
        assert!(output.status.success(), "{}", stderr(&output));
        let said = stdout(&output);
        let (first, answers) = said.split_once('\n').expect("lines");
        let entries: usize = known.values().map(Vec::len).sum();
        let summary = format!("{} words and {entries} entries, identical to", known.len());
        assert!(first.starts_with("Index of 4 texts") && first.contains(&summary), "{first}");
        assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
        assert_eq!(stderr(&output), "");
    }
    // Case is ignored, and so are characters around the word.
    let output = index(&[&folder.0], &["--query", " Über_MAß? "]);
    assert!(stdout(&output).contains("\nüber_maß: in 1 of 4 texts, 1 times\n"), "{}", stdout(&output));
}

#[test]
fn an_invalid_query_is_refused() {
    let folder = Folder::new("refused");
    folder.write("text", "word");
    for (asked, clue) in
        [("two words", "2 words"), ("", "a word needs"), ("?!", "a word needs"), (&"a".repeat(300), "255")]
    {
        let output = index(&[&folder.0], &["--query", asked]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{asked}");
        assert!(stderr(&output).contains(clue), "{}", stderr(&output));
    }
    // A path that is missing or has no text: the other paths are answered, and the command fails.
    let (missing, empty) = (folder.0.join("missing"), folder.0.join("empty"));
    fs::create_dir(&empty).expect("a folder");
    for (path, complaints) in [(&missing, 2), (&empty, 1)] {
        let output = index(&[path, &folder.0], &["--query", "word"]);
        assert!(!output.status.success());
        assert!(stdout(&output).contains("\nword: in 1 of 1 texts, 1 times\n"), "{}", stdout(&output));
        let complaint = stderr(&output);
        assert!(
            complaint.contains(&format!("1 of the paths contributed no text, such as {path:?}")),
            "{complaint}"
        );
        assert_eq!(complaint.lines().count(), complaints, "{complaint}");
    }
    let output = index(&[&missing], &["--query", "word"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(stderr(&output).contains("there is no text to read"), "{}", stderr(&output));
}

#[test]
fn without_a_query_only_the_comparison_runs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let output = index(&[&here], &["--threads", "3"]);
    is_identical(&output);
    let said = stdout(&output);
    assert!(said.contains("3 threads build a word index of") && said.contains("One thread builds"), "{said}");
    assert!(said.contains("All threads look up words") && !said.contains("adaptive counters"), "{said}");
    assert!(!stderr(&output).contains('\u{1b}'), "{}", stderr(&output));
}

#[test]
fn nothing_to_read_is_an_error() {
    let folder = Folder::new("nothing");
    folder.write("binary", b"\0");
    for paths in [&[folder.0.as_path()][..], &[Path::new("/no/such/path")], &[Path::new("/dev/null")]] {
        for run in [demo, count, index] {
            let output = run(paths, &[]);
            assert!(!output.status.success(), "{paths:?}: {}", stdout(&output));
            assert!(stderr(&output).contains("there is no text to read"), "{}", stderr(&output));
        }
    }
}

#[test]
fn the_demo_agrees_in_every_mode() {
    // Run in parallel, because each demo mostly waits for its phases to end.
    thread::scope(|scope| {
        for (name, value) in [
            ("SQUALL_ADAPT", "off"),
            ("SQUALL_RSEQ", "off"),
            ("SQUALL_MEMBARRIER", "off"),
            ("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2"),
        ] {
            scope.spawn(move || agrees_with(name, value));
        }
    });
}

fn agrees_with(name: &str, value: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = squall();
    command.args(["demo", "--threads", "9", "--seconds", "1"]).arg(here.join("src/demo/index"));
    let output = run(command.env(name, value));
    let said = stdout(&output);
    assert!(output.status.success(), "{name}={value}: {said}\n{}", stderr(&output));
    is_identical(&output);
    assert!(
        said.contains("they agree exactly with a single-threaded count of the same pieces"),
        "{name}={value}: {said}"
    );
    let phases =
        ["One thread reads", "All threads read", "All threads ask", "threads are idle", "words shared"];
    for phase in phases {
        assert!(said.contains(phase), "{name}={value}: no {phase} in {said}");
    }
    for part in said.split("Next, four adaptive counters") {
        let swapped = part.lines().filter(|line| line.contains(": swapped")).count();
        assert!(part.contains(&format!("After {swapped} swaps")), "{name}={value}: {swapped} in {part}");
    }
}

#[test]
fn the_demo_serves_inspection() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo");
    // Longer than the test takes. The demo is killed after the check.
    let mut command = squall();
    command.args(["demo", "--serve", "--seconds", "600", "--threads", "2"]).arg(here);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary was built with this test");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let advice = format!("squall top {}", child.id());
    let advised = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with(&advice));
    let mut client = Client::connect(&Target::Process(child.id()));
    let hello = client.as_mut().ok().map(Client::hello);
    // Waits for the four counters of the adaptive part.
    let began =
        lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("All threads read and count."));
    let swaps = client.as_mut().ok().map(|client| {
        let listed = client.list(&Default::default()).map(|list| list.objects);
        let counters =
            listed.into_iter().flatten().filter(|object| object.family.as_deref() == Some("counter"));
        let ids: Vec<String> = counters.map(|object| object.id).collect();
        // The policy, or a count of calls, may use the object at this moment.
        let set: Vec<_> = ids.iter().map(|id| client.set(id, "cooldown", "50ms")).collect();
        (ids.len(), set)
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(advised && began);
    assert_eq!(hello.expect("it serves").expect("it answers").pid, child.id());
    let (counters, set) = swaps.expect("it serves");
    assert_eq!(counters, 4, "the counters of the demo");
    assert!(set.iter().all(Result::is_ok), "{set:?}");
}

#[test]
fn a_private_demo_serves_no_inspection() {
    let nowhere = [Path::new("/no/such/path")];
    let output = demo(&nowhere, &["--private"]);
    assert!(!stdout(&output).contains("squall top"), "{}", stdout(&output));
    let output = demo(&nowhere, &[]);
    assert!(stdout(&output).contains("squall top"), "{}", stdout(&output));
}
