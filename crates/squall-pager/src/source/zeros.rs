//! The store that keeps no pages: all are zeros.

use super::error::SourceErrorKind;
use super::interface::Filled;
use super::layers::Store;

/// The store of a zero-filled source.
pub(super) struct Zeros;

impl Store for Zeros {
    const KEEPS_PAGES: bool = false;

    fn name(&self) -> &str {
        "zero fill"
    }

    fn begin(&self, _: u64) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn is_blank(&self, _: u64) -> bool {
        true
    }

    fn has_zeros(&self, _: u64) -> bool {
        true
    }

    fn fill(&self, _: u64, _: &mut [u8], _: u64) -> Result<Filled, SourceErrorKind> {
        Ok(Filled::Zeros)
    }

    fn write(&self, _: u64, _: &[u8], _: u64) -> Result<(), SourceErrorKind> {
        Err(SourceErrorKind::KeepsNothing)
    }

    fn set_len(&self, _: u64, _: u64) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn forget(&self, _: u64) {}

    fn sync(&self) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn stored_bytes(&self, _: u64) -> u64 {
        0
    }
}
