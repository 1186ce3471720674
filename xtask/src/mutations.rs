//! `cargo run -p xtask -- mutations`: breaks the protocols, one line at a time, and checks that a test fails.
//!
//! `mutations.toml` beside the sources lists the mutations. Each replaces a text in one file and names the
//! tests that must fail then. A test that fails or hangs kills the mutation. A mutation that no test kills
//! has `survives`, the reason; the command fails if a test kills it after all, so the list of survivors only
//! shrinks.
//!
//! The mutations are made in a copy of the files, below the folder of build products. First, the
//! tests must pass there without a mutation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use toml::Table;

use crate::shell;

/// Options of `mutations`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Make only the mutations with one of these texts in their name
    only: Vec<String>,
    /// Check the list against the sources, and run no test
    #[arg(long)]
    list: bool,
}

/// The list of mutations, below the root of the repository.
const LIST: &str = "xtask/mutations.toml";
/// A test hangs if it runs for this long, and this many times longer than without a mutation.
const HANGS_AFTER: (Duration, u32) = (Duration::from_secs(10), 5);
/// Interval between two checks of a running test.
const POLL: Duration = Duration::from_millis(20);

/// A change that breaks a protocol.
#[derive(Debug, PartialEq, Eq)]
struct Mutation {
    name: String,
    file: String,
    old: String,
    new: String,
    /// Arguments of `cargo test`.
    test: String,
    /// The reason why no test kills it.
    survives: Option<String>,
}

/// Makes the mutations and runs their tests.
///
/// # Errors
/// If the list does not fit the sources, a test fails without a mutation, or a mutation has another outcome
/// than the list says.
pub(crate) fn command(options: &Options) -> Result<()> {
    let root = shell::root();
    let mut mutations = parse(&fs::read_to_string(root.join(LIST)).context(LIST)?)?;
    let chosen = |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.contains(only));
    mutations.retain(|mutation| chosen(&mutation.name));
    ensure!(!mutations.is_empty(), "{LIST} has no such mutation");
    for mutation in &mutations {
        mutation.apply(&fs::read_to_string(root.join(&mutation.file)).context(mutation.file.clone())?)?;
    }
    if options.list {
        mutations.iter().for_each(|mutation| println!("{}", mutation.name));
        return Ok(());
    }
    let scratch = Scratch::new(&root)?;
    let mut limits = BTreeMap::new();
    for test in mutations.iter().map(|mutation| mutation.test.as_str()).collect::<BTreeSet<_>>() {
        let (outcome, took) = scratch.test(test, None)?;
        ensure!(outcome == Outcome::Passed, "without a mutation, `cargo test {test}` {}", outcome.text());
        limits.insert(test, HANGS_AFTER.0 + took * HANGS_AFTER.1);
    }
    let mut wrong = Vec::new();
    for mutation in &mutations {
        let begun = Instant::now();
        let outcome = scratch.mutate(mutation, limits[mutation.test.as_str()])?;
        let verdict = verdict(outcome, mutation.survives.as_deref());
        println!(
            "{} s, {}: {}",
            begun.elapsed().as_secs(),
            mutation.name,
            verdict.as_ref().unwrap_or_else(|why| why)
        );
        if outcome == Outcome::Failed {
            println!("    {}", reason(&fs::read_to_string(&scratch.output)?));
        }
        if verdict.is_err() {
            wrong.push(mutation.name.as_str());
        }
    }
    let survivors = mutations.iter().filter(|mutation| mutation.survives.is_some()).count();
    println!("{} mutations tried, {survivors} of them known to survive", mutations.len());
    ensure!(wrong.is_empty(), "another outcome than {LIST} says: {}", wrong.join("; "));
    Ok(())
}

/// Returns the line of a test's output that tells best why it failed: the message of the last panic.
fn reason(output: &str) -> &str {
    let after = output.rsplit_once("panicked at").map(|(_, after)| after);
    // The rest of that line is the place.
    let message = after.and_then(|after| after.lines().skip(1).find(|line| !line.trim().is_empty()));
    message.or_else(|| output.lines().find(|line| line.contains("signal:"))).unwrap_or("no panic").trim()
}

