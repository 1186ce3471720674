//! The encoding of each type, chosen by the compiler.
//!
//! Problem: serde encodes a vector of bytes one by one, and cannot decode a reference to a value. The macro
//! sees tokens only, and a token `Vec` may be any type.
//! Idea: the expansion calls a method on a reference to [`Field`] or [`Borrowed`]. The compiler takes the
//! first trait that fits, in the order of the references: `&&&`, `&&`, `&`, none.
//!
//! - I1. All traits that fit a type encode it to the same bytes. They differ in speed alone. An exception is
//!   `Result<T, CallError>`: its success is encoded as a `T`, and its error is an error of the call.

use std::marker::PhantomData;
use std::path::Path;

use serde::{Deserialize, Serialize, de};
use squall_core::CallError;

use super::writer::Bytes;
use super::{Malformed, Reader, Writer};
use crate::remote::Unserved;

/// Not public: an argument or a result of type `T`.
#[derive(Debug)]
pub struct Field<T>(PhantomData<fn() -> T>);

/// Not public: an argument of type `&T`.
#[derive(Debug)]
pub struct Borrowed<T: ?Sized>(PhantomData<fn() -> Box<T>>);

impl<T> Clone for Field<T> {
    fn clone(&self) -> Field<T> {
        *self
    }
}
impl<T> Copy for Field<T> {}

impl<T: ?Sized> Clone for Borrowed<T> {
    fn clone(&self) -> Borrowed<T> {
        *self
    }
}
impl<T: ?Sized> Copy for Borrowed<T> {}

impl<T> Field<T> {
    /// Makes the selector.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Field<T> {
        Field(PhantomData)
    }
}

impl<T: ?Sized> Borrowed<T> {
    /// Makes the selector.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Borrowed<T> {
        Borrowed(PhantomData)
    }
}

/// Not public: every type.
pub trait PlainField<T>: Sized {
    /// Encodes an argument.
    fn __squall_put(self, value: &T, writer: &mut Writer<'_>) -> Result<(), Malformed>
    where
        T: Serialize,
    {
        writer.put(value)
    }

    /// Encodes a result.
    fn __squall_answer(self, value: T, writer: &mut Writer<'_>) -> Result<(), Unserved>
    where
        T: Serialize,
    {
        writer.put(&value).map_err(Unserved::Result)
    }

    /// Decodes an argument or a result.
    fn __squall_get<'a>(self, reader: &mut Reader<'a>) -> Result<T, Malformed>
    where
        T: Deserialize<'a>,
    {
        reader.get()
    }
}
impl<T> PlainField<T> for Field<T> {}

/// Not public: types with bytes that are copied whole.
pub trait PackedField<T: Packed>: Sized {
    /// Encodes an argument.
    fn __squall_put(self, value: &T, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        value.put(writer)
    }

    /// Encodes a result.
    fn __squall_answer(self, value: T, writer: &mut Writer<'_>) -> Result<(), Unserved> {
        value.put(writer).map_err(Unserved::Result)
    }

    /// Decodes an argument or a result.
    fn __squall_get(self, reader: &mut Reader<'_>) -> Result<T, Malformed> {
        T::get(reader)
    }
}
impl<T: Packed> PackedField<T> for &Field<T> {}

/// Not public: results that carry the error of the call.
pub trait ValueOrError<T>: Sized {
    /// Encodes a result.
    fn __squall_answer(self, value: Result<T, CallError>, writer: &mut Writer<'_>) -> Result<(), Unserved>
    where
        T: Serialize,
    {
        writer.put(&value.map_err(Unserved::Returned)?).map_err(Unserved::Result)
    }

    /// Decodes a result.
    fn __squall_get<'a>(self, reader: &mut Reader<'a>) -> Result<Result<T, CallError>, Malformed>
    where
        T: Deserialize<'a>,
    {
        Ok(Ok(reader.get()?))
    }
}
impl<T> ValueOrError<T> for &&Field<Result<T, CallError>> {}

/// Not public: results of bytes, or the error of the call.
pub trait PackedOrError<T: Packed>: Sized {
    /// Encodes a result.
    fn __squall_answer(self, value: Result<T, CallError>, writer: &mut Writer<'_>) -> Result<(), Unserved> {
        value.map_err(Unserved::Returned)?.put(writer).map_err(Unserved::Result)
    }

