//! Stand-in on systems without userfaultfd: a descriptor cannot exist.

use super::{Event, Features, Modes, OpenError, Operation, Options, Reason, Uffd};
use std::io;
use std::time::Duration;

#[derive(Debug)]
pub(super) enum Descriptor {}

impl Descriptor {
    pub(super) fn open() -> Result<(Descriptor, bool), OpenError> {
        Err(OpenError::Unsupported)
    }

    pub(super) fn enable(&self, _wanted: Features) -> Result<Features, OpenError> {
        match *self {}
    }

    pub(super) fn register(&self, _at: usize, _len: usize, _modes: Modes) -> Result<(), Reason> {
        match *self {}
    }

    pub(super) fn unregister(&self, _at: usize, _len: usize) -> Result<(), Reason> {
        match *self {}
    }

    pub(super) fn wake(&self, _at: usize, _len: usize) -> Result<(), Reason> {
        match *self {}
    }

    /// # Safety
    /// The call is safe.
    pub(super) unsafe fn copy(
        &self,
        _to: usize,
        _from: *const u8,
        _len: usize,
        _options: Options,
    ) -> (usize, Result<(), Reason>) {
        match *self {}
    }

    /// # Safety
    /// The call is safe.
    pub(super) unsafe fn move_pages(
        &self,
        _to: usize,
        _from: usize,
        _len: usize,
        _options: Options,
    ) -> (usize, Result<(), Reason>) {
        match *self {}
    }

    pub(super) fn fill(
        &self,
        _operation: Operation,
        _at: usize,
        _len: usize,
        _options: Options,
    ) -> (usize, Result<(), Reason>) {
        match *self {}
    }

    pub(super) fn write_protect(
        &self,
        _at: usize,
        _len: usize,
        _on: bool,
        _options: Options,
    ) -> Result<(), Reason> {
        match *self {}
    }

    pub(super) fn read(
        &self,
        _events: &mut [Event],
        _child: impl Fn(Descriptor) -> Uffd,
    ) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn wait(&self, _timeout: Option<Duration>) -> io::Result<bool> {
        match *self {}
    }
}
