//! Quantities and names, formatted for people.

use crate::output::controls_terminal;

/// Formats a count with about three digits.
pub(super) fn count(amount: f64) -> String {
    const STEPS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e4, "k")];
    match STEPS.iter().find(|(step, _)| amount >= *step) {
        // Ten thousand and more are shown in thousands.
        Some((_, "k")) => format!("{:.1}k", amount / 1e3),
        Some((step, unit)) => format!("{:.1}{unit}", amount / step),
        None if amount.fract() == 0.0 || amount >= 100.0 => format!("{amount:.0}"),
        None => format!("{amount:.1}"),
    }
}

/// Formats a rate, or a dash if it was not measured.
pub(super) fn rate(amount: Option<f64>) -> String {
    amount.map_or("-".to_owned(), count)
}

/// Formats a number of bytes.
pub(super) fn bytes(bytes: usize) -> String {
    let amount = bytes as f64;
    match bytes {
        0..10_240 => format!("{bytes}"),
        10_240..1_048_576 => format!("{:.1} KiB", amount / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", amount / 1_048_576.0),
        _ => format!("{:.1} GiB", amount / 1_073_741_824.0),
    }
}

/// Formats a duration given in milliseconds.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s", ms as f64 / 1e3),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

/// Replaces control characters by blanks, so that a text of the other program cannot control the terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Escapes control characters, and characters that change the direction of writing.
pub(super) fn escaped(name: &str) -> String {
    let mut shown = String::new();
    for letter in name.chars() {
        match letter {
            _ if controls_terminal(letter) => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shortened() {
        let cases =
            [(0.0, "0"), (0.25, "0.2"), (7.0, "7"), (99.5, "99.5"), (1234.6, "1235"), (12_345.0, "12.3k")];
        for (amount, text) in cases {
            assert_eq!(count(amount), text);
        }
        assert_eq!(count(2.5e6), "2.5M");
        assert_eq!(count(3e9), "3.0G");
        assert_eq!(rate(None), "-");
        assert_eq!(
            (bytes(104), bytes(20_480), bytes(3 << 20)),
            ("104".into(), "20.0 KiB".into(), "3.0 MiB".into())
        );
        assert_eq!(
            (span(1500), span(90_000), span(7_200_000)),
            ("1.5 s".into(), "90 s".into(), "120 min".into())
        );
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{202e}ä"), "a\\u{1b}[2Jb\\n\\u{202e}ä");
    }
}
