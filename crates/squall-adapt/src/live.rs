//! Attributes whose value is which implementation an object has: they are read from the object, and set by a swap.
//!
//! - I1. No code of the program's runs under a lock of this module.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use squall_core::swap::{Swap, SwapError, SwapReport};
use squall_core::{ClassInfo, Handle, Id, Interface};
use squall_sys::fork::forked;

use squall_policy::attribute::{AnyAttribute, Attribute, AttributeError, AttributeInfo, Holder, Scope, Value};
use crate::control::PlannedSwap;
use crate::family::reading;

type Read = Arc<dyn Fn(Id) -> Option<u64> + Send + Sync>;
type Set = Arc<dyn Fn(Id, u64, Duration) -> Option<Result<SwapReport, SwapError>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Live {
    interface: TypeId,
    attribute: &'static dyn AnyAttribute,
    read: Read,
    set: Set,
}

static LIVE: RwLock<Vec<Live>> = RwLock::new(Vec::new());

/// See [`control::register_attribute`](crate::control::register_attribute).
pub(crate) fn register<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    make: fn(Handle<I>, T) -> Option<PlannedSwap<I>>,
) {
    let interface = TypeId::of::<I>();
    let is_it = |there: &Live| there.interface == interface && there.attribute.name() == attribute.name();
    if forked() || LIVE.read().unwrap_or_else(PoisonError::into_inner).iter().any(is_it) {
        return;
    }
    let read: Read = Arc::new(move |id| {
        let co = Handle::<I>::find(id)?;
        reading(|| read(co)).map(Value::to_bits)
    });
    let set: Set = Arc::new(move |id, bits, within| {
        let (co, new) = make(Handle::<I>::find(id)?, T::from_bits(bits))?;
        Some(Swap::new(co).timeout(within).run(new))
    });
    let mut list = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    if !list.iter().any(is_it) {
        list.push(Live { interface, attribute, read, set });
    }
}

impl Live {
    /// The bits of its value, of an object that has it.
    fn read(&self, id: Id) -> Option<u64> {
        // An object that is going, or a function that arbitrates its calls, may refuse this one.
        catch_unwind(AssertUnwindSafe(|| (self.read)(id))).ok().flatten()
    }

    /// Sets it, if it is another now; nothing, if the object is gone or does not have it any more.
    pub(crate) fn set(
        &self,
        id: Id,
        class: &ClassInfo,
        text: &str,
        within: Duration,
    ) -> Result<Option<Result<Option<SwapReport>, SwapError>>, AttributeError> {
        let refused = |refusal| {
            AttributeError::new(Holder::instance(class.class, Some(id)), self.attribute.name(), refusal)
        };
        let bits = self.attribute.parse(text).map_err(refused)?;
        if self.read(id) == Some(bits) {
            return Ok(Some(Ok(None)));
        }
        Ok((self.set)(id, bits, within).map(|swapped| swapped.map(Some)))
    }
}

/// Those of this interface.
fn of_interface(interface: TypeId) -> Vec<Live> {
    let list = LIVE.read().unwrap_or_else(PoisonError::into_inner);
    list.iter().filter(|live| live.interface == interface).cloned().collect()
}

/// What this object has of them.
pub(crate) fn list(id: Id, class: &ClassInfo) -> Vec<AttributeInfo> {
    let info =
        |live: Live| Some(AttributeInfo::new(live.attribute, None, Some((live.read(id)?, Scope::Instance))));
    of_interface(class.interface_id).into_iter().filter_map(info).collect()
}

/// The one of this name, if this object has it.
pub(crate) fn named(id: Id, class: &ClassInfo, name: &str) -> Option<Live> {
    let named = of_interface(class.interface_id).into_iter().find(|live| live.attribute.name() == name);
    named.filter(|live| live.read(id).is_some())
}
