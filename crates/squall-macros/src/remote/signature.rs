//! The text of a remote interface, from which both processes compute a hash.
//!
//! - I1. The text depends on the tokens of the signatures alone: not on white space, names of arguments, line
//!   breaks, or the version of the compiler.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

use crate::parse::Interface;

/// Returns the text of an interface with this version, for example
/// `Counter{add(u64)->();get()->u64};version=1`.
pub(crate) fn signature(interface: &Interface, version: u64) -> String {
    let methods = interface.methods.iter().map(|method| {
        let arguments: Vec<_> =
            method.arguments.iter().map(|argument| text(argument.ty.to_token_stream())).collect();
        let name = method.item.sig.ident.unraw();
        format!("{name}({})->{}", arguments.join(","), text(method.returned.to_token_stream()))
    });
    let methods: Vec<_> = methods.collect();
    format!("{}{{{}}};version={version}", interface.item.ident.unraw(), methods.join(";"))
}

/// Returns the FNV-1a hash of a text, of 64 bits.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the text of tokens, with a space between two words and nowhere else.
fn text(tokens: TokenStream) -> String {
    let mut text = String::new();
    append(&mut text, tokens);
    text
}

fn append(text: &mut String, tokens: TokenStream) {
    for token in tokens {
        let written = match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    // A macro passed the type on.
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                append(text, group.stream());
                text.push_str(close);
                continue;
            }
            other => other.to_string(),
        };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if text.ends_with(is_word) && written.starts_with(is_word) {
            text.push(' ');
        }
        text.push_str(&written);
    }
}
