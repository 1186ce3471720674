//! Rust source for tidy: each line split into code and comment, with tests and functions marked.
//!
//! Idea: a small lexer knows comments, strings, characters and lifetimes, but no grammar. Rules ask for words
//! in code, words in comments and the extent of functions. The lexer is exact for these, and needs no
//! compiler.
//!
//! - I1. `code` and `comment` have as many lines as the text. Each holds only its own kind, so the contents
//!   of strings are in neither.
//! - I2. A line is marked as test if it belongs to an item under `#[cfg(test)]`, or if the whole file is a
//!   test.
//!
//! Not promised: macros with unbalanced braces, and raw identifiers. Cost: one pass over the text.

/// A function found in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The line of its `fn`, from 0.
    pub(crate) line: usize,
    /// Lines from its `fn` to its closing brace, both counted.
    pub(crate) lines_count: usize,
}

/// A file of Rust.
#[derive(Debug)]
pub(crate) struct Source {
    /// The code of each line, with strings and characters reduced to their quotes.
    pub(crate) code: Vec<String>,
    /// The comment of each line, with its slashes or stars.
    pub(crate) comment: Vec<String>,
    /// Whether each line is test code.
    pub(crate) test: Vec<bool>,
}

impl Source {
    /// Reads `text`; `whole_file_is_test` marks all of it as test code.
    pub(crate) fn new(text: &str, whole_file_is_test: bool) -> Source {
        let (code, comment) = Lexer::part(text);
        let mut test = vec![whole_file_is_test; code.len()];
        if !whole_file_is_test {
            mark_tests(&code, &mut test);
        }
        Source { code, comment, test }
    }

    /// The functions with a body, in order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (line, code) in self.code.iter().enumerate() {
            for start in word_positions(code, "fn") {
                let name: String = code[start + 2..]
                    .trim_start()
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if name.is_empty() {
                    continue;
                }
                if let Some(end) = body_end(&self.code, line, start) {
                    functions.push(Function { name, line, lines_count: end - line + 1 });
                }
            }
        }
        functions
    }

    /// The modules that are declared here for tests only and lie in separate files.
    pub(crate) fn test_modules(&self) -> Vec<&str> {
        let marked = self.code.iter().zip(&self.test).filter(|(_, test)| **test).map(|(code, _)| code.trim());
        marked.filter_map(|code| code.rsplit_once("mod ")?.1.strip_suffix(';')).collect()
    }

    /// The lines of code outside tests, with their numbers from 0.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .iter()
            .enumerate()
            .filter(|(line, _)| !self.test[*line])
            .map(|(line, code)| (line, code.as_str()))
    }
}

/// The places in `code` of `word` as a whole word.
pub(crate) fn word_positions(code: &str, word: &str) -> Vec<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| !code[..*at].chars().next_back().is_some_and(part_of_word))
        .filter(|at| !code[at + word.len()..].chars().next().is_some_and(part_of_word))
        .collect()
}

