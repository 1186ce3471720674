//! What others see of an adaptive lock: a clustered object with its form and its monitor, made when the policy first decides
//! something, so that a lock which nobody fights over has none.

use std::sync::{Arc, Mutex};

use squall_core::{Handle, Id, Owned};
use squall_lock::MonitorReading;
use squall_macros::interface;

/// What an adaptive lock shows of itself, to a browser or to the program.
///
/// What it says is as of the last look of the lock's policy, which looks when threads had to wait.
#[interface(crate = squall_core)]
pub trait LockView: Send + Sync {
    /// The name that the program gave it.
    fn name(&self) -> &'static str;

    /// The form that it has.
    fn form(&self) -> &'static str;

    /// What its monitor said.
    fn monitor(&self) -> MonitorReading;
}

/// The lock's side.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: &'static str,
    /// Form and monitor at the last look.
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

/// The object's side.
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

/// The object, as long as the lock lives.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) facts: Arc<Facts>,
    object: Owned<dyn LockView>,
}

impl Shown {
    /// None if there is no room for another object.
    pub(super) fn make(facts: Facts) -> Option<Shown> {
        let facts = Arc::new(facts);
        let object = squall_core::try_shared(View(facts.clone())).ok()?;
        Some(Shown { facts, object })
    }

    pub(super) fn id(&self) -> Id {
        Handle::id(self.object.handle())
    }

    pub(super) fn handle(&self) -> Handle<dyn LockView> {
        self.object.handle()
    }
}
