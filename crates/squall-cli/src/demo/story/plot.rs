//! The figures of a phase as bars, with a sentence about the winner. The text also reads well in a log.
//!
//! - I1. Colours appear only if they were asked for.

/// Width of the longest bar in characters.
const BAR: f64 = 40.0;
/// Two times this close to each other count as the same.
const SAME: f64 = 1.05;
/// A middle half of the slices that spreads over more than this part of their median is reported.
const SPREAD_MAX: f64 = 0.3;

/// The slices of one store in a phase.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    /// Nanoseconds per operation in each slice, in order.
    pub(super) slices: Vec<f64>,
}

impl Row {
    /// Returns the value below which `part` of the slices are.
    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.slices.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get((sorted.len() as f64 * part) as usize).copied().unwrap_or(0.0)
    }

    /// Returns the median of the slices.
    pub(super) fn ns(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the width of the middle half of the slices, as a part of their median.
    fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / self.ns().max(f64::MIN_POSITIVE)
    }
}

/// Returns the fastest row.
pub(super) fn fastest<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.into_iter().min_by(|one, other| one.ns().total_cmp(&other.ns()))
}

/// Formats nanoseconds with two or more digits that count.
pub(super) fn figure(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// Draws a bar of `width` characters, in steps of an eighth.
fn bar(width: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = ((width * 8.0).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Draws one character for each value. The largest value is the highest.
pub(super) fn sparkline(values: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let height = |value: &f64| HEIGHTS[((value / max * 8.0).ceil() as usize).clamp(1, 8) - 1];
    values.iter().map(height).collect()
}

/// Draws the rows of a phase, one per line.
pub(super) fn chart(rows: &[Row], has_colours: bool) -> Vec<String> {
    let max = rows.iter().map(Row::ns).fold(f64::MIN_POSITIVE, f64::max);
    let first = fastest(rows).map(|row| row.name);
    let draw = |row: &Row| {
        let (ns, name) = (row.ns(), row.name);
        let drawn = bar(ns / max * BAR);
        let blanks = " ".repeat(BAR as usize + 1 - drawn.chars().count().min(BAR as usize));
        let note = if first == Some(name) { "  fastest" } else { "" };
        let drawn = if has_colours && row.is_ours { format!("\x1b[32m{drawn}\x1b[0m") } else { drawn };
        format!("  {name:<24} {drawn}{blanks}{:>6} ns{note}", figure(ns))
    };
    rows.iter().map(draw).collect()
}

/// Says in words which store was the fastest, and by how much.
pub(super) fn verdict(rows: &[Row]) -> Option<String> {
    let ours = rows.iter().find(|row| row.is_ours)?;
    let rival = fastest(rows.iter().filter(|row| !row.is_ours))?;
    let (own, other, name) = (ours.ns(), rival.ns(), rival.name);
    Some(if own > other * SAME {
        format!("{name} wins: Squall takes {:.1} times its time.", own / other)
    } else if other > own * SAME {
        format!("Squall wins: the next best, {name}, takes {:.1} times its time.", other / own)
    } else {
        format!("Squall and {name} take the same time, within {:.0} %.", (SAME - 1.0) * 100.0)
    })
}

/// Says if the slices of a row differ so much that its figure is doubtful.
pub(super) fn doubt(rows: &[Row]) -> Option<String> {
    let spread = rows.iter().map(Row::spread).fold(0.0, f64::max);
    (spread > SPREAD_MAX).then(|| {
        format!(
            "(The middle half of one row's slices spreads over {:.0} %. Other programs may be using the processors.)",
            spread * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ours: f64, rival: f64) -> [Row; 3] {
        let row = |name, is_ours, ns| Row { name, is_ours, slices: vec![ns, ns * 9.0, ns, ns, ns / 9.0] };
        [row("a lock", false, 200.0), row("rival", false, rival), row("Squall", true, ours)]
    }

    #[test]
    fn a_planted_winner_is_named() {
        let cases = [
            (50.0, 25.0, "rival", "rival wins: Squall takes 2.0 times its time."),
            (25.0, 50.0, "Squall", "Squall wins: the next best, rival, takes 2.0 times its time."),
            (400.0, 300.0, "a lock", "a lock wins: Squall takes 2.0 times its time."),
            (50.0, 51.0, "Squall", "Squall and rival take the same time, within 5 %."),
        ];
        for (ours, rival, first, sentence) in cases {
            let rows = rows(ours, rival);
            assert_eq!(verdict(&rows).as_deref(), Some(sentence));
            for (row, drawn) in rows.iter().zip(chart(&rows, false)) {
                assert_eq!(drawn.ends_with("fastest"), row.name == first, "{drawn}");
                assert!(drawn.contains(&format!(" {} ns", figure(row.ns()))), "{drawn}");
            }
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let drawn = chart(&rows(100.0, 50.0), false);
        let full = drawn.iter().map(|line| line.matches('█').count());
        assert_eq!(full.collect::<Vec<_>>(), [40, 10, 20]);
        let place = |line: &String| line.chars().count() - line.trim_end_matches("  fastest").chars().count();
        let ends: Vec<usize> = drawn.iter().map(|line| line.chars().count() - place(line)).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "the figures are below each other: {drawn:?}");
        assert!(drawn.iter().all(|line| !line.contains('\x1b')), "{drawn:?}");
        assert_eq!((bar(0.0), bar(1.5)), ("▏".to_owned(), "█▌".to_owned()));
        let colours = chart(&rows(100.0, 50.0), true).iter().filter(|line| line.contains("\x1b[32m")).count();
        assert_eq!(colours, 1, "only Squall's bar is coloured");
    }

    #[test]
    fn slices_are_drawn_in_order_and_doubted_if_they_differ() {
        assert_eq!(sparkline(&[80.0, 10.0, 40.0, 0.0]), "█▁▄▁");
        assert_eq!(sparkline(&[]), "");
        let mut rows = rows(50.0, 50.0);
        assert_eq!(doubt(&rows), None, "single slices count little");
        rows[1].slices = vec![10.0, 20.0, 30.0, 40.0];
        assert!(doubt(&rows).is_some_and(|doubt| doubt.contains("spreads over 67 %")));
    }
}
