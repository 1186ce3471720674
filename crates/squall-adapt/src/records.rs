//! Events of the engine, for the trace of the process: its decisions and its modes.

use squall_core::Id;
use squall_sys::trace::{Kind, Subject, emit};
use std::time::Duration;

use crate::decision::{Held, Verdict};

static DECISION: Kind = Kind::new("engine.decision", ["verdict", "took_ns"]).with_codes(
    0,
    &[
        "swapped",
        "by-hand",
        "dry-run",
        "failed",
        "held-frozen",
        "held-cooling-down",
        "held-unsteady",
        "held-budget",
        "held-memory",
    ],
);

static MODE: Kind = Kind::new("engine.mode", ["mode", ""])
    .with_codes(0, &["running", "off", "frozen", "thawed", "dry-run", "acting"]);

/// Mode of the engine for the whole program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Running,
    Off,
    Frozen,
    Thawed,
    DryRun,
    /// Decisions are carried out.
    Acting,
}

/// Emits a change of the mode.
pub(crate) fn mode_changed(mode: Mode) {
    emit(&MODE, Subject::NONE, [mode as u64, 0]);
}

/// Emits a decision that was recorded.
pub(crate) fn decided(id: Id, verdict: &Verdict, took: Duration) {
    let code = match verdict {
        Verdict::Swapped => 0,
        Verdict::ByHand => 1,
        Verdict::DryRun => 2,
        Verdict::Failed(_) => 3,
        Verdict::Held(Held::Frozen) => 4,
        Verdict::Held(Held::CoolingDown) => 5,
        Verdict::Held(Held::Unsteady) => 6,
        Verdict::Held(Held::Budget) => 7,
        Verdict::Held(Held::Memory) => 8,
    };
    let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    emit(&DECISION, Subject::id(id.slot(), id.generation()), [code, ns]);
}
