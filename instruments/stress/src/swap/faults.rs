//! Planned faults of swaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::run::Rng;

/// The payload of a planned panic while a representative is made. The caller's method has not run.
pub(super) struct MakePanicked;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fault {
    None,
    ExportErrs,
    ExportPanics,
    ImportErrs,
    ImportPanics,
    /// The first import sleeps.
    ImportSleeps,
    /// An import calls the object whose state moves.
    ImportCallsOwn,
    /// An import calls another object, which may be swapped too.
    ImportCalls,
    /// An import asks for a swap.
    ImportSwaps,
    /// Making a representative panics.
    MakePanics,
}

const ALL: [Fault; 10] = [
    Fault::None,
    Fault::ExportErrs,
    Fault::ExportPanics,
    Fault::ImportErrs,
    Fault::ImportPanics,
    Fault::ImportSleeps,
    Fault::ImportCallsOwn,
    Fault::ImportCalls,
    Fault::ImportSwaps,
    Fault::MakePanics,
];

impl Fault {
    pub(super) fn draw(rng: &mut Rng) -> Fault {
        match rng.one_in(4) {
            true => ALL[rng.below(ALL.len() as u64) as usize],
            false => Fault::None,
        }
    }

    pub(super) fn is_of_export(self) -> bool {
        matches!(self, Fault::ExportErrs | Fault::ExportPanics)
    }

    /// Returns whether the swap may fail with an error of user code.
    pub(super) fn may_err(self) -> bool {
        matches!(self, Fault::ExportErrs | Fault::ImportErrs | Fault::ImportCallsOwn | Fault::ImportCalls)
    }

    pub(super) fn may_panic(self) -> bool {
        matches!(self, Fault::ExportPanics | Fault::ImportPanics | Fault::MakePanics)
    }

    /// Returns whether a swap that moves any state must fail.
    pub(super) fn must_fail(self) -> bool {
        !matches!(self, Fault::None | Fault::ImportSleeps | Fault::ImportCalls | Fault::ImportSwaps)
    }
}

/// A fault that can be taken back.
#[derive(Clone, Debug)]
pub(super) struct FaultCell(Arc<AtomicU8>);

impl FaultCell {
    pub(super) fn new(fault: Fault) -> FaultCell {
        FaultCell(Arc::new(AtomicU8::new(fault as u8)))
    }

    pub(super) fn get(&self) -> Fault {
        read(&self.0)
    }

    pub(super) fn take_back(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Returns the fault in a word.
pub(super) fn read(word: &AtomicU8) -> Fault {
    ALL[usize::from(word.load(Ordering::Relaxed)) % ALL.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_was_planted_and_taken_back() {
        for fault in ALL {
            let planted = FaultCell::new(fault);
            assert_eq!(planted.get(), fault);
            planted.take_back();
            assert_eq!(planted.get(), Fault::None);
        }
    }
}
