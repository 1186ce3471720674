//! The attributes of the user's items that are repeated on generated items.
//!
//! Problem: a generated method must exist exactly when its original does (`cfg`), and must not warn where the
//! user has silenced a warning. Repeating `#[inline]` or another macro's attribute would be wrong or noisy.
//! Idea: a list of the attributes to repeat, applied inside `cfg_attr` too. All others stay on the original
//! only.
//!
//! - I1. `#[blocking]` belongs to this macro and appears in no output.
//! - I2. `cfg` is repeated everywhere, so a generated item exists if and only if its original does.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// The kind of a generated item, which selects the attributes repeated on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// A checked form: callers see it beside the method.
    Checked,
    /// An implementation: its attributes are invisible to callers.
    Implementation,
}

/// Returns the attributes among `attributes` to repeat on a generated item of kind `on`.
pub(crate) fn repeated(attributes: &[Attribute], on: On) -> TokenStream {
    attributes
        .iter()
        .filter_map(|attribute| repeated_meta(&attribute.meta, on))
        .map(|meta| quote!(#[#meta]))
        .collect()
}

/// Returns the repeated part of one attribute.
fn repeated_meta(meta: &Meta, on: On) -> Option<TokenStream> {
    let name = meta.path().get_ident()?.to_string();
    match (name.as_str(), meta) {
        ("cfg" | "allow", _) => Some(meta.to_token_stream()),
        // An expectation is fulfilled once, by the user's own item. On a generated item it would be a
        // warning.
        ("expect", Meta::List(list)) => {
            let lints = &list.tokens;
            Some(quote!(allow(#lints)))
        }
        ("cfg_attr", Meta::List(_)) => {
            let (condition, applied) = conditional(meta)?;
            let applied: Vec<_> = applied.iter().filter_map(|meta| repeated_meta(meta, on)).collect();
            (!applied.is_empty()).then(|| quote!(cfg_attr(#condition, #(#applied),*)))
        }
        ("deprecated" | "track_caller", _) if on == On::Checked => Some(meta.to_token_stream()),
        ("doc", Meta::List(list)) if on == On::Checked && list.tokens.to_string() == "hidden" => {
            Some(meta.to_token_stream())
        }
        _ => None,
    }
}

/// Returns the condition of a `cfg_attr` and the attributes that it applies.
fn conditional(meta: &Meta) -> Option<(Meta, Vec<Meta>)> {
    let Meta::List(list) = meta else { return None };
    if !list.path.is_ident("cfg_attr") {
        return None;
    }
    let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut metas = metas.into_iter();
    Some((metas.next()?, metas.collect()))
}

/// Whether this is `#[blocking]`, with or without arguments.
pub(crate) fn is_blocking(attribute: &Attribute) -> bool {
    attribute.path().is_ident("blocking")
}

/// Whether this is a `cfg_attr` that applies `blocking`.
pub(crate) fn hides_blocking(attribute: &Attribute) -> bool {
    applies_blocking(&attribute.meta)
}

fn applies_blocking(meta: &Meta) -> bool {
    conditional(meta).is_some_and(|(_, applied)| {
        applied.iter().any(|meta| meta.path().is_ident("blocking") || applies_blocking(meta))
    })
}
