//! The reader as a deserializer of serde.
//!
//! - I1. Each value within another one takes a level for as long as it is decoded. Recursive types cannot
//!   overflow the stack.
//! - I2. Each element of a sequence takes a byte of the input, or one of the elements without bytes that the
//!   reader allows. So the number of steps is bounded by the length of the input and a constant.

use std::fmt::Display;

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use super::Malformed;
use super::reader::Reader;

impl de::Error for Malformed {
    fn custom<T: Display>(_: T) -> Malformed {
        Malformed::InvalidValue
    }
}

/// A reader that decodes one value.
pub(super) struct Decoder<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
}

impl<'a> Decoder<'_, 'a> {
    /// Runs `decode` with one level less.
    fn nested<T>(self, decode: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>) -> Result<T, Malformed> {
        let reader = self.reader;
        reader.levels = reader.levels.checked_sub(1).ok_or(Malformed::TooDeep)?;
        let decoded = decode(reader);
        reader.levels += 1;
        decoded
    }

    /// Decodes `count` elements.
    fn elements<V: Visitor<'a>>(self, count: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.nested(|reader| visitor.visit_seq(Elements { reader, count }))
    }
}

/// Defines the methods for a type of number without a sign, and for the type with one. The code of the latter
/// is 0, -1, 1, -2 and so on.
macro_rules! numbers {
    ($($varint:ident $unsigned:ident $deserialize:ident $visit:ident, $signed:ident $deserialize_signed:ident $visit_signed:ident;)*) => {$(
        fn $deserialize<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
            // The number has at most this many bits.
            visitor.$visit(self.reader.$varint($unsigned::BITS)? as $unsigned)
        }

        fn $deserialize_signed<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
            let code = self.reader.$varint($unsigned::BITS)? as $unsigned;
            visitor.$visit_signed((code >> 1) as $signed ^ -((code & 1) as $signed))
        }
    )*};
}

impl<'a> Deserializer<'a> for Decoder<'_, 'a> {
    type Error = Malformed;

    numbers! {
        varint_u64 u16 deserialize_u16 visit_u16, i16 deserialize_i16 visit_i16;
        varint_u64 u32 deserialize_u32 visit_u32, i32 deserialize_i32 visit_i32;
        varint_u64 u64 deserialize_u64 visit_u64, i64 deserialize_i64 visit_i64;
        varint_u128 u128 deserialize_u128 visit_u128, i128 deserialize_i128 visit_i128;
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_bool(self.reader.flag()?)
    }

    fn deserialize_u8<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_u8(u8::from_le_bytes(self.reader.array()?))
    }

    fn deserialize_i8<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_i8(i8::from_le_bytes(self.reader.array()?))
    }

    fn deserialize_f32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_f32(f32::from_le_bytes(self.reader.array()?))
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_f64(f64::from_le_bytes(self.reader.array()?))
    }

    fn deserialize_char<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        let mut chars = self.reader.text()?.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => visitor.visit_char(only),
            _ => Err(Malformed::InvalidValue),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_borrowed_str(self.reader.text()?)
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_borrowed_bytes(self.reader.get_bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        if self.reader.flag()? {
            self.nested(|reader| visitor.visit_some(Decoder { reader }))
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.nested(|reader| visitor.visit_newtype_struct(Decoder { reader }))
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        let count = self.reader.length()?;
        self.elements(count, visitor)
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, length: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.elements(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.elements(length, visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Malformed> {
        let count = self.reader.length()?;
        self.nested(|reader| visitor.visit_map(Elements { reader, count }))
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.elements(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.nested(|reader| visitor.visit_enum(Decoder { reader }))
    }

    fn deserialize_any<V: Visitor<'a>>(self, _: V) -> Result<V::Value, Malformed> {
        Err(Malformed::Unsupported)
    }

    fn deserialize_identifier<V: Visitor<'a>>(self, _: V) -> Result<V::Value, Malformed> {
        Err(Malformed::Unsupported)
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, _: V) -> Result<V::Value, Malformed> {
        Err(Malformed::Unsupported)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The elements of a sequence or the entries of a map that are left.
struct Elements<'r, 'a> {
    reader: &'r mut Reader<'a>,
    count: usize,
}

impl<'a> Elements<'_, 'a> {
    /// Decodes an element with `decode`, if one is left.
    fn next<T>(
        &mut self,
        decode: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        let Some(count) = self.count.checked_sub(1) else { return Ok(None) };
        self.count = count;
        let before = self.reader.remaining();
        let element = decode(self.reader)?;
        if self.reader.remaining() == before {
            self.reader.empty = self.reader.empty.checked_sub(1).ok_or(Malformed::TooMany)?;
        }
        Ok(Some(element))
    }

    /// Returns a bound on the elements for which room is reserved.
    fn hint(&self) -> Option<usize> {
        Some(self.count.min(self.reader.remaining()))
    }
}

impl<'a> de::SeqAccess<'a> for Elements<'_, 'a> {
    type Error = Malformed;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Malformed> {
        self.next(|reader| seed.deserialize(Decoder { reader }))
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'a> de::MapAccess<'a> for Elements<'_, 'a> {
    type Error = Malformed;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Malformed> {
        self.next(|reader| seed.deserialize(Decoder { reader }))
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Malformed> {
        seed.deserialize(Decoder { reader: self.reader })
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'a> de::EnumAccess<'a> for Decoder<'_, 'a> {
    type Error = Malformed;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Malformed> {
        // The number has at most 32 bits.
        let index = self.reader.varint_u64(u32::BITS)? as u32;
        let index: U32Deserializer<Malformed> = index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'a> de::VariantAccess<'a> for Decoder<'_, 'a> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Malformed> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'a>>(self, length: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.elements(length, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.elements(fields.len(), visitor)
    }
}
