//! Sentences about a load, and reasons why an object keeps its form.
//!
//! The engine stores the latest reason with the record of the object, as numbers. The text is made on
//! request. So a look without a decision stores a few words and leaves the history alone.

use std::fmt;
use std::time::Duration;

use crate::decision::Held;
use crate::family::Form;

/// Calls of an object at one look of the engine. `Display` writes them as a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Calls on the local path, as the object's sensors count them.
    pub local: u64,
    /// Calls on the contended path, or from a VP that the object is not biased to.
    pub foreign: u64,
    /// Global operations, which visit every representative.
    pub global: u64,
    /// Duration of the look at the sensors.
    pub span: Duration,
    /// `true` if the object was biased to a VP.
    pub is_biased: bool,
    /// VPs that called.
    pub vps: usize,
    /// Calls that were counted after that.
    pub counted: u64,
    /// Duration of the count.
    pub counted_in: Duration,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { local, foreign, global, span, is_biased, vps, counted, counted_in } = *self;
        if foreign > 0 {
            let all = grouped(local.saturating_add(foreign));
            let others =
                if is_biased { "came from other processors" } else { "met calls of other processors" };
            write!(f, "{} of {all} calls in {} {others}", grouped(foreign), Span(span))?;
        } else {
            let processors = if vps == 1 { "1 processor".to_owned() } else { format!("{vps} processors") };
            write!(f, "{processors} made {} calls in {}", grouped(counted), Span(counted_in))?;
        }
        match global {
            0 => Ok(()),
            1 => write!(f, ", and 1 operation visited all representatives"),
            _ => write!(f, ", and {} operations visited all representatives", grouped(global)),
        }
    }
}

/// Reason why the engine leaves an object in its form.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The sensor of the object has not tripped in this form, so the engine has not looked.
    NotExamined,
    /// The engine's thread is off or failed, and the program has not called [`turn`](crate::engine::turn).
    EngineOff,
    /// The object had no calls at the last look.
    Quiet,
    /// The object had too few calls for an estimate at the last look.
    FewCalls,
    /// The calls could not be counted: the object is being swapped, or has another arbiter.
    NotCounted,
    /// The sensors could not be read: an arbiter refused the call, or the family panicked.
    NotRead,
    /// The best other form would cost this many times as much. `None` if the family estimated one form.
    Cheapest(Option<(Form, f64)>),
    /// The best other form would cost this share of the present cost, and save this time per second. The
    /// settings `margin` and `gain` ask for more.
    SmallGain(Form, f64, Duration),
    /// The object was biased to another VP a moment ago, and does not move again so soon.
    Moved,
    /// One VP alone calls it. It changes to this form after this time, unless another VP calls. By then the
    /// present form has cost as much as a premature change would.
    AtStake(Form, Duration),
    /// The engine holds back the change to this form, which would cost less.
    Held(Form, Held),
    /// The policy only records its decisions; this form would cost less.
    DryRun(Form),
    /// The change to this form failed. The engine tries again later.
    Failed(Form),
}

impl Reason {
    /// Returns `true` if the reason rests on the calls that were seen last.
    pub(crate) fn rests_on_calls(self) -> bool {
        use Reason::{AtStake, Cheapest, DryRun, Failed, Held, Moved, SmallGain};
        matches!(self, Cheapest(_) | SmallGain(..) | Moved | AtStake(..) | Held(..) | DryRun(_) | Failed(_))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::NotExamined => {
                f.write_str("the engine has not looked at it in this form: its sensor reported nothing")
            }
            Reason::EngineOff => f.write_str(
                "the engine's thread is off: unset SQUALL_ADAPT, or call `engine::set_thread(true)`",
            ),
            Reason::Quiet => f.write_str("it had no calls at the last look"),
            Reason::FewCalls => f.write_str("it had too few calls for an estimate"),
            Reason::NotCounted => {
                f.write_str("its calls could not be counted: it is being swapped, or has an arbiter")
            }
            Reason::NotRead => f.write_str(
                "its sensors could not be read: an arbiter refused the call, or its estimate panicked",
            ),
            Reason::Cheapest(None) => f.write_str("no other form was estimated for these calls"),
            Reason::Cheapest(Some((form, times))) if times < 1.05 => {
                write!(f, "{} would cost about as much", form.about())
            }
            Reason::Cheapest(Some((form, times))) => {
                write!(f, "{} would cost an estimated {times:.1} times as much", form.about())
            }
            Reason::SmallGain(form, share, saved) => {
                let (form, percent, saved) = (form.about(), (1.0 - share) * 100.0, Span(saved));
                write!(
                    f,
                    "{form} would save an estimated {percent:.0} % ({saved} per second), too little for a change"
                )
            }
            Reason::Moved => f.write_str("it moved to another processor a moment ago"),
            Reason::AtStake(form, left) => write!(
                f,
                "one processor makes all calls; it changes to {} in {} if that stays so",
                form.about(),
                Span(left)
            ),
            Reason::Held(form, held) => write!(f, "{held}; {} would cost less", form.about()),
            Reason::DryRun(form) => {
                write!(f, "its policy only records its decisions; {} would cost less", form.about())
            }
            Reason::Failed(form) => write!(f, "the change to {} failed", form.about()),
        }
    }
}

