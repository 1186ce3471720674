//! A torture as scripts run it: it does what it is for and passes, and it fails where it is broken on purpose.

use std::process::Output;

use crate::common::{run, squall, stderr, stdout};

/// A stress, and what is known of it.
pub(crate) struct Torture {
    pub(crate) name: &'static str,
    /// How many threads it runs with unless a test says otherwise.
    pub(crate) threads: &'static str,
    /// Counts that no run leaves at zero: a run that does nothing passes as well.
    pub(crate) done: &'static [&'static str],
}

/// The lines `name count` that a run printed.
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

impl Torture {
    /// Runs it with one seed. `more` are arguments, and may say how many threads.
    fn run(&self, seconds: &str, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = squall();
        command.args(["stress", self.name, "--seconds", seconds, "--seed", "11"]);
        if !more.contains(&"--threads") {
            command.args(["--threads", self.threads]);
        }
        run(command.args(more).envs(variables.iter().copied()))
    }

    /// A run of two seconds passes, and did what it is for; on a machine that does other things, a longer one.
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

    /// A run that is broken so is caught, by a violation of which `clue` is a part.
    #[track_caller]
    pub(crate) fn fails(&self, how: &str, seconds: &str, clue: &str) {
        let output = self.run(seconds, &[], &[("SQUALL_STRESS_BREAK", how)]);
        let complaint = stderr(&output);
        assert!(!output.status.success(), "{how} was not caught: {}", stdout(&output));
        let Torture { name, threads, .. } = self;
        let verdict = format!("VIOLATION in stress {name}: ");
        assert!(complaint.contains(&verdict) && complaint.contains(clue), "{complaint}");
        let replay = format!(
            "replay: SQUALL_STRESS_BREAK={how} squall stress {name} --seconds {seconds} --seed 11 --threads {threads}"
        );
        assert!(complaint.contains(&replay), "{complaint}");
    }

    /// A way to break it that it does not know is refused, and `known` is among those that it names.
    #[track_caller]
    pub(crate) fn refuses_what_it_does_not_know(&self, known: &str) {
        let output = self.run("1", &[], &[("SQUALL_STRESS_BREAK", "everything")]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(known), "{}", stderr(&output));
    }
}
