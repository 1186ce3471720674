//! Log of the changes that clients asked for.
//!
//! - I1. The log keeps the latest [`ACTIONS_MAX`] changes, and at most 64 characters of each text of a
//!   client.
//! - I2. The change that froze an object is kept as long as the object is frozen, after any number of later
//!   changes. So is the change that froze all objects.
//!
//! Cost: some hundred bytes for each change, and for each object that a client froze.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use squall_adapt::control;
use squall_core::Id;

use crate::answers::{shortened, since_1970};
use crate::protocol::{ACTIONS_MAX, ActionView, Request};
use crate::session::Session;

/// Number of kept freezes at which those of other objects are removed.
const FROZEN_MIN: usize = 64;

/// See the module.
struct Log {
    latest: VecDeque<(u64, ActionView)>,
    /// Number of the next change.
    next: u64,
    /// The change that froze each object; without an id: all objects.
    frozen: BTreeMap<Option<Id>, (u64, ActionView)>,
    /// `frozen` is pruned at this many entries.
    prune_at: usize,
}

static LOG: Mutex<Log> =
    Mutex::new(Log { latest: VecDeque::new(), next: 0, frozen: BTreeMap::new(), prune_at: FROZEN_MIN });

fn log() -> MutexGuard<'static, Log> {
    // Only a failed allocation panics under this lock, and it leaves the log intact.
    LOG.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// A change before its outcome is known.
///
/// A change that panics is recorded when the value is dropped.
pub(crate) struct Action {
    view: Option<ActionView>,
    /// The object that the change may have frozen or thawed. The inner option is empty for all objects.
    freezes: Option<Option<Id>>,
}

impl Action {
    /// Begins the record of a request, if it is a change.
    pub(crate) fn begin(request: &Request, session: &Session) -> Option<Action> {
        let set = |name: &str| name == "freeze";
        let (id, action, author, freezes) = match request {
            Request::Freeze { id, author } => (Some(id), "freeze".to_owned(), author, true),
            Request::Thaw { id, author } => (Some(id), "thaw".to_owned(), author, true),
            Request::FreezeAll { author } => (None, "freeze all objects".to_owned(), author, true),
            Request::ThawAll { author } => (None, "thaw all objects".to_owned(), author, true),
            Request::Swap { id, implementation, author } => {
                (Some(id), format!("swap to {}", shortened(implementation)), author, false)
            }
            Request::Set { id, name, value, author } => {
                let action = format!("set {} = {}", shortened(name), shortened(value));
                (Some(id), action, author, set(name))
            }
            Request::Unset { id, name, author } => {
                (Some(id), format!("unset {}", shortened(name)), author, set(name))
            }
            Request::Deny { id, method, author } => {
                (Some(id), format!("deny {}", shortened(method)), author, false)
            }
            Request::Allow { id, method, author } => {
                (Some(id), format!("allow {}", shortened(method)), author, false)
            }
            Request::Disconnect { id, caller, author } => {
                (Some(id), format!("disconnect caller {caller}"), author, false)
            }
            Request::Leave { node, author } => (None, format!("let node {node} leave"), author, false),
            _ => return None,
        };
        let author = session.author(author.as_deref());
        let object = id.map_or(Some(None), |id| id.parse().ok().map(Some));
        let view = ActionView {
            at_ms: since_1970(SystemTime::now()),
            id: id.map(|id| shortened(id)),
            action,
            author: Some(author.to_string()),
            uid: author.uid,
            pid: author.pid,
            outcome: "the program panicked".to_owned(),
        };
        Some(Action { view: Some(view), freezes: object.filter(|_| freezes) })
    }

    /// Records the change with its outcome: done, or refused for a reason.
    pub(crate) fn end(mut self, refusal: Option<&str>) {
        if let Some(view) = &mut self.view {
            view.outcome = refusal.unwrap_or("done").to_owned();
        }
        if refusal.is_some() {
            self.freezes = None;
        }
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        let Some(view) = self.view.take() else { return };
        let frozen = self.freezes.map(|object| (object, is_frozen(object)));
        let mut log = log();
        let entry = (log.next, view);
        log.next += 1;
        match frozen {
            Some((object, true)) => drop(log.frozen.insert(object, entry.clone())),
            Some((object, false)) => drop(log.frozen.remove(&object)),
            None => {}
        }
        if log.latest.len() == ACTIONS_MAX {
            log.latest.pop_front();
        }
        log.latest.push_back(entry);
        if log.frozen.len() < log.prune_at {
            return;
        }
        // Freezes of objects that ended, or that the program thawed itself.
        let objects: Vec<Option<Id>> = log.frozen.keys().copied().collect();
        drop(log);
        let thawed: Vec<Option<Id>> = objects.into_iter().filter(|object| !is_frozen(*object)).collect();
        let mut log = self::log();
        log.frozen.retain(|object, _| !thawed.contains(object));
        log.prune_at = FROZEN_MIN.max(2 * log.frozen.len());
    }
}

fn is_frozen(object: Option<Id>) -> bool {
    match object {
        Some(id) => control::status(id).is_some_and(|status| status.frozen),
        None => control::all_frozen(),
    }
}

/// Returns the change that froze this object, or all objects, if a client made it.
pub(crate) fn freeze_of(object: Option<Id>) -> Option<ActionView> {
    let freeze = log().frozen.get(&object).map(|(_, view)| view.clone());
    freeze.filter(|_| is_frozen(object))
}

/// Returns the latest changes, and before them older ones by which an object is still frozen. Oldest first.
pub(crate) fn recent() -> Vec<ActionView> {
    let mut older: Vec<(Option<Id>, u64, ActionView)> = {
        let log = log();
        let first = log.latest.front().map_or(0, |(number, _)| *number);
        let older = log.frozen.iter().filter(|(_, (number, _))| *number < first);
        older.map(|(object, (number, view))| (*object, *number, view.clone())).collect()
    };
    older.retain(|(object, ..)| is_frozen(*object));
    older.sort_by_key(|(_, number, _)| *number);
    let surplus = older.len().saturating_sub(ACTIONS_MAX);
    let older = older.into_iter().skip(surplus).map(|(.., view)| view);
    older.chain(log().latest.iter().map(|(_, view)| view.clone())).collect()
}
