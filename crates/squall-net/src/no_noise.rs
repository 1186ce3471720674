//! The types of [encrypted connections](crate::TcpBuilder::encrypt) in a build without the feature `noise`:
//! none of them has a value.

use crate::frame::Broken;

/// The bytes of a greeting. No greeting is read.
pub(crate) const GREETING_BYTES: usize = 1;
/// The bytes of a confirmation. No confirmation is read.
pub(crate) const CONFIRM_BYTES: usize = 1;
/// The most bytes of a record. No record is read.
pub(crate) const RECORD_BYTES_MAX: usize = 0;

/// The secret that all sides share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Secret {}

/// A handshake of the dialling side.
#[derive(Debug)]
pub(crate) enum Asking {}

/// The keys of one connection.
#[derive(Debug)]
pub(crate) enum LinkKeys {}

/// The records that a connection receives.
#[derive(Debug, Default)]
pub(crate) struct Opener {}

impl Secret {
    pub(crate) fn ask(&self, _: &str) -> Result<(Vec<u8>, Asking), Broken> {
        match *self {}
    }

    pub(crate) fn answer(&self, _: &str, _: &[u8]) -> Result<(Vec<u8>, LinkKeys, String), Broken> {
        match *self {}
    }
}

impl Asking {
    pub(crate) fn finish(self, _: &[u8]) -> Result<(LinkKeys, String), Broken> {
        match self {}
    }
}

impl LinkKeys {
    pub(crate) fn seal(&self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Broken> {
        match *self {}
    }
}

impl Opener {
    pub(crate) fn open(&mut self, keys: &LinkKeys, _: &[u8]) -> Result<&[u8], Broken> {
        match *keys {}
    }
}