    /// Decodes a result.
    fn __squall_get(self, reader: &mut Reader<'_>) -> Result<Result<T, CallError>, Malformed> {
        Ok(Ok(T::get(reader)?))
    }
}
impl<T: Packed> PackedOrError<T> for &&&Field<Result<T, CallError>> {}

/// A type with bytes that are copied whole.
pub trait Packed: Sized {
    /// Encodes the value.
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed>;
    /// Decodes a value.
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

impl Packed for Vec<u8> {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put_bytes(self)
    }

    fn get(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
        Ok(reader.get_bytes()?.to_vec())
    }
}

impl Packed for Box<[u8]> {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put_bytes(self)
    }

    fn get(reader: &mut Reader<'_>) -> Result<Box<[u8]>, Malformed> {
        Ok(reader.get_bytes()?.into())
    }
}

/// An array of any length; serde knows arrays of up to 32 elements.
impl<const N: usize> Packed for [u8; N] {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put_bytes(self)
    }

    fn get(reader: &mut Reader<'_>) -> Result<[u8; N], Malformed> {
        reader.get_bytes()?.try_into().map_err(|_| Malformed::InvalidValue)
    }
}

impl Packed for Option<Vec<u8>> {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put(&self.as_deref().map(Bytes))
    }

    fn get(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(reader.get::<Option<&[u8]>>()?.map(<[u8]>::to_vec))
    }
}

impl<E: Serialize + de::DeserializeOwned> Packed for Result<Vec<u8>, E> {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put(&self.as_deref().map(Bytes))
    }

    fn get(reader: &mut Reader<'_>) -> Result<Result<Vec<u8>, E>, Malformed> {
        Ok(reader.get::<Result<&[u8], E>>()?.map(<[u8]>::to_vec))
    }
}

/// Not public: values that are read in place.
pub trait InPlaceBorrowed<T: InPlace + ?Sized>: Sized {
    /// Encodes an argument.
    fn __squall_put(self, value: &T, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        value.put(writer)
    }

    /// Decodes an argument.
    fn __squall_get<'a>(self, reader: &mut Reader<'a>) -> Result<&'a T, Malformed> {
        T::get(reader)
    }
}
impl<T: InPlace + ?Sized> InPlaceBorrowed<T> for &Borrowed<T> {}

/// Not public: other slices. Decoded to a vector.
pub trait SliceBorrowed<T>: Sized {
    /// Encodes an argument.
    fn __squall_put(self, value: &[T], writer: &mut Writer<'_>) -> Result<(), Malformed>
    where
        T: Serialize,
    {
        writer.put(value)
    }

    /// Decodes an argument.
    fn __squall_get<'a>(self, reader: &mut Reader<'a>) -> Result<Vec<T>, Malformed>
    where
        T: Deserialize<'a>,
    {
        reader.get()
    }
}
impl<T> SliceBorrowed<T> for Borrowed<[T]> {}

/// Not public: references to other values. Decoded to a value.
pub trait ValueBorrowed<T>: Sized {
    /// Encodes an argument.
    fn __squall_put(self, value: &T, writer: &mut Writer<'_>) -> Result<(), Malformed>
    where
        T: Serialize,
    {
        writer.put(value)
    }

    /// Decodes an argument.
    fn __squall_get<'a>(self, reader: &mut Reader<'a>) -> Result<T, Malformed>
    where
        T: Deserialize<'a>,
    {
        reader.get()
    }
}
impl<T> ValueBorrowed<T> for Borrowed<T> {}

/// A type that is read in the message itself.
pub trait InPlace {
    /// Encodes the value.
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed>;
    /// Decodes a value.
    fn get<'a>(reader: &mut Reader<'a>) -> Result<&'a Self, Malformed>;
}

impl InPlace for str {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put(self)
    }

    fn get<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
        reader.get()
    }
}

/// The path must be valid UTF-8.
impl InPlace for Path {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put(self)
    }

    fn get<'a>(reader: &mut Reader<'a>) -> Result<&'a Path, Malformed> {
        reader.get()
    }
}

impl<const N: usize> InPlace for [u8; N] {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put_bytes(self)
    }

    fn get<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8; N], Malformed> {
        reader.get_bytes()?.try_into().map_err(|_| Malformed::InvalidValue)
    }
}

impl InPlace for [u8] {
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        writer.put_bytes(self)
    }

    fn get<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
        reader.get_bytes()
    }
}
