//! What is decided about some objects, told while it happens.
//!
//! - I1. Every decision about the objects that is in the program's log is told, once, in the log's order.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use squall::adapt::control::{self, Decision, Verdict};
use squall::swap::SwapReport;
use squall::{Id, info_of};

/// Letters of a reason on a line.
const WHY_WIDTH: usize = 104;

/// Tells decisions.
pub(super) struct Teller {
    objects: Vec<(&'static str, Id)>,
    told: HashSet<(Id, SystemTime, Duration)>,
    wall: SystemTime,
    began: Instant,
    swaps: u64,
}

impl Teller {
    /// Of these objects, by their names, from now on.
    pub(super) fn new(objects: Vec<(&'static str, Id)>) -> Teller {
        Teller { objects, told: HashSet::new(), wall: SystemTime::now(), began: Instant::now(), swaps: 0 }
    }

    /// Of this object, too.
    pub(super) fn also(&mut self, name: &'static str, id: Id) {
        self.objects.push((name, id));
    }

    /// How often the objects were swapped, of what was told.
    pub(super) fn swaps(&self) -> u64 {
        self.swaps
    }

    /// Since it was made.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A line on what happens now.
    pub(super) fn now(&self, what: &str) -> String {
        format!("  {:>7.3} s  {what}", self.elapsed().as_secs_f64())
    }

    /// What was decided since the last time, in lines (I1).
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

    /// What the objects are now, those of them that a policy has.
    pub(super) fn forms(&self) -> String {
        let seen = self.objects.iter().filter_map(|(name, id)| {
            let (status, info) = (control::status(*id)?, info_of(*id)?);
            let (form, reps, bytes) = (status.form, info.reps.len(), info.bytes);
            Some(format!("{name} {form}, {reps} reps, {bytes} bytes"))
        });
        seen.collect::<Vec<String>>().join("; ")
    }
}

/// A decision in lines.
fn said(name: &str, decision: &Decision, wall: SystemTime) -> Vec<String> {
    let when = decision.at.duration_since(wall).unwrap_or_default().as_secs_f64();
    let Decision { from, to, verdict, .. } = decision;
    let place = decision.place.map_or(String::new(), |vp| format!(" at {vp}"));
    let swap = decision.report.as_ref().map_or(String::new(), |report| how(decision, report));
    let mut lines = vec![format!("  {when:>7.3} s  {name}: {from} to {to}{place}: {verdict}{swap}")];
    lines.extend(wrapped(&decision.why).into_iter().map(|part| format!("               {part}")));
    lines
}

/// How a swap went.
fn how(decision: &Decision, report: &SwapReport) -> String {
    let bytes = info_of(decision.id).map_or(0, |info| info.bytes);
    format!(
        "; {:.1?} from the first look, the swap {:.1?}, the longest pause {:.1?}; {bytes} bytes",
        decision.took,
        report.total(),
        report.longest_pause
    )
}

/// A text in lines that are not too long.
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
