//! Remote interfaces: other processes can call the objects of these traits.

use std::fmt;

use squall_core::{CallError, Handle, Interface};

use crate::codec::{Malformed, Reader, Writer};
use crate::frames::{INTERFACE_BYTES_MAX, SIGNATURE_BYTES_MAX};

/// An interface that other processes can call. `#[squall::interface(remote)]` implements it.
///
/// ```
/// use squall::call::Remote;
///
/// #[squall::interface(remote)]
/// trait Hits: Send + Sync {
///     fn add(&self, n: u64);
///     fn total(&self) -> u64;
/// }
/// assert_eq!(<dyn Hits>::SIGNATURE, "Hits{add(u64)->();total()->u64};version=1");
/// ```
#[diagnostic::on_unimplemented(
    message = "other processes cannot call `{Self}`",
    label = "not marked `#[squall::interface(remote)]`",
    note = "mark the trait `#[squall::interface(remote)]`, and name it here as `dyn Trait`"
)]
pub trait Remote: Interface {
    /// The hash of [`SIGNATURE`](Self::SIGNATURE). Two processes connect only if theirs are equal.
    const SCHEMA: u64;
    /// The signatures of all methods as written, and the version of the interface.
    const SIGNATURE: &'static str;

    /// Not public: decodes the arguments of a call, calls the object and encodes the result.
    #[doc(hidden)]
    fn __serve(
        handle: Handle<Self>,
        method: u32,
        input: &mut Reader<'_>,
        output: &mut Writer<'_>,
    ) -> Result<(), Unserved>;
}

/// Not public: checks that the name and the signatures of an interface fit the frame that opens a connection.
///
/// # Panics
/// If one of them is too long.
pub const fn fits(name: &str, signature: &str) {
    assert!(
        name.len() <= INTERFACE_BYTES_MAX,
        "the name of a remote interface has at most 256 bytes; rename the trait"
    );
    assert!(
        signature.len() <= SIGNATURE_BYTES_MAX,
        "the signatures of a remote interface have at most 24 KiB; import the types with `use`, or put some of \
         the methods into another interface"
    );
}

/// The reason why a call of another process has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// The interface has no method of this number here.
    NoSuchMethod,
    /// The arguments could not be decoded. The method did not run.
    Arguments(Malformed),
    /// The result could not be encoded.
    Result(Malformed),
    /// The object was destroyed, or refused the call.
    Call(CallError),
    /// The method returned an error of another call, or one that it has received.
    Returned(CallError),
}

impl From<Malformed> for Unserved {
    fn from(malformed: Malformed) -> Unserved {
        Unserved::Arguments(malformed)
    }
}

impl From<CallError> for Unserved {
    fn from(error: CallError) -> Unserved {
        Unserved::Call(error)
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unserved::NoSuchMethod => f.write_str(
                "the interface has no such method here; build both processes with the same methods",
            ),
            Unserved::Arguments(malformed) | Unserved::Result(malformed) => malformed.fmt(f),
            Unserved::Call(error) | Unserved::Returned(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unserved {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn names_and_signatures_that_no_frame_holds_are_refused() {
        let (name, signature) = ("n".repeat(INTERFACE_BYTES_MAX), "s".repeat(SIGNATURE_BYTES_MAX));
        fits(&name, &signature);
        let longer = |text: &str| format!("{text}x");
        assert!(catch_unwind(|| fits(&longer(&name), &signature)).is_err());
        assert!(catch_unwind(|| fits(&name, &longer(&signature))).is_err());
    }
}