/// Compares an outcome with the list. Returns the line to print; an error is a difference.
fn verdict(outcome: Outcome, survives: Option<&str>) -> Result<String, String> {
    match (outcome, survives) {
        (Outcome::Rejected, _) => Err("does not compile".into()),
        (Outcome::Passed, None) => Err("SURVIVED: no test fails".into()),
        (Outcome::Passed, Some(why)) => Ok(format!("survives as listed: {why}")),
        (killed, None) => Ok(killed.text().into()),
        (killed, Some(_)) => {
            Err(format!("{}, but is listed as a survivor: delete `survives`", killed.text()))
        }
    }
}

/// Reads the list.
fn parse(text: &str) -> Result<Vec<Mutation>> {
    let table: Table = text.parse().context(LIST)?;
    let rows = table.get("mutation").and_then(|rows| rows.as_array()).context("no [[mutation]]")?;
    let mut mutations: Vec<Mutation> = Vec::new();
    for row in rows {
        let row = row.as_table().context("a mutation is no table")?;
        let optional = |key: &str| row.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let name = optional("name").context("a mutation has no name")?;
        let get = |key: &str| optional(key).with_context(|| format!("`{name}` has no `{key}`"));
        let mutation = Mutation {
            file: get("file")?,
            old: get("old")?,
            new: get("new")?,
            test: get("test")?,
            survives: optional("survives"),
            name,
        };
        if let Some(key) = row.keys().find(|key| !KEYS.contains(&key.as_str())) {
            bail!("`{}` has an unknown `{key}`", mutation.name);
        }
        if mutations.iter().any(|other| other.name == mutation.name) {
            bail!("two mutations are named `{}`", mutation.name);
        }
        mutations.push(mutation);
    }
    Ok(mutations)
}

const KEYS: [&str; 6] = ["name", "file", "old", "new", "test", "survives"];

impl Mutation {
    /// Returns the text of the file with the mutation.
    fn apply(&self, text: &str) -> Result<String> {
        let found = text.matches(&self.old).count();
        ensure!(found == 1, "`{}`: {} contains `old` {found} times, not once", self.name, self.file);
        ensure!(self.old != self.new, "`{}` changes nothing", self.name);
        Ok(text.replacen(&self.old, &self.new, 1))
    }
}

/// The outcome of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Hung,
    /// The compiler rejected the mutation.
    Rejected,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "killed",
            Outcome::Hung => "killed: it hangs",
            Outcome::Rejected => "does not compile",
        }
    }
}

/// A copy of the files that git does not ignore.
struct Scratch {
    tree: PathBuf,
    target: PathBuf,
    /// The output of the last test run.
    output: PathBuf,
}

impl Scratch {
    fn new(root: &Path) -> Result<Scratch> {
        const ARGUMENTS: [&str; 5] = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let folder = shell::target_dir().join("mutations");
        let scratch = Scratch {
            tree: folder.join("tree"),
            target: folder.join("target"),
            output: folder.join("output"),
        };
        let files = shell::output(Command::new("git").current_dir(root).args(ARGUMENTS))?;
        let mut copied = BTreeSet::new();
        for file in files.split('\0').filter(|file| !file.is_empty()) {
            let (from, to) = (root.join(file), scratch.tree.join(file));
            let Ok(bytes) = fs::read(&from) else { continue };
            copied.insert(to.clone());
            // A file that is the same keeps its time, so that cargo does not compile it again.
            if fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
            fs::write(&to, bytes).with_context(|| format!("{}", to.display()))?;
        }
        keep_only(&copied, &scratch.tree)?;
        Ok(scratch)
    }

    fn cargo(&self, test: &str, more: &[&str]) -> Command {
        // Without `squall`, which only examples in the documentation need. With it, a mutation of a lower
        // crate would compile all crates above.
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default() + " --cfg squall_no_facade";
        let mut command = shell::cargo();
        command.current_dir(&self.tree).env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", &self.target);
        command.args(["test", "-q"]);
        let (cargo, harness) = test.split_once(" -- ").unwrap_or((test, ""));
        command.args(cargo.split_whitespace()).args(more);
        if more.is_empty() {
            command.arg("--").args(harness.split_whitespace());
        }
        command
    }

