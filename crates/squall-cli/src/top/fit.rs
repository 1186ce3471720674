//! Fits the table to a width: leaves out columns, and cuts names.

use ratatui::text::Span;

use super::print::{CLASS, COLUMNS, DROPPED_FIRST, NAME};

/// Blanks between two columns.
pub(super) const GAP: usize = 2;
/// Columns are left out until these columns have this width, or all that they need.
const LEAST: usize = 16;

/// Returns the width of a text on a terminal.
pub(super) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to a width. A cut text ends with `…`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for letter in text.chars() {
        short.push(letter);
        if width_of(&short) >= width {
            short.pop();
            break;
        }
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Wraps a text into lines of at most a width, at blanks. Cuts longer words.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if width_of(last) + 1 + width_of(word) <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(cut(word, width)),
        }
    }
    lines
}

/// A shown column: its index in [`COLUMNS`], and its width.
pub(super) type Shown = (usize, usize);

/// Chooses the columns of a table, and their widths. Without a width, all columns are shown in full.
pub(super) fn columns(rows: &[[String; COLUMNS.len()]], width: Option<usize>) -> Vec<Shown> {
    let full = |column: usize| {
        let cells = rows.iter().map(|cells| width_of(&cells[column]));
        cells.chain([width_of(COLUMNS[column])]).max().unwrap_or(0)
    };
    let mut shown: Vec<Shown> = (0..COLUMNS.len()).map(|column| (column, full(column))).collect();
    let Some(width) = width else { return shown };
    let needed: Vec<usize> = shown.iter().map(|(_, width)| *width).collect();
    for (column, width) in &mut shown {
        if [NAME, CLASS].contains(column) {
            *width = (*width).min(LEAST);
        }
    }
    let total = |shown: &[Shown]| {
        shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    for dropped in DROPPED_FIRST {
        if total(&shown) > width {
            shown.retain(|(column, _)| *column != dropped);
        }
    }
    // The rest goes to the shorter of the texts that are still cut.
    for _ in total(&shown)..width {
        let short = shown.iter_mut().filter(|(column, width)| *width < needed[*column]);
        let Some((_, width)) = short.min_by_key(|(_, width)| *width) else { break };
        *width += 1;
    }
    shown
}

/// Formats one row of the table.
pub(super) fn row(cells: &[String; COLUMNS.len()], shown: &[Shown], width: Option<usize>) -> String {
    let mut line = String::new();
    for (place, (column, width)) in shown.iter().enumerate() {
        let text = cut(&cells[*column], *width);
        let blanks = " ".repeat(width.saturating_sub(width_of(&text)));
        if place > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        let (before, after) = if super::print::is_number(*column) { (&*blanks, "") } else { ("", &*blanks) };
        line.push_str(before);
        line.push_str(&text);
        line.push_str(after);
    }
    let line = line.trim_end();
    width.map_or_else(|| line.to_owned(), |width| cut(line, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(name: &str, class: &str) -> [String; COLUMNS.len()] {
        let mut cells = COLUMNS.map(|_| "12345".to_owned());
        (cells[NAME], cells[CLASS]) = (name.to_owned(), class.to_owned());
        cells
    }

    #[test]
    fn a_cut_text_ends_with_dots_and_fits() {
        assert_eq!(
            [cut("abcd", 4), cut("abcde", 4), cut("日本語", 4), cut("a", 0)],
            ["abcd", "abc…", "日…", ""]
        );
    }

    #[test]
    fn each_width_is_kept_and_names_come_first() {
        let rows = [cells(&"name ".repeat(20), "counter (distributed)"), cells("-", "Map (Table)")];
        for width in 1..200 {
            let shown = columns(&rows, Some(width));
            assert_eq!(shown[0].0, NAME);
            for cells in &rows {
                assert!(width_of(&row(cells, &shown, Some(width))) <= width, "{width}: {shown:?}");
            }
        }
        let at_80 = columns(&rows, Some(80));
        assert!(at_80.iter().any(|(column, _)| COLUMNS[*column] == "contended/s"), "{at_80:?}");
        assert!(at_80.len() < COLUMNS.len() && at_80[0].1 >= LEAST, "{at_80:?}");
        let full = columns(&rows, None);
        assert_eq!((full.len(), full[0].1), (COLUMNS.len(), 100));
        assert!(row(&rows[0], &full, None).contains(&"name ".repeat(20)));
    }

    #[test]
    fn wrapped_lines_fit_and_keep_the_words() {
        let lines = wrap("one two three four", 9);
        assert_eq!(lines, ["one two", "three", "four"]);
        assert_eq!(wrap("abcdefgh", 4), ["abc…"]);
    }
}
