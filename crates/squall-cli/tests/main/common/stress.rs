//! Runs a stress as scripts do: it must do its work and pass, and it must fail under each planned break.

use std::process::Output;

use super::{run, squall, stderr, stdout};

/// A stress and its expected counts.
pub(crate) struct StressTest {
    pub(crate) name: &'static str,
    /// Default number of threads in the tests.
    pub(crate) threads: &'static str,
    /// Counts that must be positive in each run, because a run that does nothing also passes.
    pub(crate) done: &'static [&'static str],
    /// Counts that must be zero in each run.
    pub(crate) never: &'static [&'static str],
}

/// The printed lines `name count` of a run.
pub(crate) struct Counts {
    said: String,
}

impl Counts {
    #[track_caller]
    pub(crate) fn expect(&self, name: &str, count: u64) {
        assert_eq!(self.of(name), count, "{name} in\n{}", self.said);
    }

    #[track_caller]
    fn of(&self, name: &str) -> u64 {
        let pairs = self.said.lines().filter_map(|line| line.trim().rsplit_once(' '));
        let count = pairs.filter(|(found, _)| found.trim() == name).find_map(|(_, count)| count.parse().ok());
        count.unwrap_or_else(|| panic!("no count of {name} in\n{}", self.said))
    }
}

/// Maximum duration of a run, in seconds. Only a failing test needs runs of this length.
const SECONDS_MAX: u64 = 3600;

/// Returns the durations of the runs of a test, in seconds. On a loaded machine, a run may end before it has
/// done its work. So the next run is three times longer.
fn durations(first: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |seconds| Some(seconds * 3))
        .take_while(|seconds| *seconds <= SECONDS_MAX)
}

impl StressTest {
    /// Runs the stress with one seed. `more` are additional arguments, possibly with the number of threads.
    fn run(&self, seconds: u64, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = squall();
        command.args(["stress", self.name, "--seconds", &seconds.to_string(), "--seed", "11"]);
        if !more.contains(&"--threads") {
            command.args(["--threads", self.threads]);
        }
        run(command.args(more).envs(variables.iter().copied()))
    }

    /// Runs the stress for a moment, and returns its printed lines.
    #[track_caller]
    pub(crate) fn run_for_a_moment(&self) -> String {
        let output = self.run(0, &[], &[]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    /// Checks that every run passes, and that one of them has the expected counts.
    #[track_caller]
    pub(crate) fn passes(&self, more: &[&str], variables: &[(&str, &str)]) -> Counts {
        let mut missed = String::new();
        for seconds in durations(2) {
            let output = self.run(seconds, more, variables);
            let (said, complaint) = (stdout(&output), stderr(&output));
            assert!(output.status.success(), "{said}\n{complaint}");
            assert!(said.ends_with("  no violation\n"), "{said}");
            let counts = Counts { said };
            self.never.iter().for_each(|name| counts.expect(name, 0));
            let Some(absent) = self.done.iter().find(|name| counts.of(name) == 0) else { return counts };
            missed = format!("the count of {absent} is zero in\n{}", counts.said);
        }
        panic!("{missed}");
    }

    /// Checks that a run with the planned break `how` fails, with one of `clues` in its violation. A run ends
    /// at its first violation. `seconds` is the duration of the first run.
    #[track_caller]
    pub(crate) fn fails(&self, how: &str, seconds: u64, clues: &[&str]) {
        let run = |seconds| (seconds, self.run(seconds, &[], &[("SQUALL_STRESS_BREAK", how)]));
        let failed = durations(seconds).map(run).find(|(_, output)| !output.status.success());
        let (seconds, output) =
            failed.unwrap_or_else(|| panic!("{how} was not caught by stress {}", self.name));
        let complaint = stderr(&output);
        let StressTest { name, threads, .. } = self;
        let verdict = format!("VIOLATION in stress {name}: ");
        let is_expected = clues.iter().any(|clue| complaint.contains(clue));
        assert!(complaint.contains(&verdict) && is_expected, "{complaint}");
        let replay = format!(
            "replay: SQUALL_STRESS_BREAK={how} squall stress {name} --seconds {seconds} --seed 11 --threads {threads}"
        );
        assert!(complaint.contains(&replay), "{complaint}");
    }

    /// Checks that an unknown planned break is rejected, with an error that lists `known`.
    #[track_caller]
    pub(crate) fn refuses_an_unknown_break(&self, known: &str) {
        let output = self.run(1, &[], &[("SQUALL_STRESS_BREAK", "everything")]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(known), "{}", stderr(&output));
    }
}
