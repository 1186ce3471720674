//! What is to go wrong with a swap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::run::Rng;

/// The payload of a representative's making that panics as planned: its caller's method has not run.
pub(super) struct MakePanicked;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fault {
    None,
    ExportErrs,
    ExportPanics,
    ImportErrs,
    ImportPanics,
    /// The first import takes its time.
    ImportSleeps,
    /// An import calls the object whose state moves.
    ImportCallsOwn,
    /// It calls another one, which may be swapped as well.
    ImportCalls,
    /// It asks for a swap.
    ImportSwaps,
    /// The making of a representative.
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

    /// May the swap fail with an error of the users' code, and with a panic?
    pub(super) fn may_err(self) -> bool {
        matches!(self, Fault::ExportErrs | Fault::ImportErrs | Fault::ImportCallsOwn | Fault::ImportCalls)
    }

    pub(super) fn may_panic(self) -> bool {
        matches!(self, Fault::ExportPanics | Fault::ImportPanics | Fault::MakePanics)
    }

    /// Can a swap that moves anything not succeed?
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

/// The fault in a word.
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
