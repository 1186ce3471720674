//! `squall demo` tells its story in words that a newcomer knows. On trees with every kind of file, texts are
//! indexed and counted exactly, other files are named and skipped, and no file makes it panic.

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
        for run in [count, index] {
            let output = run(paths, &[]);
            assert!(!output.status.success(), "{paths:?}: {}", stdout(&output));
            assert!(stderr(&output).contains("there is no text to read"), "{}", stderr(&output));
        }
    }
}

#[test]
fn empty_files_and_files_without_words_are_named() {
    let folder = Folder::new("empty");
    let (one, two) = (folder.write("one", ""), folder.write("two", ""));
    let dots = folder.write("dots", "... --- ...\n");
    for (paths, clue) in [
        (&[one.as_path()][..], "there is no text to read: the only file is empty"),
        (&[&one, &two], "there is no text to read: all 2 files are empty"),
    ] {
        for run in [count, index] {
            let output = run(paths, &[]);
            assert!(!output.status.success() && output.stdout.is_empty(), "{}", stdout(&output));
            assert!(stderr(&output).contains(clue), "{}", stderr(&output));
        }
    }
    let output = index(&[&dots, &one], &[]);
    assert!(!output.status.success() && !stdout(&output).contains("index in"), "{}", stdout(&output));
    assert!(stderr(&output).contains("there is no word to index in 2 texts"), "{}", stderr(&output));
}

/// Words of the glossary. A reader of the story does not know them.
const GLOSSARY: [&str; 8] =
    ["representative", "quiescence", "mediator", "clustered", "miss handler", "epoch", "sensor", "arbiter"];
const PHASES: [&str; 4] = ["one writer", "many writers", "mostly reads", "idle"];
const STORES: [&str; 5] = [
    "Mutex<HashMap>",
    "RwLock<HashMap>",
    "dashmap, AtomicU64",
    "scc::HashMap, AtomicU64",
    "Squall, adaptive",
];

/// Checks a whole story on a pipe.
#[track_caller]
fn is_a_story(output: &Output, mode: &str) {
    let (said, complaint) = (stdout(output), stderr(output));
    assert!(output.status.success(), "{mode}: {said}\n{complaint}");
    // On a busy machine, a debug build may report a call that took long on stderr.
    assert!(!complaint.contains("panicked"), "{mode}: {complaint}");
    assert!(!said.contains('\u{1b}') && !complaint.contains('\u{1b}'), "{mode}: {said}\n{complaint}");
    let parts: Vec<&str> = said.split("\nPhase ").collect();
    assert_eq!(parts.len(), PHASES.len() + 1, "{mode}: {said}");
    for ((number, phase), part) in (1..).zip(PHASES).zip(&parts[1..]) {
        assert!(part.starts_with(&format!("{number} of 4: {phase}. ")), "{mode}: {part}");
        // Each object has changed or has stayed, and the text says why.
        for object in ["he map \"hits by page\" ", "he counter \"total hits\" "] {
            assert!(part.contains(object), "{mode}: nothing of {object} in {part}");
        }
    }
    for part in &parts[1..4] {
        for store in STORES {
            let row = part.lines().find(|line| line.trim_start().starts_with(store));
            assert!(row.is_some_and(|row| row.contains(" ns")), "{mode}: no {store} in {part}");
        }
        // The fastest row is marked, and a sentence names it unless two are equally fast.
        let fastest = part.lines().find_map(|line| line.strip_suffix("  fastest")).expect("a fastest row");
        let name =
            STORES.into_iter().find(|store| fastest.trim_start().starts_with(store)).expect("its name");
        let name = if name.starts_with("Squall") { "Squall" } else { name };
        assert!(
            part.contains(&format!("  {name} wins: ")) || part.contains(" the same time, "),
            "{mode}: {part}"
        );
    }
    for text in [
        "threads run on",
        "median",
        "Each row counted every hit",
        "What to try next",
        "demo index",
        "GUIDE.md",
    ] {
        assert!(said.contains(text), "{mode}: no {text} in {said}");
    }
    let lower = said.to_lowercase();
    assert!(GLOSSARY.iter().all(|word| !lower.contains(word)), "{mode}: {said}");
}

/// Environment variables of the story's tests.
const MODES: [&[(&str, &str)]; 4] = [
    &[],
    &[("SQUALL_ADAPT", "off")],
    &[("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off")],
    &[("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2")],
];

#[test]
fn the_story_is_told_on_a_pipe_in_every_mode() {
    // Run in parallel, because each demo mostly waits for its phases to end.
    thread::scope(|scope| {
        for modes in MODES {
            scope.spawn(move || {
                let output = run(squall().args(["demo", "--quick"]).envs(modes.iter().copied()));
                is_a_story(&output, &format!("{modes:?}"));
                let said = stdout(&output);
                // It serves no inspection and waits for no key.
                assert!(!said.contains("Enter") && !said.contains("To watch the objects"), "{said}");
                let is_off = modes.contains(&("SQUALL_ADAPT", "off"));
                assert_eq!(said.contains("SQUALL_ADAPT switches the engine off"), is_off, "{said}");
            });
        }
    });
}

#[test]
fn the_story_serves_inspection_if_asked() {
    let mut command = squall();
    command.args(["demo", "--serve", "--threads", "2"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary was built with this test");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let advice = format!("top {}", child.id());
    let advised = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with(&advice));
    let mut client = Client::connect(&Target::Process(child.id()));
    let hello = client.as_mut().ok().map(Client::hello);
    // The first phase has begun, so the objects are there.
    let began = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("Phase 1"));
    let names = client.as_mut().ok().and_then(|client| client.list(&Default::default()).ok()).map(|list| {
        let names: Vec<String> = list.objects.into_iter().filter_map(|object| object.name).collect();
        names
    });
    // The whole story takes a minute. The rest of it is not needed.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(advised && began);
    assert_eq!(hello.expect("it serves").expect("it answers").pid, child.id());
    let names = names.expect("it lists its objects");
    assert!(["hits by page", "total hits"].iter().all(|name| names.iter().any(|it| it == name)), "{names:?}");
}
