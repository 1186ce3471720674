//! Counts a text: in plain variables, or with a call of the statistics for each word and each line.

use super::stats::{TextStats, Totals};

/// Matches blank, tab, line feed, vertical tab, form feed and carriage return.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Receives the events of a scan, in order.
trait Listener {
    fn word(&mut self);
    fn line(&mut self, bytes: u64);
}

/// Calls `listener` at the end of each word and of each line.
#[inline(always)]
fn scan(text: &[u8], listener: &mut impl Listener) {
    let mut line_start = 0;
    let mut in_word = false;
    for (at, &byte) in text.iter().enumerate() {
        let space = is_space(byte);
        if in_word && space {
            listener.word();
        }
        in_word = !space;
        if byte == b'\n' {
            listener.line((at + 1 - line_start) as u64);
            line_start = at + 1;
        }
    }
    if in_word {
        listener.word();
    }
    if line_start < text.len() {
        listener.line((text.len() - line_start) as u64);
    }
}

impl Listener for Totals {
    #[inline(always)]
    fn word(&mut self) {
        self.words += 1;
    }

    #[inline(always)]
    fn line(&mut self, bytes: u64) {
        self.lines += 1;
        self.bytes += bytes;
        self.longest_line = self.longest_line.max(bytes);
    }
}

/// Reports every event to the statistics and keeps its own count.
struct Teller<'a, S: ?Sized> {
    stats: &'a S,
    counted: Totals,
    calls: u64,
}

impl<S: TextStats + ?Sized> Listener for Teller<'_, S> {
    #[inline(always)]
    fn word(&mut self) {
        self.stats.word();
        self.counted.word();
        self.calls += 1;
    }

    #[inline(always)]
    fn line(&mut self, bytes: u64) {
        self.stats.line(bytes);
        self.counted.line(bytes);
        self.calls += 1;
    }
}

/// Counts one text in plain variables.
pub(super) fn plainly(text: &[u8]) -> Totals {
    let mut totals = Totals { files: 1, ..Totals::default() };
    scan(text, &mut totals);
    totals
}

/// Counts one text by calls: one per word, one per line, and one for the file. Returns the number of calls.
pub(super) fn by_calls<S: TextStats + ?Sized>(stats: &S, thread: usize, text: &[u8]) -> u64 {
    let counted = Totals { files: 1, ..Totals::default() };
    let mut teller = Teller { stats, counted, calls: 0 };
    scan(text, &mut teller);
    stats.file(thread, &teller.counted);
    teller.calls + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_words_and_bytes_are_those_of_the_text() {
        let totals =
            |lines, words, bytes, longest_line| Totals { files: 1, lines, words, bytes, longest_line };
        assert_eq!(plainly(b""), totals(0, 0, 0, 0));
        assert_eq!(plainly(b"\n"), totals(1, 0, 1, 1));
        assert_eq!(plainly(b"one"), totals(1, 1, 3, 3));
        assert_eq!(plainly(b"one two\r\n\tthree\n\n  four"), totals(4, 4, 23, 9));
        assert_eq!(plainly(b"\xff\xfe \x0b\xff\n"), totals(1, 2, 6, 6));
    }
}
