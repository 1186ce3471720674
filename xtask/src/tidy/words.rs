//! The prose of a file, which is its comments or its Markdown text, and the words that rules count there.
//!
//! - I1. Code blocks are left out: the lines between two lines that begin with three back-ticks.
//! - I2. A line of Rust gives at most one line of prose: the comment that begins it, or the comment after `
//!   // `.

/// Words that open a clause in the place of a noun.
const RELATIVES: [&str; 6] = ["what", "who", "whoever", "whatever", "whose", "whom"];
/// Negative words in the place of a noun.
const NEGATIVES: [&str; 3] = ["nobody", "nothing", "none"];

/// A line of prose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prose<'t> {
    /// Its number, from 0.
    pub(crate) line: usize,
    /// Its text without the marks of a comment.
    pub(crate) text: &'t str,
    /// Whether it is the first line of a doc comment.
    pub(crate) opens_doc: bool,
}

/// The lines of prose in the file `path`, which is Rust or Markdown.
pub(crate) fn prose<'t>(path: &str, text: &'t str) -> Vec<Prose<'t>> {
    if path.ends_with(".md") { prose_of_markdown(text) } else { prose_of_rust(text) }
}

fn prose_of_markdown(text: &str) -> Vec<Prose<'_>> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !text.is_empty() && !text.starts_with("|---") {
            found.push(Prose { line, text, opens_doc: false });
        }
    }
    found
}

fn prose_of_rust(text: &str) -> Vec<Prose<'_>> {
    let mut found = Vec::new();
    let (mut in_code, mut after_doc) = (false, false);
    for (line, raw) in text.lines().enumerate() {
        let Some((is_doc, text)) = comment(raw.trim()) else {
            if let Some(text) = trailing_comment(raw) {
                found.push(Prose { line, text, opens_doc: false });
            }
            (in_code, after_doc) = (false, false);
            continue;
        };
        if text.starts_with("```") {
            in_code = !in_code;
            after_doc = true;
            continue;
        }
        if !in_code && !text.is_empty() {
            found.push(Prose { line, text, opens_doc: is_doc && !after_doc });
        }
        after_doc = is_doc;
    }
    found
}

/// The lines of code in the documentation of the file `path`, with their numbers from 0.
pub(crate) fn example_lines<'t>(path: &str, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let is_markdown = path.ends_with(".md");
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(line, raw)| {
        let text = if is_markdown { Some(raw.trim()) } else { doc_comment(raw.trim()) };
        let Some(text) = text else {
            in_code = false;
            return None;
        };
        let is_fence = text.starts_with("```");
        in_code ^= is_fence;
        (in_code && !is_fence).then_some((line, text))
    })
}

/// The text of a line that documents an item.
fn doc_comment(line: &str) -> Option<&str> {
    comment(line).and_then(|(is_doc, text)| is_doc.then_some(text))
}

/// Whether a line that is a comment documents an item, and its text; `None` for other lines.
fn comment(line: &str) -> Option<(bool, &str)> {
    let marks = [("///", true), ("//!", true), ("//", false)];
    marks.iter().find_map(|(mark, is_doc)| {
        let text = line.strip_prefix(mark)?;
        (!text.starts_with('/')).then(|| (*is_doc, text.trim()))
    })
}

/// The comment that follows code on its line.
fn trailing_comment(line: &str) -> Option<&str> {
    line.match_indices("//").find_map(|(at, mark)| {
        let before = line[..at].chars().next_back()?;
        let rest = &line[at + mark.len()..];
        let space = rest.chars().next()?;
        (before.is_whitespace() && space.is_whitespace()).then(|| &rest[space.len_utf8()..])
    })
}

/// The number of words: letters, apostrophes and underscores after a letter.
pub(crate) fn words_count(text: &str) -> usize {
    let mut count = 0;
    let mut in_word = false;
    for c in text.chars() {
        let starts = c.is_ascii_alphabetic();
        count += usize::from(starts && !in_word);
        in_word = starts || (in_word && (c == '\'' || c == '_'));
    }
    count
}

/// The number of relatives: the words of [`RELATIVES`].
pub(crate) fn relatives_count(text: &str) -> usize {
    tokens(text).filter(|(_, word)| RELATIVES.iter().any(|known| word.eq_ignore_ascii_case(known))).count()
}

/// The number of negatives: the words of [`NEGATIVES`], and "no" followed by "one".
pub(crate) fn negatives_count(text: &str) -> usize {
    let is_no_one = |at: usize, word: &str| {
        let rest = text[at + word.len()..].strip_prefix(' ');
        let next = rest.and_then(|rest| tokens(rest).next().filter(|(start, _)| *start == 0));
        word.eq_ignore_ascii_case("no") && next.is_some_and(|(_, next)| next.eq_ignore_ascii_case("one"))
    };
    tokens(text)
        .filter(|(at, word)| {
            NEGATIVES.iter().any(|known| word.eq_ignore_ascii_case(known)) || is_no_one(*at, word)
        })
        .count()
}

