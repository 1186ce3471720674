//! A program without a prelude, with strict lints and required documentation.

#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, rust_2018_idioms, missing_debug_implementations, unused)]

/// Counts.
#[::squall::interface]
pub trait Hits<T: ::core::marker::Copy>: ::core::marker::Send + ::core::marker::Sync {
    /// Counts `n` more.
    fn add(&self, n: u64) -> ::std::io::Result<()>;
    /// Returns its argument.
    fn same(&self, value: T) -> T {
        value
    }
    /// Waits.
    #[blocking]
    fn wait(&self);
}

/// A value without state.
#[derive(Debug)]
pub struct Nothing;

impl Hits<u8> for Nothing {
    fn add(&self, _: u64) -> ::std::io::Result<()> {
        ::std::result::Result::Ok(())
    }
    fn wait(&self) {}
}

/// Calls the object.
pub fn main() {
    let hits: ::squall::Owned<dyn Hits<u8>> = ::squall::shared(Nothing);
    ::std::assert_eq!(hits.same(3), 3);
    ::std::assert!(hits.try_add(1).is_ok());
    hits.wait();
}