/// Reason why an object keeps its form, with the calls that it rests on. Returned by
/// [`control::stays`](crate::control::stays). `Display` writes a sentence.
///
/// ```
/// use squall::adapt::family::Form;
/// use squall::adapt::stays::{Reason, Seen, Stays};
/// use std::time::Duration;
///
/// let seen = Seen::of_sensors(900, 3100, Duration::from_millis(3));
/// let spread = Form::of::<u32>("spread").described("one representative per processor");
/// let stays = Stays { reason: Reason::Cheapest(Some((spread, 1.4))), seen: Some(seen) };
/// assert_eq!(
///     stays.to_string(),
///     "3,100 of 4,000 calls in 3 ms met calls of other processors, \
///      but one representative per processor would cost an estimated 1.4 times as much"
/// );
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stays {
    /// The reason.
    pub reason: Reason,
    /// The calls, if the reason rests on them.
    pub seen: Option<Seen>,
}

impl Seen {
    /// Creates a look that saw so many calls on the local and on the contended path.
    pub fn of_sensors(local: u64, foreign: u64, span: Duration) -> Seen {
        Seen { local, foreign, span, ..Seen::default() }
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.seen {
            Some(seen) => write!(f, "{seen}, but {}", self.reason),
            None => self.reason.fmt(f),
        }
    }
}

/// A cost as a share of another one, as text after "costs": "an estimated tenth".
pub(crate) struct Share(pub(crate) f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PARTS: [&str; 9] =
            ["half", "third", "quarter", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
        let share = self.0;
        let parts = (1.0 / share).round();
        match parts {
            _ if share > 0.6 => write!(f, "an estimated {:.0} %", share * 100.0),
            ..=10.0 => write!(f, "an estimated {}", PARTS[(parts as usize).clamp(2, 10) - 2]),
            ..15.0 => f.write_str("an estimated tenth"),
            ..30.0 => f.write_str("an estimated twentieth"),
            ..75.0 => f.write_str("an estimated fiftieth"),
            ..150.0 => f.write_str("an estimated hundredth"),
            _ => f.write_str("less than a hundredth by the estimate"),
        }
    }
}

/// Formats a count with commas: `3,100`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration for people, in one unit.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            60.0.. => write!(f, "{:.1} min", seconds / 60.0),
            1.0.. => write!(f, "{seconds:.1} s"),
            0.001.. => write!(f, "{:.0} ms", seconds * 1e3),
            _ => write!(f, "{:.0} µs", seconds * 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_counts_and_spans_read_as_words() {
        let shares = [(0.8, "an estimated 80 %"), (0.5, "an estimated half"), (0.36, "an estimated third")];
        let small = [
            (0.1, "an estimated tenth"),
            (0.06, "an estimated twentieth"),
            (0.0, "less than a hundredth by the estimate"),
        ];
        for (share, text) in shares.into_iter().chain(small) {
            assert_eq!(Share(share).to_string(), text);
        }
        assert_eq!([0, 999, 1000, 4_019_000].map(grouped), ["0", "999", "1,000", "4,019,000"]);
        let spans = [(250, "250 µs"), (2_900, "3 ms"), (1_500_000, "1.5 s"), (90_000_000, "1.5 min")];
        for (us, text) in spans {
            assert_eq!(Span(Duration::from_micros(us)).to_string(), text);
        }
    }

    #[test]
    fn a_look_without_contention_names_the_callers() {
        let counted_in = Duration::from_micros(300);
        let seen = Seen { vps: 2, counted: 1200, counted_in, global: 5, ..Seen::default() };
        assert_eq!(
            seen.to_string(),
            "2 processors made 1,200 calls in 300 µs, and 5 operations visited all representatives"
        );
    }
}
