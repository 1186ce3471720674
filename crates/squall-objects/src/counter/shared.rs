//! The shared form: one word that is biased to one VP.
//!
//! The sensor is free while one VP adds. An addition from another VP takes a second word with a locked
//! addition in any case, and counts down an alarm beside that word.

use squall_adapt::sensor::{ALARM, Alarm};
use squall_core::Handle;
use squall_core::swap::{State, StateFormats};
use squall_machine::Vp;
use squall_machine::pervp::BiasedWord;

use super::{Counter, Sensors};
use crate::counter::policy::post;

/// The one representative. `ADAPTS`: its sensor posts to the policy.
pub(super) struct Shared<const ADAPTS: bool> {
    count: BiasedWord,
    /// Counts the additions from elsewhere down to a post.
    alarm: Alarm,
    /// Handle of the object that this representative serves.
    own: Handle<dyn Counter>,
}

impl<const ADAPTS: bool> Shared<ADAPTS> {
    pub(super) fn new(own: Handle<dyn Counter>, place: Vp) -> Shared<ADAPTS> {
        Shared { count: BiasedWord::new(place), alarm: Alarm::new(ALARM), own }
    }

    #[cold]
    #[inline(never)]
    fn post(&self) -> bool {
        // Without restartable sequences, an addition at home takes this path too. Such an addition is no
        // reason to post.
        Vp::current() != self.count.vp() && post(self.own)
    }
}

impl<const ADAPTS: bool> Counter for Shared<ADAPTS> {
    #[inline]
    fn add(&self, n: u64) {
        if ADAPTS {
            self.count.add_and_note(n, || self.alarm.step(1, || self.post()));
        } else {
            self.count.add(n);
        }
    }

    fn total(&self) -> u64 {
        self.count.load()
    }

    fn sensors(&self) -> Sensors {
        let count = &self.count;
        Sensors {
            here: count.added_here(),
            elsewhere: count.added_elsewhere(),
            totals: 0,
            place: Some(count.vp()),
            reps: 1,
        }
    }

    fn arm(&self, after: u32) {
        if ADAPTS {
            self.alarm.arm(after);
        }
    }
}

impl<const ADAPTS: bool> State for Shared<ADAPTS> {
    fn formats(formats: &mut StateFormats<'_, Shared<ADAPTS>>) {
        formats.export_part(|this| Ok(this.count.load())).import_part(|this, n: u64| {
            this.count.add(n);
            Ok(())
        });
    }
}
