//! Says in plain words when and why an object changed its form, or why it kept it.
//!
//! - I1. Each change is told once, object by object, in the order of its changes.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use squall::Id;
use squall::adapt::control::{self, Decision, Verdict};

/// Longest line.
const WIDTH: usize = 100;
/// Maximum number of changes of an object that are told in full at once.
const TOLD_MAX: usize = 2;

/// An object, and the time of the latest decision about it that was told.
struct Object {
    name: &'static str,
    id: Id,
    told: SystemTime,
    /// `true` if it has changed since the last call of `Changes::kept`.
    has_changed: bool,
}

/// Turns decisions about some objects into sentences.
pub(super) struct Changes {
    objects: Vec<Object>,
    began: SystemTime,
}

impl Changes {
    /// Makes the teller for objects given by name and id. Times are told from now on.
    pub(super) fn new(objects: impl IntoIterator<Item = (&'static str, Id)>) -> Changes {
        let began = SystemTime::now();
        let object = |(name, id)| Object { name, id, told: SystemTime::UNIX_EPOCH, has_changed: false };
        Changes { objects: objects.into_iter().map(object).collect(), began }
    }

    /// Returns the changes since the last call, as wrapped lines (I1).
    pub(super) fn news(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for object in &mut self.objects {
            let mut told = Vec::new();
            for decision in control::history(object.id) {
                if decision.at > object.told {
                    object.told = decision.at;
                    object.has_changed |= decision.report.is_some();
                    told.extend(sentence(object.name, &decision, self.began));
                }
            }
            lines.extend(first(&told));
        }
        lines
    }

    /// Returns why each object that has not changed since the last call kept its form, as wrapped lines. Call
    /// it after `news`.
    pub(super) fn kept(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for object in &mut self.objects {
            if !std::mem::take(&mut object.has_changed)
                && let Some(status) = control::status(object.id)
            {
                let form = in_words(status.family, status.form);
                lines.extend(wrapped(&plain(&format!(
                    "The {} stayed {form}: {}.",
                    object.name, status.stays
                ))));
            }
        }
        lines
    }
}

/// Wraps the first sentences into lines, and counts the others.
fn first(sentences: &[String]) -> Vec<String> {
    let mut lines: Vec<String> =
        sentences.iter().take(TOLD_MAX).flat_map(|sentence| wrapped(sentence)).collect();
    match sentences.len().saturating_sub(TOLD_MAX) {
        0 => {}
        1 => lines.push("  (And 1 more change.)".to_owned()),
        more => lines.push(format!("  (And {more} more changes.)")),
    }
    lines
}

/// Describes a change. A decision without a change is not described.
fn sentence(name: &str, decision: &Decision, began: SystemTime) -> Option<String> {
    let Decision { family, from, to, why, .. } = decision;
    let when = decision.at.duration_since(began).unwrap_or(Duration::ZERO).as_secs_f64();
    let (old, new) = (in_words(family, from), in_words(family, to));
    let what = match (&decision.verdict, decision.place) {
        // The last part of the error is the reason. The parts before it name types.
        (Verdict::Failed(error), _) => {
            let reason = error.rsplit(": ").next().unwrap_or(error);
            let what = format!("could not become {new}, and stayed {old}: {reason}");
            return Some(plain(&format!("At {when:.1} s the {name} {what}.")));
        }
        (Verdict::Swapped | Verdict::ByHand, Some(place)) if from == to => format!("moved to {place}"),
        (Verdict::Swapped | Verdict::ByHand, _) => format!("changed from {old} to {new}"),
        _ => return None,
    };
    let pause = decision.report.as_ref().map(|report| report.longest_pause).filter(|pause| !pause.is_zero());
    let pause = pause.map_or(String::new(), |pause| format!(" No call waited longer than {}.", short(pause)));
    Some(plain(&format!("At {when:.1} s the {name} {what}: {why}.{pause}")))
}

/// Formats a pause in one unit.
fn short(pause: Duration) -> String {
    match pause.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us => format!("{} ms", us / 1_000),
    }
}

