//! Prints the decisions about some objects while they happen.
//!
//! - I1. Each decision about these objects in the program's log is printed once, in the order of the log.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use squall::adapt::control::{self, Decision, Verdict};
use squall::swap::SwapReport;
use squall::{Id, info_of};

/// Maximum length of a line of a reason.
const WHY_WIDTH: usize = 104;

/// Turns new decisions into lines.
pub(super) struct Teller {
    objects: Vec<(&'static str, Id)>,
    told: HashSet<(Id, SystemTime, Duration)>,
    wall: SystemTime,
    began: Instant,
    swaps: u64,
}

impl Teller {
    /// Makes a teller for these objects, given by name and id, that starts now.
    pub(super) fn new(objects: Vec<(&'static str, Id)>) -> Teller {
        Teller { objects, told: HashSet::new(), wall: SystemTime::now(), began: Instant::now(), swaps: 0 }
    }

    /// Adds an object.
    pub(super) fn also(&mut self, name: &'static str, id: Id) {
        self.objects.push((name, id));
    }

    /// Returns the number of swaps among the decisions told so far.
    pub(super) fn swaps(&self) -> u64 {
        self.swaps
    }

    /// Returns the time since the teller was made.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns a line that announces the current event.
    pub(super) fn now(&self, what: &str) -> String {
        format!("  {:>7.3} s  {what}", self.elapsed().as_secs_f64())
    }

    /// Returns the decisions since the last call, as lines (I1).
    pub(super) fn news(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for decision in control::recent() {
            let Some((name, _)) = self.objects.iter().find(|(_, id)| *id == decision.id) else { continue };
            if self.told.insert((decision.id, decision.at, decision.took)) {
                if matches!(decision.verdict, Verdict::Swapped | Verdict::ByHand) {
                    self.swaps += 1;
                }
                lines.extend(said(name, &decision, self.wall));
            }
        }
        lines
    }

    /// Returns the current forms of the objects that have a policy.
    pub(super) fn forms(&self) -> String {
        let seen = self.objects.iter().filter_map(|(name, id)| {
            let (status, info) = (control::status(*id)?, info_of(*id)?);
            let (form, reps, bytes) = (status.form, info.reps.len(), info.bytes);
            Some(format!("{name} {form}, {reps} reps, {bytes} bytes"))
        });
        seen.collect::<Vec<String>>().join("; ")
    }
}

/// Formats a decision as lines.
fn said(name: &str, decision: &Decision, wall: SystemTime) -> Vec<String> {
    let when = decision.at.duration_since(wall).unwrap_or_default().as_secs_f64();
    let Decision { from, to, verdict, .. } = decision;
    let place = decision.place.map_or(String::new(), |vp| format!(" at {vp}"));
    let swap = decision.report.as_ref().map_or(String::new(), |report| how(decision, report));
    let mut lines = vec![format!("  {when:>7.3} s  {name}: {from} to {to}{place}: {verdict}{swap}")];
    lines.extend(wrapped(&decision.why).into_iter().map(|part| format!("               {part}")));
    lines
}

/// Formats the course of a swap.
fn how(decision: &Decision, report: &SwapReport) -> String {
    let bytes = info_of(decision.id).map_or(0, |info| info.bytes);
    format!(
        "; decided in {:.1?}, swapped in {:.1?}, longest pause {:.1?}; {bytes} bytes",
        decision.took,
        report.total(),
        report.longest_pause
    )
}

/// Wraps a text into lines of at most `WHY_WIDTH` bytes.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() < WHY_WIDTH => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_wrapped_and_whole() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WHY_WIDTH));
        assert_eq!(lines.join(" "), text.trim_end());
        assert!(wrapped(" ").is_empty());
    }
}
