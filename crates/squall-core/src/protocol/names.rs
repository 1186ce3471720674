//! Names of objects: texts by which people tell them apart.
//!
//! Problem: a name is asked for by id, also after the object's end, and by threads that do not use the
//! object. An object without a name must not pay for the others.
//!
//! Idea: a list beside the tables, by id. A swap keeps the id, so it keeps the name. A word of the slot,
//! which was padding, says whether the list may have an entry for it. The entry also has the object's link to
//! the object that it is a part of ([`links`](super::links)).
//!
//! - I1. `Slot::listed` is the [`mark`] of the last object of the slot that was entered in the list. It is
//!   written in an operation in which the object was found alive, so the thread that ends the object sees it.
//! - I2. No code of users runs under the lock of the list. A signal handler never waits for the lock that the
//!   interrupted code holds: both enter [`Cold`].
//!
//! Not promised: the name of an object that ended before the last [`ENDED_MAX`] named objects to end.
//!
//! Cost: an object that is not listed has neither memory nor calls of this module. Its end compares one word.

use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::{Arc, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::ops::Deref;

use super::stall::{Found, look};
use crate::protocol::id::Id;
use crate::protocol::platform::Platform;
use crate::protocol::tables::{Cold, Tables, existing};

/// Names of ended objects that are kept.
const ENDED_MAX: usize = 1024;

/// The name of an object, for people: at most [`Name::BYTES_MAX`] bytes.
///
/// As text it is unchanged. `Display` and `Debug` escape control characters and characters that change the
/// direction of writing.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, name_of};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default()).named("GET /login\n");
/// let name = name_of(Handle::id(counter.handle())).unwrap();
/// assert_eq!(name, "GET /login\n");
/// assert_eq!(name.to_string(), "GET /login\\n");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The greatest length of a name in bytes. The end of a longer one is cut off, between two characters.
    pub const BYTES_MAX: usize = 256;

    pub(crate) fn new(text: Arc<str>) -> Name {
        if text.len() <= Name::BYTES_MAX {
            return Name(text);
        }
        Name(text[..text.floor_char_boundary(Name::BYTES_MAX)].into())
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

/// Returns whether this character could change the text around it on a terminal.
fn is_control(letter: char) -> bool {
    let is_format = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_format || letter.is_control()
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

/// A text without control characters.
struct Shown<'t>(&'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| {
            if is_control(letter) { write!(f, "{}", letter.escape_default()) } else { f.write_char(letter) }
        })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for (index, part) in self.0.split('"').enumerate() {
            if index > 0 {
                f.write_str("\\\"")?;
            }
            write!(f, "{}", Shown(part))?;
        }
        f.write_char('"')
    }
}

/// The reason why an object was not given a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// There is no live object with this id.
    NoObject(Id),
    /// The process is the child of a fork: see [forked children](crate#forked-children).
    Forked(Id),
    /// The call comes from a signal handler that interrupted a slow path of Squall on this thread.
    Reentrant(Id),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::NoObject(id) => {
                write!(
                    f,
                    "object {id} cannot be named: it was destroyed or never existed; name it while it lives"
                )
            }
            NameError::Forked(id) => {
                write!(f, "object {id} cannot be named: this is the child of a fork, which may only exec")
            }
            NameError::Reentrant(id) => write!(
                f,
                "object {id} cannot be named: a signal handler interrupted a slow path of Squall on this thread; name \
                 it outside handlers"
            ),
        }
    }
}

impl std::error::Error for NameError {}

/// An entry of the list.
#[derive(Debug)]
pub(super) struct Entry {
    /// The object's own id.
    pub(super) id: Id,
    /// The number of its ids.
    interfaces: u32,
    name: Option<Name>,
    /// The object that it is a part of.
    pub(super) whole: Option<Id>,
}

impl Entry {
    /// Returns whether this is an id of the object.
    pub(super) fn is(&self, id: Id) -> bool {
        let first = self.id.slot();
        self.id.generation() == id.generation() && (first..first + self.interfaces).contains(&id.slot())
    }
}

/// The entries of live objects by their first slots, and those of ended objects with names, the latest last.
struct Names {
    live: BTreeMap<u32, Entry>,
    ended: VecDeque<Entry>,
}

static NAMES: Mutex<Names> = Mutex::new(Names { live: BTreeMap::new(), ended: VecDeque::new() });

/// The locked list (I2). The lock is given back first.
pub(super) struct Locked {
    names: MutexGuard<'static, Names>,
    _cold: Cold,
}

impl Locked {
    /// Locks the list, unless a signal handler has interrupted code with this or a similar lock.
    pub(super) fn enter() -> Option<Locked> {
        let cold = Cold::enter()?;
        // Only a failed allocation can panic under this lock, and it leaves the list whole.
        let names = NAMES.lock().unwrap_or_else(|poison| poison.into_inner());
        Some(Locked { names, _cold: cold })
    }

    /// Locks the list if it is free.
    fn try_enter() -> Option<Locked> {
        let cold = Cold::enter()?;
        NAMES.try_lock().ok().map(|names| Locked { names, _cold: cold })
    }

    /// Returns the entry of a live object.
    pub(super) fn live(&self, id: Id) -> Option<&Entry> {
        let before = self.names.live.range(..=id.slot()).next_back().map(|(_, entry)| entry);
        before.filter(|entry| entry.is(id))
    }

    /// Returns the entries of live objects.
    pub(super) fn all_live(&self) -> impl Iterator<Item = &Entry> {
        self.names.live.values()
    }

    fn find(&self, id: Id) -> Option<Name> {
        let ended = || self.names.ended.iter().rev().find(|entry| entry.is(id));
        self.live(id).or_else(ended).and_then(|entry| entry.name.clone())
    }
}

