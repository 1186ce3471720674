//! Short names of types, for tables.

use std::collections::HashMap;

/// Strips module paths and constant parameters from a type name: `a::Central<true>` becomes `Central`.
pub(crate) fn class(name: &str) -> String {
    without_constants(&without_paths(name))
}

/// Short names of the classes of many objects. Each class is shortened once.
#[derive(Default)]
pub(crate) struct Classes(HashMap<&'static str, String>);

impl Classes {
    pub(crate) fn short(&mut self, name: &'static str) -> &str {
        self.0.entry(name).or_insert_with(|| class(name))
    }
}

/// Strips the module paths from a type name.
pub(crate) fn without_paths(name: &str) -> String {
    let mut short = String::new();
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
        } else if letter == ':' {
            word.clear();
        } else {
            short.push_str(&word);
            word.clear();
            short.push(letter);
        }
    }
    short + &word
}

/// Strips the parameters that are booleans, numbers or characters, and then empty angle brackets.
fn without_constants(name: &str) -> String {
    let mut short = String::new();
    // Start of the present parameter, for each open bracket.
    let mut open: Vec<usize> = Vec::new();
    for letter in name.chars() {
        let ends_parameter = letter == ',' || letter == '>' && !short.ends_with('-');
        let start = if ends_parameter { open.last().copied() } else { None };
        let is_constant = start.is_some_and(|start| is_constant(&short[start..]));
        if let Some(start) = start.filter(|_| is_constant) {
            short.truncate(start);
        }
        match letter {
            '<' => {
                short.push('<');
                open.push(short.len());
            }
            // The next parameter takes the place of this one.
            ',' if is_constant => {}
            ',' => {
                short.push(',');
                if let Some(start) = open.last_mut() {
                    *start = short.len();
                }
            }
            '>' if start.is_some() => {
                open.pop();
                let end = short.trim_end_matches([' ', ',']).len();
                if is_constant {
                    short.truncate(end);
                }
                if short.ends_with('<') {
                    short.pop();
                } else {
                    short.push('>');
                }
            }
            ' ' if open.last().is_some_and(|start| *start == short.len()) && short.ends_with('<') => {}
            _ => short.push(letter),
        }
    }
    short
}

fn is_constant(parameter: &str) -> bool {
    let text = parameter.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit());
    is_number
        || matches!(text, "true" | "false")
        || text.starts_with('\'') && text.ends_with('\'') && text.len() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_lose_their_paths_at_every_depth() {
        assert_eq!(without_paths("alpha::beta::Gamma"), "Gamma");
        assert_eq!(without_paths("a::B<c::D, &e::f::G>"), "B<D, &G>");
        assert_eq!(without_paths("u64"), "u64");
    }

    #[test]
    fn names_of_types_lose_their_constant_parameters() {
        for (name, short) in [
            ("squall_objects::counter::shared::Central<true>", "Central"),
            ("a::Single<alloc::string::String, u64, true>", "Single<String, u64>"),
            ("a::B<3, c::D, -1, false>", "B<D>"),
            ("a::B<c::D<false>, 'x', u8>", "B<D, u8>"),
            ("a::B<fn(u8) -> c::D<1>, [u8; 4]>", "B<fn(u8) -> D, [u8; 4]>"),
            ("B<&'static str>", "B<&'static str>"),
            ("u64", "u64"),
        ] {
            assert_eq!(class(name), short);
        }
    }
}
