//! Attributes with a value that is determined by the implementation of an object: read from the object, set
//! by a swap or by a call of the object. Counts of an object are such attributes too, and cannot be set.
//!
//! - I1. User code does not run under a lock of this module.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{ClassInfo, Handle, Id, Interface};
use squall_sys::fork::forked;

use crate::family::reading;
use squall_policy::attribute::{
    AnyAttribute, Attribute, AttributeError, AttributeInfo, Holder, Scope, Value,
};

/// An object to swap, and its replacement.
pub type PlannedSwap<I> = (Handle<I>, Replacement<I>);

type Read = Arc<dyn Fn(Id) -> Option<u64> + Send + Sync>;
type Set = Arc<dyn Fn(Id, u64, Duration) -> Option<Result<Option<SwapReport>, SwapError>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Live {
    interface: TypeId,
    attribute: &'static dyn AnyAttribute,
    read: Read,
    /// Absent if only the object changes the value.
    set: Option<Set>,
}

/// The range of a value that only the object changes.
const READ_ONLY: &str = "read only";

static LIVE: RwLock<Vec<Live>> = RwLock::new(Vec::new());

/// See [`control::register_attribute`](crate::control::register_attribute).
pub(crate) fn register<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    make: fn(Handle<I>, T) -> Option<PlannedSwap<I>>,
) {
    add::<I, T>(attribute, read, || {
        Some(Arc::new(move |id, bits, within| {
            let (handle, new) = make(Handle::<I>::find(id)?, T::from_bits(bits))?;
            Some(Swap::new(handle).timeout(within).run(new).map(Some))
        }))
    });
}

/// See [`control::register_reading`](crate::control::register_reading).
pub(crate) fn register_reading<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
) {
    add::<I, T>(attribute, read, || None);
}

/// See [`control::register_setting`](crate::control::register_setting).
pub(crate) fn register_setting<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    write: fn(Handle<I>, T) -> Option<()>,
) {
    add::<I, T>(attribute, read, || {
        Some(Arc::new(move |id, bits, _| {
            let handle = Handle::<I>::find(id)?;
            // As for `read`.
            let written = catch_unwind(AssertUnwindSafe(|| reading(|| write(handle, T::from_bits(bits)))));
            written.ok()?.map(|()| Ok(None))
        }))
    });
}

fn add<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    set: impl FnOnce() -> Option<Set>,
) {
    let interface = TypeId::of::<I>();
    let is_it = |there: &Live| there.interface == interface && there.attribute.name() == attribute.name();
    if forked() || LIVE.read().unwrap_or_else(PoisonError::into_inner).iter().any(is_it) {
        return;
    }
    let read: Read = Arc::new(move |id| {
        let handle = Handle::<I>::find(id)?;
        reading(|| read(handle)).map(Value::to_bits)
    });
    let set = set();
    let mut list = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    if !list.iter().any(is_it) {
        list.push(Live { interface, attribute, read, set });
    }
}

impl Live {
    /// Returns the bits of the value, if the object has the attribute.
    fn read(&self, id: Id) -> Option<u64> {
        // The call may be refused if the object is being destroyed, or by an arbiter of the program.
        catch_unwind(AssertUnwindSafe(|| (self.read)(id))).ok().flatten()
    }

    /// Returns whether only the object changes the value.
    pub(crate) fn is_reading(&self) -> bool {
        self.set.is_none()
    }

    /// Sets the attribute if its value differs. Returns an empty option if the object was destroyed, or does
    /// not let it be set.
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
        Ok(self.set.as_ref().and_then(|set| set(id, bits, within)))
    }
}

/// Returns the registered attributes of this interface.
fn of_interface(interface: TypeId) -> Vec<Live> {
    let list = LIVE.read().unwrap_or_else(PoisonError::into_inner);
    list.iter().filter(|live| live.interface == interface).cloned().collect()
}

/// Lists the registered attributes that this object has.
pub(crate) fn list(id: Id, class: &ClassInfo) -> Vec<AttributeInfo> {
    let info = |live: Live| {
        let mut info = AttributeInfo::new(live.attribute, None, Some((live.read(id)?, Scope::Instance)));
        if live.is_reading() {
            info.range = READ_ONLY.to_owned();
        }
        Some(info)
    };
    of_interface(class.interface_id).into_iter().filter_map(info).collect()
}

/// Returns the registered attribute of this name, if this object has it.
pub(crate) fn named(id: Id, class: &ClassInfo, name: &str) -> Option<Live> {
    let named = of_interface(class.interface_id).into_iter().find(|live| live.attribute.name() == name);
    named.filter(|live| live.read(id).is_some())
}
