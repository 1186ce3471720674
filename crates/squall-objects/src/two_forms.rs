//! Families of objects with a shared and a distributed form. Their sensor is the miss of a second VP.

use squall_adapt::estimate::Estimate;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, Interface, info_of, tables};
use squall_machine::ClusterSize;
use std::marker::PhantomData;

/// Name of the form in which an adaptive object starts.
pub const SHARED: &str = "shared";
/// Name of the form for an object that several VPs use.
pub const DISTRIBUTED: &str = "distributed";

const DISTRIBUTED_FORM: usize = 1;

/// A kind of such objects.
pub trait TwoForms: Send + Sync + 'static {
    type Interface: ?Sized + Interface;

    const NAME: &'static str;
    /// The forms, first the shared one.
    const FORMS: [Form; 2];
    const ESTIMATE: Estimate;

    /// Makes the replacement in the shared form, or in the distributed one.
    fn vacant(distributed: bool, size: ClusterSize) -> Replacement<Self::Interface>;
}

/// The family of a kind.
pub struct ByMisses<K>(PhantomData<fn() -> K>);

impl<K> ByMisses<K> {
    #[expect(clippy::new_without_default, reason = "only for constants of the libraries")]
    pub const fn new() -> ByMisses<K> {
        ByMisses(PhantomData)
    }
}

impl<K: TwoForms> Family for ByMisses<K> {
    type Interface = K::Interface;

    fn name(&self) -> &'static str {
        K::NAME
    }

    fn forms(&self) -> &'static [Form] {
        &K::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<K::Interface>) -> Replacement<K::Interface> {
        match shape.form {
            DISTRIBUTED_FORM => K::vacant(true, ClusterSize::Cpu),
            _ => K::vacant(false, ClusterSize::Machine),
        }
    }

    fn read(&self, handle: Handle<K::Interface>) -> Result<Reading, CallError> {
        // The engine asks the tables for the callers. An object that was destroyed is found elsewhere.
        let info = info_of(Handle::id(handle));
        let (reps, bytes) = info.map_or((0, 0), |info| (info.reps.len(), info.bytes));
        Ok(Reading { reps, bytes, ..Reading::default() })
    }

    fn arm(&self, handle: Handle<K::Interface>, _: u32) -> Result<(), CallError> {
        tables::forget(Handle::id(handle));
        Ok(())
    }

    fn has_sensors(&self) -> bool {
        false
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        K::ESTIMATE.costs(load)
    }
}
