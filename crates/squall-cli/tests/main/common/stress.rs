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
}

/// The printed lines `name count` of a run.
pub(crate) struct Counts {
    said: String,
}

impl Counts {
    #[track_caller]
    pub(crate) fn of(&self, name: &str) -> u64 {
        let pairs = self.said.lines().filter_map(|line| line.trim().rsplit_once(' '));
        let count = pairs.filter(|(found, _)| found.trim() == name).find_map(|(_, count)| count.parse().ok());
        count.unwrap_or_else(|| panic!("no count of {name} in\n{}", self.said))
    }
}

impl StressTest {
    /// Runs the stress with one seed. `more` are additional arguments, possibly with the number of threads.
    fn run(&self, seconds: &str, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = squall();
        command.args(["stress", self.name, "--seconds", seconds, "--seed", "11"]);
        if !more.contains(&"--threads") {
            command.args(["--threads", self.threads]);
        }
        run(command.args(more).envs(variables.iter().copied()))
    }

    /// Checks that a run of two seconds passes with positive counts. On a busy machine, a longer run is tried
    /// next.
    #[track_caller]
    pub(crate) fn passes(&self, more: &[&str], variables: &[(&str, &str)]) -> Counts {
        let mut missed = String::new();
        for seconds in ["2", "20"] {
            let output = self.run(seconds, more, variables);
            let (said, complaint) = (stdout(&output), stderr(&output));
            assert!(output.status.success(), "{said}\n{complaint}");
            assert!(said.ends_with("  no violation\n"), "{said}");
            let counts = Counts { said };
            let Some(none) = self.done.iter().find(|name| counts.of(name) == 0) else { return counts };
            missed = format!("{none}: none in\n{}", counts.said);
        }
        panic!("{missed}");
    }

    /// Checks that a run with the planned break `how` fails, with `clue` in its violation.
    #[track_caller]
    pub(crate) fn fails(&self, how: &str, seconds: &str, clue: &str) {
        let output = self.run(seconds, &[], &[("SQUALL_STRESS_BREAK", how)]);
        let complaint = stderr(&output);
        assert!(!output.status.success(), "{how} was not caught: {}", stdout(&output));
        let StressTest { name, threads, .. } = self;
        let verdict = format!("VIOLATION in stress {name}: ");
        assert!(complaint.contains(&verdict) && complaint.contains(clue), "{complaint}");
        let replay = format!(
            "replay: SQUALL_STRESS_BREAK={how} squall stress {name} --seconds {seconds} --seed 11 --threads {threads}"
        );
        assert!(complaint.contains(&replay), "{complaint}");
    }

    /// Checks that an unknown planned break is rejected, with an error that lists `known`.
    #[track_caller]
    pub(crate) fn refuses_an_unknown_break(&self, known: &str) {
        let output = self.run("1", &[], &[("SQUALL_STRESS_BREAK", "everything")]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(known), "{}", stderr(&output));
    }
}