/// The line of the brace that closes the first body opened at or after this place; `None` if a `;` comes
/// first.
fn body_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let mut depth = 0_i32;
    let mut brackets = 0_i32;
    for (at, text) in code.iter().enumerate().skip(line) {
        let text = if at == line { &text[column..] } else { text.as_str() };
        for c in text.chars() {
            match c {
                '(' | '[' if depth == 0 => brackets += 1,
                ')' | ']' if depth == 0 => brackets -= 1,
                ';' if depth == 0 && brackets == 0 => return None,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth <= 0 {
                        return (depth == 0).then_some(at);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Marks the items that stand under `#[cfg(test)]` or `#[test]`.
fn mark_tests(code: &[String], test: &mut [bool]) {
    for line in 0..code.len() {
        if test[line] || !only_in_tests(&code[line]) {
            continue;
        }
        // The item begins after the attribute, on the same line or after further attributes.
        let column = code[line].find(']').map_or(0, |at| at + 1);
        let end = item_end(code, line, column);
        test[line..=end].fill(true);
    }
}

/// Whether an attribute in this line restricts the next item to tests: it names `test`, not negated.
fn only_in_tests(code: &str) -> bool {
    let squeezed: String = code.split_whitespace().collect();
    let Some(at) = squeezed.find("#[cfg(") else { return squeezed.contains("#[test]") };
    let condition = &squeezed[at..];
    // Under `any`, the item may exist in other builds too.
    !condition.contains("not(test")
        && !condition.contains("any(test")
        && !word_positions(condition, "test").is_empty()
}

/// The last line of the item that begins here: its closing brace, or its `;`.
fn item_end(code: &[String], line: usize, column: usize) -> usize {
    if let Some(end) = body_end(code, line, column) {
        return end;
    }
    let rest = std::iter::once(&code[line][column..]).chain(code[line + 1..].iter().map(String::as_str));
    rest.take_while(|text| !text.contains(';')).count().min(code.len() - 1 - line) + line
}

/// Splits text into code and comments.
struct Lexer<'a> {
    rest: &'a str,
    code: Vec<String>,
    comment: Vec<String>,
}

impl<'a> Lexer<'a> {
    fn part(text: &'a str) -> (Vec<String>, Vec<String>) {
        let mut lexer = Lexer { rest: text, code: vec![String::new()], comment: vec![String::new()] };
        while !lexer.rest.is_empty() {
            lexer.step();
        }
        (lexer.code, lexer.comment)
    }

    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(length, Kind::Comment);
        } else if self.rest.starts_with("/*") {
            self.take(block_comment(self.rest), Kind::Comment);
        } else if let Some(hashes) = raw_string(self.rest) {
            let open = self.rest.find('"').expect("a raw string has a quote") + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let length = self.rest[open..].find(&close).map_or(self.rest.len(), |at| open + at + close.len());
            self.take(length, Kind::Text);
        } else if self.rest.starts_with('"') || self.rest.starts_with("b\"") || self.rest.starts_with("c\"") {
            self.take(string(self.rest), Kind::Text);
        } else if let Some(length) = character(self.rest) {
            self.take(length, Kind::Text);
        } else {
            // Take a whole word at once: an `r` or `b` at its end must not open a string.
            let word = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            let length = if word > 0 { word } else { self.rest.chars().next().map_or(1, char::len_utf8) };
            self.take(length, Kind::Code);
        }
    }

    fn take(&mut self, length: usize, kind: Kind) {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        if let Kind::Text = kind {
            self.line(&mut |code, _| code.push('"'));
        }
        for (index, part) in taken.split('\n').enumerate() {
            if index > 0 {
                self.code.push(String::new());
                self.comment.push(String::new());
            }
            match kind {
                Kind::Code => self.line(&mut |code, _| code.push_str(part)),
                Kind::Comment => self.line(&mut |_, comment| comment.push_str(part)),
                Kind::Text => {}
            }
        }
        if let Kind::Text = kind {
            self.line(&mut |code, _| code.push('"'));
        }
    }

    fn line(&mut self, write: &mut dyn FnMut(&mut String, &mut String)) {
        if let (Some(code), Some(comment)) = (self.code.last_mut(), self.comment.last_mut()) {
            write(code, comment);
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Text,
}

/// The length of the block comment at the start; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The number of hashes of the raw string at the start, if there is one.
fn raw_string(text: &str) -> Option<usize> {
    let rest =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// The length of the plain string at the start. A letter may stand before its quote.
fn string(text: &str) -> usize {
    let open = text.find('"').expect("a string has a quote") + 1;
    let mut escaped = false;
    for (at, c) in text[open..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return open + at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the character literal at the start; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    let mut chars = rest.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        // The escaped character itself may be a quote.
        let escaped = chars.next()?.1.len_utf8();
        return rest[1 + escaped..].find('\'').map(|at| 1 + 1 + escaped + at + 1);
    }
    rest[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::{Function, Source};

    fn code(text: &str) -> Vec<String> {
        Source::new(text, false).code
    }

    #[test]
    fn comments_and_strings_are_left_out_of_code() {
        assert_eq!(code("let a = \"x // y\"; // z"), ["let a = \"\"; "]);
        assert_eq!(code("a /* b /* c */ d */ e"), ["a  e"]);
        assert_eq!(code("r#\"one \" two\"# + br\"x\" + c\"y\""), ["\"\" + \"\" + \"\""]);
        assert_eq!(code("\"two\nlines\" x"), ["\"", "\" x"]);
        assert_eq!(code(r#"("\"", '"', '\'', b'\\', '\u{41}')"#), [r#"("", "", "", b"", "")"#]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(
            code("fn f<'a>(x: &'a str, y: &'static u8) {}"),
            ["fn f<'a>(x: &'a str, y: &'static u8) {}"]
        );
        assert_eq!(code("for\"x\""), ["for\"\""]);
    }

    #[test]
    fn comments_are_kept_by_line() {
        let source = Source::new("//! top\nx(); // why\n/* a\nb */ y", false);
        assert_eq!(source.comment, ["//! top", "// why", "/* a", "b */"]);
        assert_eq!(source.code, ["", "x(); ", "", " y"]);
    }

    #[test]
    fn items_under_cfg_test_are_tests() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse x;\nfn d() {}";
        let test = Source::new(text, false).test;
        assert_eq!(test, [false, true, true, true, true, false, true, true, false]);
        let text = "#[cfg(all(loom, test))]\nmod model;\nfn a() {}\n#[cfg(not(test))]\nmod b;";
        let source = Source::new(text, false);
        assert_eq!(source.test, [true, true, false, false, false]);
        assert_eq!(source.test_modules(), ["model"]);
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text = "fn one() { 1 }\npub fn two(x: [u8; 2])\n    -> u8\n{\n    { x }\n}\ntrait T { fn none(); }\nlet f: fn(u8);";
        let functions = Source::new(text, false).functions();
        let expected = [("one", 0, 1), ("two", 1, 5)].map(|(name, line, lines_count)| Function {
            name: name.into(),
            line,
            lines_count,
        });
        assert_eq!(functions, expected);
    }
}
