//! Places of interfaces, names around them, attributes and conditions.

use super::*;

/// Names that could shadow names in an expansion.
pub mod shadowed {
    #![allow(missing_docs, dead_code, non_camel_case_types, non_upper_case_globals)]

    pub struct Result;
    pub struct Option;
    pub struct Ok;
    pub struct Err;
    pub struct Box;
    pub struct Sized;
    pub struct Send;
    pub struct Self_;
    pub struct I;
    pub struct T;
    pub struct Handle;
    pub struct CallError;
    pub struct Interface;
    pub struct str;
    pub const target: u8 = 0;
    pub const rep: u8 = 0;
    pub const here: u8 = 0;
    pub mod core {}
    pub mod std {}
    pub mod squall {}
    pub fn drop() {}

    /// An interface among shadowing names.
    #[::squall::interface]
    pub trait Shadowed<T, R>: ::core::marker::Send + ::core::marker::Sync {
        fn plain(&self, t: T, call: u8, f: u8, error: R) -> u8;
        fn results(&self, result: u8) -> ::core::result::Result<u8, ::std::io::Error>;
        fn unit(&self) -> ();
    }

    impl<T, R> Shadowed<T, R> for super::Count {
        fn plain(&self, _: T, call: u8, f: u8, _: R) -> u8 {
            call + f
        }
        fn results(&self, result: u8) -> ::core::result::Result<u8, ::std::io::Error> {
            ::core::result::Result::Ok(result)
        }
        fn unit(&self) {}
    }
}

#[test]
fn shadowed_names() {
    use shadowed::Shadowed;
    let object: Owned<dyn Shadowed<u8, u16>> = shared(Count::default());
    assert_eq!(object.plain(0, 1, 2, 0), 3);
    assert_eq!(object.try_results(4).unwrap().unwrap(), 4);
    object.unit();
}

/// Raw identifiers.
#[interface]
pub trait r#Match: Send + Sync {
    /// A keyword as a method, and as an argument.
    fn r#type(&self, r#fn: u64) -> u64;
}

impl r#Match for Count {
    fn r#type(&self, r#fn: u64) -> u64 {
        r#fn
    }
}

#[test]
fn raw_identifiers() {
    let object: Owned<dyn r#Match> = shared(Count::default());
    assert_eq!(object.r#type(1), 1);
    assert_eq!(object.try_type(2).unwrap(), 2);
    let handle = object.handle();
    drop(object);
    let error = handle.try_type(1).unwrap_err();
    assert_eq!((error.interface(), error.method()), ("Match", "type"));
}

/// Methods under conditions.
#[interface]
pub trait Conditional: Send + Sync {
    /// Never compiled.
    #[cfg(not(test))]
    fn never(&self) -> NoSuchType;
    /// The excluded one of two.
    #[cfg(not(test))]
    fn either(&self, one: NoSuchType);
    /// The included one of two.
    #[cfg(test)]
    fn either(&self, other: u64) -> u64;
    /// Included by two conditions.
    #[cfg_attr(test, cfg(test), allow(clippy::too_many_arguments))]
    #[rustfmt::skip]
    fn many(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> u64;
    /// Excluded by two conditions.
    #[cfg_attr(test, cfg(not(test)))]
    fn neither(&self) -> NoSuchType;
}

impl Conditional for Count {
    fn either(&self, other: u64) -> u64 {
        other
    }
    #[rustfmt::skip]
    fn many(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> u64 {
        [a, b, c, d, e, f, g, h].into_iter().map(u64::from).sum()
    }
}

#[test]
fn conditions() {
    let object: Owned<dyn Conditional> = shared(Count::default());
    assert_eq!(object.try_either(1).unwrap(), 1);
    assert_eq!(object.many(1, 1, 1, 1, 1, 1, 1, 1), 8);
}

/// An excluded interface.
#[interface]
#[cfg(not(test))]
pub trait Absent: NoSuchType {}

/// A deprecated interface.
#[interface]
#[deprecated = "for the test"]
#[expect(clippy::wrong_self_convention, reason = "for the test")]
pub trait Leaving: Send + Sync {
    /// A deprecated method.
    #[deprecated(note = "for the test")]
    #[must_use]
    #[track_caller]
    fn old(&self) -> u64;
    /// A method with a name against conventions.
    fn into_number(&self) -> u64 {
        0
    }
    #[doc(hidden)]
    fn hidden(&self) {}
}

#[expect(deprecated, reason = "for the test")]
impl Leaving for Count {
    fn old(&self) -> u64 {
        1
    }
}

#[test]
#[expect(deprecated, reason = "for the test")]
fn attributes() {
    let object: Owned<dyn Leaving> = shared(Count::default());
    assert_eq!((object.old(), object.try_old().unwrap(), object.into_number()), (1, 1, 0));
    object.hidden();
}

#[test]
fn inside_a_function() {
    #[interface]
    trait Inner<T: Copy>: Send + Sync {
        fn same(&self, value: T) -> T {
            value
        }
    }
    impl<T: Copy> Inner<T> for Count {}
    let object: Owned<dyn Inner<u8>> = shared(Count::default());
    assert_eq!(object.try_same(3).unwrap(), 3);
}

/// A trait written by a macro, with names, types and `self` from elsewhere.
macro_rules! written {
    ($trait:ident, $method:ident, $argument:ident: $type:ty => $result:ty) => {
        #[interface]
        trait $trait: Send + Sync {
            fn $method(&self, $argument: $type, other: $type) -> $result {
                $argument + other
            }
        }
        impl $trait for Count {}
    };
}
written!(Adder, sum, other: u8 => u8);

#[test]
fn written_by_a_macro() {
    let object: Owned<dyn Adder> = shared(Count::default());
    assert_eq!((object.sum(1, 2), object.try_sum(3, 4).unwrap()), (3, 7));
}

/// The crate by another name.
pub mod renamed {
    pub use squall as co;

    /// An interface with the path of the crate.
    #[co::interface(crate = crate::interfaces::scopes::renamed::co)]
    pub trait Renamed: Send + Sync {
        /// One.
        fn one(&self) -> u8 {
            1
        }
    }
    impl Renamed for super::Count {}
}

#[test]
fn another_name_for_the_crate() {
    let object: Owned<dyn renamed::Renamed> = shared(Count::default());
    assert_eq!(renamed::Renamed::one(&object.handle()), 1);
}

/// An interface with a known line.
#[interface]
#[allow(missing_docs)]
pub trait Placed: Send + Sync {}
const PLACED_LINE: u32 = line!() - 1;

#[test]
fn name_and_place() {
    use squall::__macro::Interface;
    assert_eq!(<dyn Placed as Interface>::NAME, "Placed");
    let source = <dyn Placed as Interface>::SOURCE;
    assert_eq!((source.file, source.line), (file!(), PLACED_LINE));
}
