//! The family of adaptive pools of pages. Its sensor is the miss of a second VP.

use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::Form;
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;

use super::pool::{Local, Pool};
use super::{ADAPTS, PagePool};
use crate::two_forms::{self, ByMisses, TwoForms};

/// Name of the form in which an adaptive pool starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = two_forms::SHARED;
/// Name of the form for a pool that several VPs use. Constructor: [`distributed`](super::distributed).
pub const DISTRIBUTED: &str = two_forms::DISTRIBUTED;

pub(super) static POOLS: ByMisses<Pools> = ByMisses::new();

pub(super) struct Pools;

impl TwoForms for Pools {
    type Interface = dyn PagePool;

    const NAME: &'static str = "page-pool";

    const FORMS: [Form; 2] = [
        Form::of::<Pool<ADAPTS, false>>(SHARED).described("one list of free pages for all processors"),
        Form::of::<Pool<ADAPTS, true>>(DISTRIBUTED).described("free pages per processor"),
    ];

    /// A call takes a lock and touches a list, in either form. The shared form's lock is an atomic
    /// operation for all processors but one.
    const ESTIMATE: Estimate = Estimate {
        global: &["free", "give_up"],
        reads: &["members", "parent", "used", "max_pages", "attribute"],
        costs: CallCosts {
            shared_ns: 16.0,
            local_ns: 10.0,
            visit_ns: 20.0,
            rep_bytes: size_of::<Local>() + 512,
            ..CallCosts::DEFAULT
        },
        ..Estimate::DEFAULT
    };

    fn vacant(distributed: bool, size: ClusterSize) -> Replacement<dyn PagePool> {
        if distributed {
            Replacement::root(Pool::<ADAPTS, true>::vacant(), size)
        } else {
            Replacement::root(Pool::<ADAPTS, false>::vacant(), size)
        }
    }
}
