//! Remote interfaces: `#[interface(remote)]`. Other processes can call their objects.
//!
//! Problem: a call of another process carries its arguments and its result as bytes. The two processes may be
//! compiled from different sources. Much that an interface can express has no meaning in another process.
//! Idea: the macro writes both ends. The impl for `Port` encodes the arguments and decodes the result. The
//! function `__serve` decodes the arguments, calls the object and encodes the result. A text of all
//! signatures, and its hash, tell whether both ends were made from the same trait.
//!
//! - I1. Both ends encode and decode the same types in the same order. The index of a method in the trait is
//!   its number, whether or not a `cfg` removes other methods.
//! - I2. A type that has no meaning in another process is rejected at its token (`check`), as far as the
//!   tokens show it. The compiler rejects the others: they implement no trait of serde.
//! - I3. Types alone decide the encoding, never names. So a type of the user called `Vec` is no special case.
//!
//! Not promised: that equal hashes mean equal types. The hash covers the signatures as written. It does not
//! cover the definitions of the types that they name.

mod check;
mod expand;
mod signature;
#[cfg(test)]
mod tests;

pub(crate) use check::check;
pub(crate) use expand::remote_impls;
