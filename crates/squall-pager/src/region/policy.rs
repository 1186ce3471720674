//! The family of adaptive regions. Its sensor is the miss of a second VP.

use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::Form;
use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_objects::two_forms::{ByMisses, TwoForms};
use std::sync::Once;

use super::admission::{Counters, OneCounter};
use super::forms::Mapped;
use super::{ADAPTS, Region};

static REGIONS: ByMisses<Regions> = ByMisses::new();

/// Registers the family, and starts the engine, once.
pub(super) fn register() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&REGIONS));
    engine::start();
}

struct Regions;

impl TwoForms for Regions {
    type Interface = dyn Region;

    const NAME: &'static str = "region";

    const FORMS: [Form; 2] = [
        Form::of::<Mapped<OneCounter, ADAPTS>>("shared").described("one request counter"),
        Form::of::<Mapped<Counters<true>, ADAPTS>>("distributed")
            .described("a request counter per processor"),
    ];

    /// A fault counts in and out, on a line of all processors or of its own.
    const ESTIMATE: Estimate = Estimate {
        global: &["truncate", "copy", "unmap"],
        reads: &["start", "len", "first_page", "rights", "cache"],
        costs: CallCosts { shared_ns: 30.0, local_ns: 20.0, visit_ns: 20.0, ..CallCosts::DEFAULT },
        ..Estimate::DEFAULT
    };

    fn vacant(distributed: bool, size: ClusterSize) -> Replacement<dyn Region> {
        if distributed {
            Replacement::root(Mapped::<Counters<true>, ADAPTS>::new(None), size)
        } else {
            Replacement::root(Mapped::<OneCounter, ADAPTS>::new(None), size)
        }
    }
}