/// The runs of letters, digits and underscores in `text`, each with its place.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(part_of_word)?;
        let length = text[start..].find(|c| !part_of_word(c)).unwrap_or(text.len() - start);
        at = start + length;
        Some((start, &text[start..at]))
    })
}

/// Whether a doc comment that begins with `text` opens with a pointer instead of a noun or a verb.
pub(crate) fn opens_with_pointer(text: &str) -> bool {
    const WORDS: [&str; 10] =
        ["What", "Who", "Whoever", "It", "None", "Nothing", "This", "Of", "Those", "That"];
    let first = tokens(text).next().filter(|(at, _)| *at == 0).map(|(_, word)| word);
    let same = text
        .strip_prefix("The same")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
    same || text.starts_with("As [")
        || text.starts_with("As `")
        || first.is_some_and(|word| WORDS.contains(&word))
}

/// The sentences of more than `limit` words, each with the first line, from 0, of its paragraph. A sentence
/// ends with `.`, `!`, `?`, `:` or `;` before a space. Headings and tables hold no sentences.
pub(crate) fn long_sentences(prose: &[Prose<'_>], limit: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut start = 0;
    let mut flush = |paragraph: &mut Vec<&str>, start: usize| {
        for sentence in sentences(&paragraph.join(" ")) {
            if sentence.split_whitespace().count() > limit && !sentence.contains('|') {
                found.push((start, sentence));
            }
        }
        paragraph.clear();
    };
    let mut previous = None;
    for Prose { line, text, .. } in prose {
        if previous.is_none_or(|previous| previous + 1 != *line) {
            flush(&mut paragraph, start);
            start = *line;
        }
        previous = Some(*line);
        if !text.starts_with(['|', '#']) {
            paragraph.push(text);
        }
    }
    flush(&mut paragraph, start);
    found
}

/// The sentences of a paragraph.
fn sentences(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut ended = false;
    for c in text.chars() {
        if ended && c.is_whitespace() {
            found.push(String::new());
        } else if let Some(sentence) = found.last_mut() {
            sentence.push(c);
        }
        ended = ".!?:;".contains(c);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{
        Prose, example_lines, long_sentences, negatives_count, opens_with_pointer, prose, relatives_count,
        words_count,
    };

    fn lines(path: &str, text: &'static str) -> Vec<(usize, &'static str, bool)> {
        let prose = prose(path, text).into_iter();
        prose.map(|Prose { line, text, opens_doc }| (line, text, opens_doc)).collect()
    }

    #[test]
    fn comments_are_prose_and_code_is_none() {
        let text = concat!(
            "//! Head.\n",
            "//! More.\n",
            "fn f() { // why\n",
            "    /// Doc.\n",
            "    ///\n",
            "    /// Second.\n",
            "    //// no\n",
            "    // plain\n",
            "    x(\"//\") }\n"
        );
        let expected = [
            (0, "Head.", true),
            (1, "More.", false),
            (2, "why", false),
            (3, "Doc.", true),
            (5, "Second.", false),
            (7, "plain", false),
        ];
        assert_eq!(lines("a.rs", text), expected);
    }

    #[test]
    fn code_blocks_are_left_out() {
        let text = "/// One.\n/// ```\n/// let who = 1;\n/// ```\n/// Two.\n";
        assert_eq!(lines("a.rs", text), [(0, "One.", true), (4, "Two.", false)]);
        let text = "# Title\n```rust\nwhat\n```\n\n|---|\n| a |\n";
        assert_eq!(lines("a.md", text), [(0, "# Title", false), (6, "| a |", false)]);
    }

    #[test]
    fn examples_are_the_code_of_the_documentation() {
        let examples = |path, text| example_lines(path, text).collect::<Vec<_>>();
        let text =
            "/// One.\n    //! ```\n    //! # a();\n    //! ```\n/// ```text\n// ```\nb();\n/// c();\n";
        assert_eq!(examples("a.rs", text), [(2, "# a();")]);
        assert_eq!(examples("a.md", "One.\n```\n  a();\n```\nb();\n"), [(2, "a();")]);
    }

    #[test]
    fn words_are_counted() {
        assert_eq!(words_count("It's a_b 3rd x2y, don't"), 6);
        assert_eq!(relatives_count("What's that? WHO, whose; somewhat who_else"), 3);
        assert_eq!(negatives_count("None, `None`, nothing; no one, no  one, nonesuch no onerous"), 4);
        assert_eq!(negatives_count("no"), 0);
    }

    #[test]
    fn pointers_are_known() {
        for text in ["The same, but", "As [`f`]", "As `f`", "What it", "It's", "This.", "Of a", "None"] {
            assert!(opens_with_pointer(text), "{text}");
        }
        for text in ["The sameness", "As a", "Whatever", "`It`", "Items", "Office", "Thatch", ""] {
            assert!(!opens_with_pointer(text), "{text}");
        }
    }

    #[test]
    fn long_sentences_are_found_by_paragraph() {
        let text = "// One two three. Four five\n// six seven eight.\n\n// One two\n// # Three four five\n// | one two three four five |\n";
        let found = long_sentences(&prose("a.rs", text), 4);
        assert_eq!(found, [(0, "Four five six seven eight.".to_owned())]);
    }
}