    /// Runs `cargo test` with these arguments, for at most `limit`. Returns also how long the tests ran.
    fn test(&self, test: &str, limit: Option<Duration>) -> Result<(Outcome, Duration)> {
        let built = self.cargo(test, &["--no-run"]).output()?;
        if !built.status.success() {
            eprint!("{}", String::from_utf8_lossy(&built.stderr));
            return Ok((Outcome::Rejected, Duration::ZERO));
        }
        let mut command = self.cargo(test, &[]);
        let output = fs::File::create(&self.output)?;
        command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null()).process_group(0);
        let begun = Instant::now();
        let outcome = wait(command.spawn().with_context(|| format!("cannot start {command:?}"))?, limit)?;
        Ok((outcome, begun.elapsed()))
    }

    /// Makes a mutation, runs its tests, and undoes it.
    fn mutate(&self, mutation: &Mutation, limit: Duration) -> Result<Outcome> {
        let path = self.tree.join(&mutation.file);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, mutation.apply(&text)?)?;
        let outcome = self.test(&mutation.test, Some(limit)).with_context(|| mutation.name.clone());
        fs::write(&path, text)?;
        Ok(outcome?.0)
    }
}

/// Removes the other files below a folder, and empty folders. Otherwise a deleted test would still run.
fn keep_only(files: &BTreeSet<PathBuf>, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            keep_only(files, &path)?;
            // Fails if a file is left in it.
            let _ = fs::remove_dir(&path);
        } else if !files.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Waits for a test run, and ends it if it hangs.
fn wait(mut child: Child, limit: Option<Duration>) -> Result<Outcome> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { Outcome::Passed } else { Outcome::Failed });
        }
        if limit.is_some_and(|limit| begun.elapsed() > limit) {
            // The whole group: the test program is a child of cargo.
            shell::run(Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]))?;
            child.wait()?;
            return Ok(Outcome::Hung);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutation_fits_its_file() {
        let root = shell::root();
        for mutation in parse(&fs::read_to_string(root.join(LIST)).unwrap()).unwrap() {
            mutation.apply(&fs::read_to_string(root.join(&mutation.file)).unwrap()).unwrap();
        }
    }

    #[test]
    fn files_that_are_not_copied_are_removed() {
        let tree = std::env::temp_dir().join(format!("squall-mutations-{}", std::process::id()));
        let (kept, stale) = (tree.join("tests/kept.rs"), tree.join("tests/old/stale.rs"));
        fs::create_dir_all(stale.parent().unwrap()).unwrap();
        [&kept, &stale].into_iter().for_each(|file| fs::write(file, "").unwrap());
        keep_only(&BTreeSet::from([kept.clone()]), &tree).unwrap();
        assert!(kept.exists() && !stale.parent().unwrap().exists());
        fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn lists_are_checked() {
        let row = "[[mutation]]\nname = 'a'\nfile = 'f'\nold = 'x'\nnew = 'y'\ntest = '-p p'\n";
        let parsed = parse(row).unwrap();
        assert_eq!(parsed[0].apply("1 x 2").unwrap(), "1 y 2");
        assert!(parsed[0].apply("x x").is_err() && parsed[0].apply("z").is_err());
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error(&format!("{row}{row}")).contains("two mutations"));
        assert!(error(&format!("{row}tests = 'q'\n")).contains("unknown `tests`"));
        assert!(error(&row.replace("old", "odd")).contains("no `old`"));
    }

    #[test]
    fn only_the_listed_outcome_is_right() {
        assert!(verdict(Outcome::Failed, None).is_ok() && verdict(Outcome::Hung, None).is_ok());
        assert!(verdict(Outcome::Passed, None).is_err());
        assert!(verdict(Outcome::Passed, Some("why")).is_ok());
        assert!(verdict(Outcome::Failed, Some("why")).is_err());
    }
}
