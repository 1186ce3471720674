//! Log of the changes that clients asked for.
//!
//! - I1. The log keeps the latest [`ACTIONS_MAX`] changes, and at most 64 characters of each text of a
//!   client.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use crate::answers::{shortened, since_1970};
use crate::protocol::{ACTIONS_MAX, ActionView, Request};

static LOG: Mutex<VecDeque<ActionView>> = Mutex::new(VecDeque::new());

fn log() -> MutexGuard<'static, VecDeque<ActionView>> {
    // Only a failed allocation panics under this lock, and it leaves the log intact.
    LOG.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Client behind a connection, as the kernel reports it. Empty in tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: Option<u32>,
    pub(crate) uid: Option<u32>,
}

/// A change before its outcome is known.
///
/// A change that panics is recorded when the value is dropped.
pub(crate) struct Action(Option<ActionView>);

impl Action {
    /// Begins the record of a request, if it is a change.
    pub(crate) fn begin(request: &Request, peer: Peer) -> Option<Action> {
        let (id, action, author) = match request {
            Request::Freeze { id, author } => (Some(id), "freeze".to_owned(), author),
            Request::Thaw { id, author } => (Some(id), "thaw".to_owned(), author),
            Request::FreezeAll { author } => (None, "freeze all objects".to_owned(), author),
            Request::ThawAll { author } => (None, "thaw all objects".to_owned(), author),
            Request::Swap { id, implementation, author } => {
                (Some(id), format!("swap to {}", shortened(implementation)), author)
            }
            Request::Set { id, name, value, author } => {
                (Some(id), format!("set {} = {}", shortened(name), shortened(value)), author)
            }
            Request::Unset { id, name, author } => (Some(id), format!("reset {}", shortened(name)), author),
            _ => return None,
        };
        Some(Action(Some(ActionView {
            at_ms: since_1970(SystemTime::now()),
            id: id.map(|id| shortened(id)),
            action,
            author: author.as_deref().map(shortened),
            uid: peer.uid,
            pid: peer.pid,
            outcome: "the program panicked".to_owned(),
        })))
    }

    /// Records the change with its outcome: done, or refused for a reason.
    pub(crate) fn end(mut self, refusal: Option<&str>) {
        if let Some(view) = &mut self.0 {
            view.outcome = refusal.unwrap_or("done").to_owned();
        }
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        let Some(view) = self.0.take() else { return };
        let mut log = log();
        if log.len() == ACTIONS_MAX {
            log.pop_front();
        }
        log.push_back(view);
    }
}

/// Returns the latest changes, oldest first.
pub(crate) fn recent() -> Vec<ActionView> {
    log().iter().cloned().collect()
}
