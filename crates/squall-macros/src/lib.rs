//! The attribute `#[interface]` of Squall. Users depend on the crate `squall`, which re-exports it.
//!
//! Problem: a reference to a clustered object must be callable as the object would be, through a path that
//! finds the representative, counts the operation, and answers when the object is gone. Rust has no way to
//! write such a forwarding once for all traits.
//! Idea: an attribute reads the trait and writes the forwarding beside it. It only arranges types: the
//! expansion contains no `unsafe`, and everything that can go wrong at run time lies behind the functions it
//! calls, in the hidden module `__macro` of the crate named by `crate = …` (`::squall` unless told
//! otherwise).
//!
//! - I1. What is accepted compiles: a trait that cannot be forwarded is refused here, at the token in question,
//!   with what to write instead (`check`). What only the compiler can know (is that supertrait an interface?) is
//!   left to it.
//! - I2. A refused trait is still defined, unchanged but for `#[blocking]`, so that one error does not make others.
//! - I3. The expansion names nothing that the user's scope could shadow: paths begin with `::` or with the path
//!   given, own names with two underscores (`expand`).
//!
//! Not promised: seeing through macros. A type that is a macro's call is passed on as it stands.
//! Cost: compile time only; about twenty lines per method, all inlined.

#![forbid(unsafe_code)]

mod attrs;
mod check;
mod expand;
mod parse;
#[cfg(test)]
mod tests;
mod types;

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

use proc_macro::TokenStream;

/// Makes a trait the interface of clustered objects.
///
/// `#[interface]` stands before the trait. `#[interface(crate = some::path)]` names the crate `squall` where
/// it is known by another name, as inside a crate that re-exports it.
///
/// # What it adds
///
/// For a trait `Hits` with a method `add`:
///
/// - `Hits` is implemented for every `Handle` whose interface is `dyn Hits` or extends it, with all its methods,
///   provided ones too: a call goes to the representative.
/// - `try_add` is a provided method, the checked form of `add`: `Result<_, CallError>`. On a reference it answers an error
///   where the object is gone or its policy refuses the call; on a representative it always succeeds.
/// - `Hits` is implemented for every `Around<W, T>` whose `T` implements it: `W` gets each call as a closure, and may have
///   another thread run it if its arguments and its result are `Send`.
/// - `dyn Hits` becomes an interface, and any type that implements `Hits` and is `'static` can stand behind it.
///
/// The plain form of a method that returns `Result<_, E>` with `E: From<CallError>` returns the error of an
/// object that is gone; that of any other method panics with its message, at the caller's line.
///
/// A method that may wait for something marks itself `#[blocking]`; its call runs outside any operation,
/// while the object is held by a count. No other method may wait.
///
/// # What an interface may be
///
/// It is `Send + Sync`, by its own words or by those of what it extends, and may be `Unpin`, `UnwindSafe` and
/// `RefUnwindSafe`. It may extend up to 15 other interfaces. It may have type and const parameters; types must be
/// `'static` where the interface is used. Methods take `&self`, and otherwise what they like: borrowed arguments,
/// slices, `&mut dyn FnMut(…)`, lifetimes of their own. They return what they own, or have of an argument whose lifetime is named.
///
/// # Errors
///
/// What cannot be forwarded is refused when the trait is compiled: methods with type parameters or `impl
/// Trait`, receivers other than `&self`, returned borrows, `async`, `const`, `unsafe` and `extern`
/// functions, `Self` in a signature, associated types and constants, lifetime parameters of the trait, names
/// that generated methods or a reference's own have already.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(arguments.into(), item.into()).into()
}
