//! The variants of the map cases, and their names.
//!
//! A name is `ENTRIES-KEYS-LAW-MIX-HASHER`; the last three parts appear only where they apply.
//!
//! - `10k`, `1m`: entries.
//! - `u64`, `str`: keys of eight bytes, strings of twenty-four.
//! - `uniform`, `zipf`: frequency of the keys: equal, or by Zipf's law with exponent 0.99.
//! - `95-5`, `50-50`: reads and writes in a hundred operations.
//! - `default`: each map with its default hasher; otherwise one hasher for all.

use crate::case::{PLAIN, Variant};

/// The properties named by a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) entries: usize,
    pub(crate) keys: Keys,
    pub(super) law: Law,
    /// Writes in a hundred operations; 0 if there are only reads or the load is not mixed.
    pub(super) writes: usize,
    pub(crate) hasher: Hasher,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Words,
    Strings,
}

/// Law by which keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    Uniform,
    Zipf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hasher {
    /// One hasher for all.
    Common,
    /// Each map's own hasher.
    Own,
}

/// Entries of `10k` and of `1m`; multiples of 16. Tests have fewer.
const ENTRIES: (usize, usize) = if cfg!(test) { (1_600, 16_000) } else { (10_000, 1_000_000) };

impl Shape {
    pub(crate) fn of(variant: &Variant) -> Shape {
        let mut shape = Shape {
            entries: ENTRIES.0,
            keys: Keys::Words,
            law: Law::Uniform,
            writes: 0,
            hasher: Hasher::Common,
        };
        for word in variant.name.split('-') {
            match word {
                "1m" => shape.entries = ENTRIES.1,
                "str" => shape.keys = Keys::Strings,
                "zipf" => shape.law = Law::Zipf,
                "default" => shape.hasher = Hasher::Own,
                // The last number of the mix.
                "5" => shape.writes = 5,
                "50" => shape.writes = 50,
                _ => {}
            }
        }
        shape
    }
}

/// Whether a quick run includes the variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Any,
    Thorough,
}

macro_rules! variants {
    ($($when:ident: $entries:literal $keys:literal $($more:literal)*),* $(,)?) => {
        &[$(Variant {
            name: concat!($entries, "-", $keys $(, "-", $more)*),
            about: concat!($entries, " entries, ", $keys, " keys" $(, ", ", $more)*),
            thorough: matches!(In::$when, In::Thorough),
            ..PLAIN
        }),*]
    };
}

pub(super) const READING: &[Variant] = variants![
    Any: "10k" "u64" "uniform",
    Any: "1m" "u64" "uniform",
    Any: "10k" "u64" "zipf",
    Any: "1m" "u64" "zipf",
    Any: "10k" "str" "uniform",
    Any: "1m" "str" "uniform",
    Thorough: "10k" "str" "zipf",
    Thorough: "1m" "str" "zipf",
    Thorough: "10k" "u64" "uniform" "default",
    Thorough: "1m" "u64" "uniform" "default",
];

pub(super) const MIXED: &[Variant] = variants![
    Any: "10k" "u64" "uniform" "95-5",
    Any: "10k" "u64" "uniform" "50-50",
    Any: "1m" "u64" "uniform" "95-5",
    Any: "1m" "u64" "uniform" "50-50",
    Any: "10k" "u64" "zipf" "95-5",
    Any: "10k" "u64" "zipf" "50-50",
    Any: "1m" "u64" "zipf" "95-5",
    Any: "1m" "u64" "zipf" "50-50",
    Thorough: "10k" "str" "uniform" "95-5",
    Thorough: "10k" "str" "uniform" "50-50",
    Thorough: "1m" "str" "uniform" "95-5",
    Thorough: "1m" "str" "uniform" "50-50",
    Thorough: "10k" "str" "zipf" "95-5",
    Thorough: "10k" "str" "zipf" "50-50",
    Thorough: "1m" "str" "zipf" "95-5",
    Thorough: "1m" "str" "zipf" "50-50",
    Thorough: "10k" "u64" "uniform" "95-5" "default",
    Thorough: "10k" "u64" "uniform" "50-50" "default",
];

pub(super) const SIZES: &[Variant] = variants![
    Any: "10k" "u64",
    Any: "1m" "u64",
    Any: "10k" "str",
    Any: "1m" "str",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(name: &str) -> Shape {
        let all = READING.iter().chain(MIXED).chain(SIZES);
        Shape::of(all.into_iter().find(|variant| variant.name == name).expect("it is there"))
    }

    #[test]
    fn a_name_determines_its_shape() {
        let plain = shape_of("10k-u64-uniform");
        assert_eq!((plain.entries, plain.keys, plain.law), (ENTRIES.0, Keys::Words, Law::Uniform));
        assert_eq!((plain.writes, plain.hasher), (0, Hasher::Common));
        let mixed = shape_of("1m-str-zipf-50-50");
        assert_eq!((mixed.entries, mixed.keys, mixed.law), (ENTRIES.1, Keys::Strings, Law::Zipf));
        assert_eq!(mixed.writes, 50);
        assert_eq!(shape_of("10k-u64-uniform-95-5").writes, 5);
        assert_eq!(shape_of("10k-u64-uniform-95-5-default").hasher, Hasher::Own);
        assert_eq!(shape_of("1m-str").entries, ENTRIES.1);
    }

    #[test]
    fn no_two_variants_of_a_case_are_alike() {
        for variants in [READING, MIXED, SIZES] {
            for (i, one) in variants.iter().enumerate() {
                assert!(variants[..i].iter().all(|other| Shape::of(other) != Shape::of(one)), "{}", one.name);
            }
        }
    }
}