/// Gives an object a name for people, or replaces its name. `id` may be that of any of its interfaces.
///
/// The name is shown by [`ObjectInfo`](crate::ObjectInfo), [`CallError`](crate::CallError), reports of
/// stalled grace periods and `squall top`. It stays with the object through swaps. After the object's end it
/// is kept until 1,024 other named objects have ended. Owners have [`named`](crate::Owned::named).
///
/// # Errors
/// [`NameError::NoObject`] if the object was destroyed. Also in a forked child, and in a signal handler that
/// interrupted a slow path of Squall.
///
/// # Cost
/// A lock of the process, an operation, and some tens of bytes besides the text. Calls of the object cost as
/// much as before.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, info_of, set_name};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let id = Handle::id(counter.handle());
/// set_name(id, "GET /login requests")?;
/// assert_eq!(info_of(id).unwrap().name.unwrap(), "GET /login requests");
/// drop(counter);
/// assert!(set_name(id, "POST /login requests").is_err());
/// # Ok::<(), squall::NameError>(())
/// ```
pub fn set_name(id: Id, name: impl Into<Arc<str>>) -> Result<(), NameError> {
    set(id, Name::new(name.into()))
}

fn set(id: Id, name: Name) -> Result<(), NameError> {
    let changed = change(id, |_, entry| entry.name.replace(name));
    // A previous name is dropped here, outside the lock.
    changed.map(drop).map_err(|refusal| match refusal {
        Refusal::NoObject => NameError::NoObject(id),
        Refusal::Forked => NameError::Forked(id),
        Refusal::Reentrant => NameError::Reentrant(id),
    })
}

/// The reason why an entry was not changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    NoObject,
    Forked,
    Reentrant,
}

/// Changes the entry of a live object. `change` gets the list without the entry, and the entry, which is new
/// if the object was not listed. It runs under the lock.
pub(super) fn change<R>(id: Id, change: impl FnOnce(&Locked, &mut Entry) -> R) -> Result<R, Refusal> {
    if squall_sys::fork::forked() {
        return Err(Refusal::Forked);
    }
    let tables = existing().ok_or(Refusal::NoObject)?;
    let give = || {
        let slot = (id.slot() < tables.slots_end()).then(|| tables.slot(id.slot()));
        let Some(Found::Object(own, class)) = slot.and_then(|slot| look(slot, id)) else {
            return Err(Refusal::NoObject);
        };
        let mut locked = Locked::enter().ok_or(Refusal::Reentrant)?;
        let before = locked.names.live.remove(&own.slot()).filter(|entry| entry.id == own);
        let new = Entry { id: own, interfaces: class.interfaces, name: None, whole: None };
        let mut entry = before.unwrap_or(new);
        let result = change(&locked, &mut entry);
        locked.names.live.insert(own.slot(), entry);
        for slot in own.slot()..own.slot() + class.interfaces {
            // Relaxed: the end of the object comes after a grace period, which waits for this operation (I1).
            tables.slot(slot).listed.store(mark(own), Ordering::Relaxed);
        }
        Ok(result)
    };
    squall_rcu::__try_pin(|_| give()).unwrap_or(Err(Refusal::Reentrant))
}

/// Returns the name of the object with this id, if it has one. `id` may be that of any of its interfaces.
///
/// The names of the latest 1,024 ended objects are found, too. A forked child finds no names. Neither does a
/// signal handler that interrupted a slow path of Squall.
///
/// # Cost
/// A load if no object of this slot ever had a name; otherwise a lock of the process.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, name_of};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default()).named("hits");
/// let id = Handle::id(counter.handle());
/// drop(counter);
/// assert_eq!(name_of(id).unwrap(), "hits");
/// ```
pub fn name_of(id: Id) -> Option<Name> {
    if may_be_listed(id) { Locked::enter()?.find(id) } else { None }
}

/// Like [`name_of`], but does not wait: finds no name while another thread uses the list.
pub(crate) fn try_name_of(id: Id) -> Option<Name> {
    if may_be_listed(id) { Locked::try_enter()?.find(id) } else { None }
}

/// Returns the name of the live object with this id, and the object that it is a part of.
pub(crate) fn listed(id: Id) -> Option<(Option<Name>, Option<Id>)> {
    let locked = if may_be_listed(id) { Locked::enter()? } else { return None };
    locked.live(id).map(|entry| (entry.name.clone(), entry.whole))
}

pub(super) fn may_be_listed(id: Id) -> bool {
    // Relaxed: a thread that must see the entry is ordered after `change` by other means.
    let listed = |tables: &Tables| {
        id.slot() < tables.slots_end() && tables.slot(id.slot()).listed.load(Ordering::Relaxed) != 0
    };
    !squall_sys::fork::forked() && existing().is_some_and(listed)
}

/// Returns a part of an id's generation, never zero. Other generations may have the same mark; the list
/// decides.
pub(crate) fn mark(id: Id) -> u16 {
    id.generation() as u16 | 1
}

/// Removes the entry of an object that ends. Keeps its name among those of ended objects.
#[cold]
#[inline(never)]
pub(crate) fn end(id: Id) {
    // Not in a signal handler, where no memory is reclaimed. So the lock may be taken without `Cold`.
    let _cold = Cold::enter();
    let mut names = NAMES.lock().unwrap_or_else(|poison| poison.into_inner());
    if names.live.get(&id.slot()).is_none_or(|entry| entry.id != id) {
        return;
    }
    let Some(entry) = names.live.remove(&id.slot()).filter(|entry| entry.name.is_some()) else { return };
    let forgotten = if names.ended.len() >= ENDED_MAX { names.ended.pop_front() } else { None };
    names.ended.push_back(entry);
    drop(names);
    drop(forgotten);
}
