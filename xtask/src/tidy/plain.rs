//! Rules about the prose of comments and Markdown. Each of them has a ratchet.

use super::problems::Problems;
use super::ratchet::{self, Count, Counts, Measure};
use super::source::{Source, word_positions};
use super::tree::Tree;
use super::words::{
    long_sentences, negatives_count, opens_with_pointer, prose, relatives_count, words_count,
};

/// Relatives per 1000 words that a file may have.
const RELATIVES_MAX: usize = 3;
/// Negatives per 1000 words that a file may have.
const NEGATIVES_MAX: usize = 4;
/// A file with fewer words may have one relative and one negative.
const WORDS_MIN: usize = 80;
/// The most columns of a line with a comment.
const COLUMNS_MAX: usize = 110;
/// The most words that a sentence should have.
const SENTENCE_WORDS_MAX: usize = 25;
/// The most places that a message names.
const PLACES_MAX: usize = 8;

const RELATIVES: Measure =
    Measure { rule: "plain-words", name: "relatives", unit: "relatives (what, who, whose ...)" };
const NEGATIVES: Measure =
    Measure { rule: "plain-words", name: "negatives", unit: "negatives (nobody, nothing, none, no one)" };
const OPENINGS: Measure =
    Measure { rule: "plain-openings", name: "openings", unit: "doc comments that open with a pointer" };
const COLUMNS: Measure =
    Measure { rule: "comment-columns", name: "columns", unit: "comment lines above 110 columns" };
const UNARGUED: Measure =
    Measure { rule: "safety-comment", name: "unargued", unit: "unsafe blocks without a SAFETY comment" };

/// `plain-words`: at most 3 relatives and 4 negatives per 1000 words.
pub(crate) fn plain_words(tree: &Tree, problems: &mut Problems) {
    check(tree, problems);
}

/// `plain-openings`: a doc comment begins with a noun or a verb, not with a pointer.
pub(crate) fn plain_openings(tree: &Tree, problems: &mut Problems) {
    check(tree, problems);
}

/// `comment-columns`: a line with a comment has at most 110 columns.
pub(crate) fn comment_columns(tree: &Tree, problems: &mut Problems) {
    check(tree, problems);
}

/// `safety-comment`: each `unsafe` block and `unsafe impl` has a comment that begins with `SAFETY:`, in tests
/// too. It stands on its line or directly above its statement.
pub(crate) fn safety_comment(tree: &Tree, problems: &mut Problems) {
    check(tree, problems);
}

/// Compares the counts of the rule that `problems` belongs to with the ratchet.
fn check(tree: &Tree, problems: &mut Problems) {
    let rule = problems.rule();
    for (measure, counts) in counts(tree, problems).into_iter().filter(|(measure, _)| measure.rule == rule) {
        ratchet::check(tree, problems, measure, &counts);
    }
}

/// The files with counted prose: Rust and Markdown, without recorded results.
fn files(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let has_prose = |path: &str| path.ends_with(".rs") || path.ends_with(".md");
    tree.written().filter(move |(path, _)| has_prose(path) && !path.starts_with("docs/results"))
}

/// The counts of all measures in this module, by path.
pub(crate) fn counts(tree: &Tree, _: &mut Problems) -> Vec<(Measure, Counts)> {
    let [mut relatives, mut negatives, mut openings, mut columns, mut unargued] =
        [const { Counts::new() }; 5];
    for (path, text) in files(tree) {
        let prose = prose(path, text);
        let words: usize = prose.iter().map(|prose| words_count(prose.text)).sum();
        let of = |count: fn(&str) -> usize, per_thousand: usize| {
            let lines = prose.iter().map(|prose| (prose.line, count(prose.text)));
            let limit = if words < WORDS_MIN { 1 } else { per_thousand * words / 1000 };
            count_at(lines.filter(|(_, count)| *count > 0), limit)
        };
        relatives.insert(path.to_owned(), of(relatives_count, RELATIVES_MAX));
        negatives.insert(path.to_owned(), of(negatives_count, NEGATIVES_MAX));
        let Some(source) = tree.sources.get(path) else { continue };
        let pointers = prose.iter().filter(|prose| prose.opens_doc && opens_with_pointer(prose.text));
        openings.insert(path.to_owned(), count_at(pointers.map(|prose| (prose.line, 1)), 0));
        let lines: Vec<&str> = text.lines().collect();
        let wide = prose.iter().filter(|prose| lines[prose.line].chars().count() > COLUMNS_MAX);
        columns.insert(path.to_owned(), count_at(wide.map(|prose| (prose.line, 1)), 0));
        unargued.insert(path.to_owned(), count_at(unargued_lines(source).map(|line| (line, 1)), 0));
    }
    vec![
        (RELATIVES, relatives),
        (NEGATIVES, negatives),
        (OPENINGS, openings),
        (COLUMNS, columns),
        (UNARGUED, unargued),
    ]
}

/// The sum of counts at lines, with the first lines for messages.
fn count_at(lines: impl Iterator<Item = (usize, usize)>, limit: usize) -> Count {
    let lines: Vec<(usize, usize)> = lines.collect();
    let mut places: Vec<String> =
        lines.iter().take(PLACES_MAX).map(|(line, _)| (line + 1).to_string()).collect();
    if lines.len() > PLACES_MAX {
        places.push("...".to_owned());
    }
    let count = Count::new(lines.iter().map(|(_, count)| count).sum(), limit);
    if places.is_empty() { count } else { count.with_places(format!("lines {}", places.join(", "))) }
}

/// The lines, from 0, of the `unsafe` blocks and impls without a SAFETY comment.
fn unargued_lines(source: &Source) -> impl Iterator<Item = usize> {
    let claims = |code: &str| {
        word_positions(code, "unsafe").iter().any(|at| {
            let rest = code[at + "unsafe".len()..].trim_start();
            rest.starts_with('{') || rest.starts_with("impl")
        })
    };
    source
        .code
        .iter()
        .enumerate()
        .filter(move |(_, code)| claims(code))
        .map(|(line, _)| line)
        .filter(|line| !is_argued(source, *line))
}

/// Whether a SAFETY comment stands on this line or directly above its statement.
fn is_argued(source: &Source, line: usize) -> bool {
    const MARK: &str = "SAFETY:";
    if source.comment[line].contains(MARK) {
        return true;
    }
    for above in (0..line).rev() {
        if source.comment[above].contains(MARK) {
            return true;
        }
        let code = source.code[above].trim();
        let is_attribute = code.starts_with("#[");
        // rustfmt may wrap the body of a match arm in a block, below the comment.
        let ends_statement = code.ends_with([';', '{', '}']) && !code.ends_with("=> {");
        let is_blank = code.is_empty() && source.comment[above].is_empty();
        if is_blank || (ends_statement && !is_attribute) {
            return false;
        }
    }
    false
}

/// Prints the sentences of more than 25 words.
pub(crate) fn print_long(tree: &Tree) {
    for (path, text) in files(tree) {
        for (line, sentence) in long_sentences(&prose(path, text), SENTENCE_WORDS_MAX) {
            println!("{path}:{}: {} words: {sentence}", line + 1, sentence.split_whitespace().count());
        }
    }
}