/// Describes a form in the words that `plain` leaves of the form's own description.
fn in_words(family: &str, form: &'static str) -> Cow<'static, str> {
    match (family, form) {
        ("map", "small") => "a small table under one lock".into(),
        ("map", "shared") => "one concurrent table".into(),
        ("map", "replicated") => "one copy per node".into(),
        ("counter", "shared") => "one number for all processors".into(),
        ("counter", "distributed") => "one number per processor".into(),
        _ => format!("the form {form}").into(),
    }
}

/// Replaces Squall's own words, which a newcomer does not know.
fn plain(sentence: &str) -> String {
    [
        ("VP ", "processor "),
        ("representative", "number"),
        ("its sensor reported nothing", "it reported no load"),
        ("its sensors", "its readings"),
        ("an arbiter", "a function before its calls"),
    ]
    .iter()
    .fold(sentence.to_owned(), |told, (own, plain)| told.replace(own, plain))
}

/// Wraps a sentence into indented lines.
fn wrapped(sentence: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= WIDTH => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(format!("{}{word}", if lines.is_empty() { "  " } else { "    " })),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use squall::Handle;
    use squall::adapt::decision::{Held, note};
    use squall::adapt::stays::Reason;
    use squall::objects::counter;

    use super::*;

    /// Joins wrapped lines.
    fn joined(lines: &[String]) -> String {
        lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_is_told_once_and_a_look_is_not() {
        let _serial = crate::serial::lock();
        let counter = counter::adaptive();
        let id = Handle::id(counter.handle());
        let mut changes = Changes::new([("counter", id)]);
        let decide = |verdict| {
            let why = "9 calls in 3 ms; one representative at VP 1 costs an estimated half".to_owned();
            note(Decision::new(id, "counter", "shared", "distributed", verdict, why));
        };
        decide(Verdict::Held(Held::CoolingDown));
        assert_eq!(changes.news(), Vec::<String>::new());
        decide(Verdict::Swapped);
        let told = joined(&changes.news());
        let forms = "changed from one number for all processors to one number per processor";
        let why = "9 calls in 3 ms; one number at processor 1 costs an estimated half";
        assert!(told.ends_with(&format!("s the counter {forms}: {why}.")), "{told}");
        assert_eq!(changes.news(), Vec::<String>::new());
        decide(Verdict::Failed("swap of a::B<c::D> to e::F: it took too long".to_owned()));
        let told = joined(&changes.news());
        let kept = "could not become one number per processor, and stayed one number for all processors";
        assert!(told.ends_with(&format!("s the counter {kept}: it took too long.")), "{told}");
    }

    #[test]
    fn a_form_has_one_name_in_a_sentence() {
        for (form, about) in [
            (counter::SHARED, "one representative for all processors"),
            (counter::DISTRIBUTED, "one representative per processor"),
        ] {
            assert_eq!(plain(about), in_words("counter", form));
        }
        for reason in [Reason::NotExamined, Reason::NotCounted, Reason::NotRead] {
            let told = plain(&reason.to_string());
            assert!(!told.contains("sensor") && !told.contains("arbiter"), "{told}");
        }
    }

    #[test]
    fn many_changes_are_counted() {
        let sentences = |count| vec!["It changed.".to_owned(); count];
        assert_eq!(first(&sentences(TOLD_MAX)).len(), TOLD_MAX);
        assert_eq!(first(&sentences(TOLD_MAX + 1))[TOLD_MAX], "  (And 1 more change.)");
        assert_eq!(first(&sentences(TOLD_MAX + 7))[TOLD_MAX], "  (And 7 more changes.)");
    }

    #[test]
    fn an_object_that_kept_its_form_says_why() {
        let _serial = crate::serial::lock();
        let counter = counter::adaptive();
        let mut changes = Changes::new([("counter", Handle::id(counter.handle()))]);
        let told = joined(&changes.kept());
        assert!(told.contains("The counter stayed one number for all processors: the engine"), "{told}");
    }

    #[test]
    fn a_sentence_is_wrapped_and_whole_and_a_pause_is_short() {
        let sentence = "word ".repeat(60);
        let lines = wrapped(&sentence);
        assert!(lines.len() > 2 && lines.iter().all(|line| line.len() <= WIDTH));
        let words = lines.iter().flat_map(|line| line.split_whitespace()).count();
        assert_eq!((words, wrapped("").len()), (60, 0));
        let pauses = [12, 2_900].map(|us| short(Duration::from_micros(us)));
        assert_eq!(pauses, ["12 µs", "2 ms"]);
    }
}
