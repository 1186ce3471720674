//! The attribute `#[interface]` of Squall. Users depend on the crate `squall`, which re-exports it.
//!
//! Problem: callers use a handle like the object itself. Each call must find the representative, run inside
//! an operation, and return an error if the object is gone. Rust has no way to write such a forwarding once
//! for all traits.
//! Idea: an attribute reads the trait and generates the forwarding. It only arranges types. The expansion
//! contains no `unsafe`. Every run-time failure is handled by the functions it calls, in the hidden module
//! `__macro` of the crate named by `crate = …` (default `::squall`).
//!
//! - I1. Accepted traits compile. A trait that cannot be forwarded is rejected here, at the offending token,
//!   with advice (`check`). Facts that only the compiler knows (is that supertrait an interface?) are left to
//!   it.
//! - I2. A rejected trait is still defined, unchanged except for `#[blocking]`, so that one error does not
//!   cause others.
//! - I3. The expansion uses no name that the user's scope could shadow. Paths begin with `::` or with the
//!   given path, and generated names begin with two underscores (`expand`).
//!
//! Not promised: seeing through macros. A macro call in type position is passed on unchanged.
//! Cost: compile time only; about twenty lines per method, all inlined.

#![forbid(unsafe_code)]

mod attrs;
mod check;
mod expand;
mod parse;
mod remote;
#[cfg(test)]
mod tests;
mod types;

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

use proc_macro::TokenStream;

/// Makes a trait the interface of clustered objects.
///
/// Put `#[interface]` before the trait. If the crate `squall` has another path in that module, give the path:
/// `#[interface(crate = some::path)]`. An example is a crate that re-exports `squall`. The arguments `remote`
/// and `version` are described [below](#remote-interfaces).
///
/// # Expansion
///
/// For a trait `Hits` with a method `add`, the attribute generates:
///
/// - `Hits` for every `Handle` with the interface `dyn Hits` or an interface that extends it. Every method is
///   included, provided methods too. A call goes to the representative.
/// - `try_add`, a provided method: the checked form of `add`, which returns `Result<_, CallError>`. On a
///   handle it returns an error if the object is gone or its policy rejects the call. On a representative it
///   always succeeds.
/// - `Hits` for every `Around<W, T>` with a `T` that implements `Hits`. `W` gets each call as a closure. It
///   may run the closure on another thread if the arguments and the result are `Send`.
/// - The interface implementation of `dyn Hits`. Every `'static` type that implements `Hits` can then be a
///   representative.
///
/// If the object is gone, the plain form of a method that returns `Result<_, E>` with `E: From<CallError>`
/// returns the error. The plain form of any other method panics with the error's message, at the caller's
/// line.
///
/// Mark a method that may wait with `#[blocking]`. Its call runs outside any operation and holds the object
/// by a count. Other methods must not wait.
///
/// # Allowed traits
///
/// An interface is `Send + Sync`, directly or through an interface that it extends. It may also be `Unpin`,
/// `UnwindSafe` and `RefUnwindSafe`. It may extend up to 15 other interfaces. It may have type and const
/// parameters; types must be `'static` where the interface is used.
///
/// Methods take `&self`. Their arguments may be of any type: borrows, slices, `&mut dyn FnMut(…)`, types with
/// lifetimes of the method. A result is owned, or borrows from an argument with a named lifetime.
///
/// # Remote interfaces
///
/// `#[interface(remote)]` allows other processes to call the objects: one process exports an object, others
/// import it. It needs the feature `call` of `squall`. Every method counts as marked `#[blocking]`, since a
/// call of another process waits.
///
/// Arguments and results are copied, by the traits `Serialize` and `Deserialize` of serde:
///
/// | type | the object gets |
/// |---|---|
/// | argument `&str`, `&[u8]` or `&Path` | a borrow of the received message |
/// | argument `&[T]` | a borrow of a `Vec<T>` |
/// | argument `&T` | a borrow of a `T` |
/// | any other argument | a value, which may borrow from the message, as `Option<&str>` does |
/// | result | an owned value |
///
/// `str`, `[u8]`, `Vec<u8>` and `Box<[u8]>` are copied whole, and so are an `Option<Vec<u8>>` and a
/// `Result<Vec<u8>, E>` as results. This holds for arguments and results themselves. Other sequences are
/// copied by element, and so is a `Vec<u8>` in a struct, tuple or list. That takes ten times as long: mark
/// such a field `#[serde(with = "serde_bytes")]`.
///
/// All arguments of a call have 8,192 bytes of room, and so has the result. Another 256 bytes are for
/// lengths and small values beside them. A value is nested at most about 60 levels deep. These attributes of
/// serde do not work: `untagged`, `flatten`, `tag`, `skip_serializing_if`. The same holds for types that call
/// `deserialize_any`, such as `serde_json::Value`. The call then returns `MessageError::Undecodable`.
///
/// The checked form of a method also returns the errors of the transport, as `CallErrorKind::Transport`. The
/// plain form returns them in its own error type or panics, as for an object that is gone. If a method with
/// the result `Result<T, CallError>` returns an error of another object, the caller gets an error that names
/// the caller's own object, with the reason `Transport::Nested`.
///
/// Two processes connect only if their interfaces have equal hashes. The hash covers the trait's name, the
/// signatures as written, without the names of arguments, and the version. It does not cover the definitions
/// of the types that the signatures name. If one of these changes, change the version:
/// `#[interface(remote, version = 2)]`. The default is 1. A method that a `cfg` removes in one of the
/// processes still has its number and its part of the hash. Its call fails.
///
/// A remote interface has at most 64 methods, and 24 KiB of signatures. It has no parameters and extends no
/// other interface. The attribute also rejects `&mut`, `dyn`, functions and pointers in signatures, and
/// borrowed results.
///
/// # Errors
///
/// The attribute rejects, at compile time:
///
/// - methods with type parameters or `impl Trait`, and receivers other than `&self`;
/// - `async`, `const`, `unsafe` and `extern` functions;
/// - returned borrows of the object, and `Self` in a signature;
/// - associated types and constants, and lifetime parameters of the trait;
/// - method names that a generated method or a handle already has.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(arguments.into(), item.into()).into()
}
