//! The port of systems without calls between processes. Interfaces compile there, and nobody can make a port.

use squall_core::CallError;
use std::convert::Infallible;
use std::marker::PhantomData;

use crate::codec::{Malformed, Reader, Writer};
use crate::remote::Remote;

/// A port that does not exist.
#[derive(Debug)]
pub struct Port<I: ?Sized> {
    none: Infallible,
    interface: PhantomData<fn(&I)>,
}

impl<I: ?Sized + Remote> Port<I> {
    /// Not public: the body of each method.
    #[doc(hidden)]
    pub fn __call<R>(
        &self,
        _method: u32,
        _write: impl FnOnce(&mut Writer<'_>) -> Result<(), Malformed>,
        _read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
    ) -> Result<R, CallError> {
        match self.none {}
    }
}
