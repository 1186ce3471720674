//! The view of an adaptive lock: a clustered object that shows its form and its monitor. It is created with
//! the policy's first decision, so an uncontended lock stays without one.

use std::sync::{Arc, Mutex};

use squall_core::{Handle, Id, Owned};
use squall_lock::MonitorReading;
use squall_macros::interface;

/// View of an adaptive lock, for a browser or for the program.
///
/// The values are those of the policy's last run. The policy runs when threads had to wait.
///
/// ```
/// use squall::objects::lock::{AdaptiveLock, LockView, Wanted};
///
/// let lock = AdaptiveLock::named("queue", ());
/// lock.set_form(Wanted::Block);
/// assert_eq!(lock.view().unwrap().form(), "block");
/// ```
#[interface(crate = squall_core)]
pub trait LockView: Send + Sync {
    /// Returns the name that the program gave the lock.
    fn name(&self) -> &'static str;

    /// Returns the name of the form.
    fn form(&self) -> &'static str;

    /// Returns the readings of the monitor.
    fn monitor(&self) -> MonitorReading;
}

/// The lock's half of the view.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: &'static str,
    /// Form and monitor at the policy's last run.
    pub(super) last: Mutex<(&'static str, MonitorReading)>,
}

impl Facts {
    fn last(&self) -> (&'static str, MonitorReading) {
        *self.last.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub(super) fn tell(&self, form: &'static str, monitor: MonitorReading) {
        *self.last.lock().unwrap_or_else(|poison| poison.into_inner()) = (form, monitor);
    }
}

/// The object's half of the view.
struct View(Arc<Facts>);

impl LockView for View {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn form(&self) -> &'static str {
        self.0.last().0
    }

    fn monitor(&self) -> MonitorReading {
        self.0.last().1
    }
}

/// The object, which lives as long as the lock.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) facts: Arc<Facts>,
    object: Owned<dyn LockView>,
}

impl Shown {
    /// Creates the object. Returns `None` if there is no room for it.
    pub(super) fn make(facts: Facts) -> Option<Shown> {
        let facts = Arc::new(facts);
        let mut object = squall_core::try_shared(View(facts.clone())).ok()?;
        if !facts.name.is_empty() {
            object = object.named(facts.name);
        }
        Some(Shown { facts, object })
    }

    pub(super) fn id(&self) -> Id {
        Handle::id(self.object.handle())
    }

    pub(super) fn handle(&self) -> Handle<dyn LockView> {
        self.object.handle()
    }
}
