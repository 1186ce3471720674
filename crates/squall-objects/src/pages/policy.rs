//! The family of adaptive pools of pages. Its sensor is the miss of a second VP.

use squall_adapt::estimate::{CallCosts, Estimate};
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of, tables};
use squall_machine::ClusterSize;

use super::pool::{Local, Pool};
use super::{ADAPTS, PagePool};

/// Name of the form in which an adaptive pool starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = "shared";
/// Name of the form for a pool that several VPs use. Constructor: [`distributed`](super::distributed).
pub const DISTRIBUTED: &str = "distributed";

pub(super) static POOLS: Pools = Pools;

pub(super) struct Pools;

static FORMS: [Form; 2] = [
    Form::of::<Pool<ADAPTS, false>>(SHARED).described("one list of free pages for all processors"),
    Form::of::<Pool<ADAPTS, true>>(DISTRIBUTED).described("free pages per processor"),
];
const DISTRIBUTED_FORM: usize = 1;

/// A call takes a lock and touches a list, in either form. The shared form's lock is an atomic operation for
/// all processors but one.
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

impl Family for Pools {
    type Interface = dyn PagePool;

    fn name(&self) -> &'static str {
        "page-pool"
    }

    fn forms(&self) -> &'static [Form] {
        &FORMS
    }

    fn make(&self, shape: Shape, _: Handle<dyn PagePool>) -> Replacement<dyn PagePool> {
        match shape.form {
            DISTRIBUTED_FORM => Replacement::root(Pool::<ADAPTS, true>::vacant(), ClusterSize::Cpu),
            _ => Replacement::root(Pool::<ADAPTS, false>::vacant(), ClusterSize::Machine),
        }
    }

    fn read(&self, handle: Handle<dyn PagePool>) -> Result<Reading, CallError> {
        // The engine asks the tables for the callers. An object that was destroyed is found elsewhere.
        let info = info_of(Handle::id(handle));
        let (reps, bytes) = info.map_or((0, 0), |info| (info.reps.len(), info.bytes));
        Ok(Reading { reps, bytes, ..Reading::default() })
    }

    fn arm(&self, handle: Handle<dyn PagePool>, _: u32) -> Result<(), CallError> {
        tables::forget(Handle::id(handle));
        Ok(())
    }

    fn has_sensors(&self) -> bool {
        false
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        ESTIMATE.costs(load)
    }
}
