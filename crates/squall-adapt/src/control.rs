//! Manual control of objects by their ids: read their status and decisions, freeze them, set their
//! attributes, swap them. `squall top` uses these functions from outside the process.
//!
//! - I1. User code does not run under a lock of this module.

use std::any::TypeId;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{ClassInfo, Handle, Id, Interface, class_of, name_of};
use squall_sys::fork::forked;

use crate::calls::{Calls, count_calls};
use crate::decision;
pub use crate::decision::{Author, Decision, Held, Verdict, history, recent};
use crate::engine::{self, EngineState, Record, by_hand, thread_state};
use crate::family::{self, AnyFamily};
use crate::live;
pub use crate::live::PlannedSwap;
use crate::records::{Mode, mode_changed};
use crate::settings;
use crate::stays::{Reason, Seen, Stays};
use squall_policy::attribute::{self, Attribute, AttributeError, AttributeInfo, InstanceValues, Value};

/// Deadline of a swap by hand.
const BY_HAND: Duration = Duration::from_secs(1);
/// Longest span of a call count.
const SAMPLE_MAX: Duration = Duration::from_secs(1);

/// Status of an adaptive object, as the engine knows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The object, as the interface that it was created with.
    pub id: Id,
    /// Name of its family.
    pub family: &'static str,
    /// Name of its present form.
    pub form: &'static str,
    /// Names of the forms that it can have. The first is the one in which it began.
    pub forms: Vec<&'static str>,
    /// `true` if the object itself is frozen.
    pub frozen: bool,
    /// `true` if all objects are frozen ([`freeze_all`]). The engine leaves the object as it is then, too.
    pub frozen_all: bool,
    /// `true` if the engine only records its decisions about the object.
    pub dry_run: bool,
    /// Number of swaps that the engine knows of.
    pub swaps_count: u64,
    /// Bytes of its form beyond the bytes that every form has, at the last reading; zero if never read.
    pub bytes: usize,
    /// Calls per second on the contended path, between the last two samples.
    pub contended_per_s: f64,
    /// Why it keeps its form.
    pub stays: Stays,
    /// The latest recorded decision about the object.
    pub last: Option<Decision>,
}

/// Reason why an object could not be controlled.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no live object with this id.
    NoObject(Id),
    /// The class of the object belongs to no family, so the object has no policy.
    NotAdaptive(Id, &'static str),
    /// The interface of the object has no implementation of this name.
    NoImplementation {
        /// The object.
        id: Id,
        /// Its interface.
        interface: &'static str,
        /// The requested name.
        asked: String,
        /// The names of the registered implementations.
        known: Vec<&'static str>,
    },
    /// The swap failed.
    Swap(SwapError),
    /// An attribute was rejected.
    Attribute(AttributeError),
    /// The requested span of a call count is too long.
    TooLong(Id, Duration),
    /// The call was made inside an operation, where a thread must not wait.
    InOperation(Id),
    /// The value of this attribute is determined by the implementation of the object, so it cannot be unset.
    NotUnset(Id, String),
    /// The object alone changes the value of this attribute.
    ReadOnly(Id, String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NoObject(id) => {
                write!(f, "there is no live object {}; `squall::snapshot` lists those that live", Named(*id))
            }
            ControlError::NotAdaptive(id, class) => write!(
                f,
                "object {} of class {class} does not adapt: its class is in no family; create an adaptive object",
                Named(*id)
            ),
            ControlError::NoImplementation { id, interface, asked, known } => {
                write!(f, "{interface}#{} cannot become {asked:?}: ", Named(*id))?;
                match known.as_slice() {
                    [] => write!(f, "no implementation of {interface} was registered; register one first"),
                    known => write!(f, "registered are {}; ask for one of these", known.join(", ")),
                }
            }
            ControlError::Swap(error) => error.fmt(f),
            ControlError::Attribute(error) => error.fmt(f),
            ControlError::TooLong(id, span) => write!(
                f,
                "calls of object {} cannot be counted for {span:?}; count them for at most {SAMPLE_MAX:?}",
                Named(*id)
            ),
            ControlError::InOperation(id) => write!(
                f,
                "object {} cannot be controlled inside an operation, where a thread must not wait; do it outside",
                Named(*id)
            ),
            ControlError::NotUnset(id, name) => write!(
                f,
                "attribute `{name}` of object {} cannot be unset: its implementation determines the value; set it",
                Named(*id)
            ),
            ControlError::ReadOnly(id, name) => write!(
                f,
                "attribute `{name}` of object {} cannot be set: it is a reading, which the object alone changes",
                Named(*id)
            ),
        }
    }
}

/// Prints an id, and the name of the object if the program gave it one.
struct Named(Id);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(self.0) {
            Some(name) => write!(f, "{} {name:?}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Swap(error) => Some(error),
            ControlError::Attribute(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SwapError> for ControlError {
    fn from(error: SwapError) -> ControlError {
        ControlError::Swap(error)
    }
}

impl From<AttributeError> for ControlError {
    fn from(error: AttributeError) -> ControlError {
        ControlError::Attribute(error)
    }
}

/// Returns the status of all objects that the engine knows: objects with a sensor that tripped, and objects
/// controlled by hand.
///
/// An adaptive object that only one processor uses is missing from the list. [`status`] finds it by its id.
///
/// ```
/// // So far, no sensor has tripped.
/// assert!(squall::adapt::control::statuses().is_empty());
/// ```
pub fn statuses() -> Vec<Status> {
    let mut ids = known();
    ids.sort();
    statuses_of(&ids).into_iter().flatten().collect()
}

/// Returns the status of each of these objects, in this order. The status is `None` if the object was
/// destroyed or is not adaptive, or if its family panicked.
///
/// # Cost
/// Linear in the number of these objects, whatever the number of other objects and of decisions.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::statuses_of;
///
/// let hits = squall::objects::counter::adaptive();
/// let statuses = statuses_of(&[Handle::id(hits.handle())]);
/// assert_eq!(statuses[0].as_ref().unwrap().form, "shared");
/// ```
pub fn statuses_of(ids: &[Id]) -> Vec<Option<Status>> {
    /// Number of records that are read under one lock of the engine's state.
    const RECORDS: usize = 256;
    let families = family::registered();
    let is_off = matches!(thread_state(), EngineState::Off | EngineState::Failed);
    let mut statuses = Vec::with_capacity(ids.len());
    for ids in ids.chunks(RECORDS) {
        let records: Vec<Option<Noted>> = if forked() {
            ids.iter().map(|_| None).collect()
        } else {
            let state = engine::state();
            ids.iter().map(|id| state.records.get(id).map(Noted::of)).collect()
        };
        for (id, noted) in ids.iter().zip(records) {
            let status = || status_of(*id, &families, is_off, noted.unwrap_or_default());
            statuses.push(catch_unwind(AssertUnwindSafe(status)).unwrap_or_else(|panic| {
                // The drop of a payload may panic, so it is leaked.
                std::mem::forget(panic);
                None
            }));
        }
    }
    statuses
}

/// The facts of an object's record that its status needs.
#[derive(Default)]
struct Noted {
    swaps_count: u64,
    bytes: usize,
    contended_per_s: f64,
    stays: Option<Reason>,
    seen: Option<Seen>,
}

impl Noted {
    fn of(record: &Record) -> Noted {
        let Record { swaps_count, contended_per_s, stays, seen, reading, .. } = record;
        let (swaps_count, contended_per_s, stays, seen) = (*swaps_count, *contended_per_s, *stays, *seen);
        Noted { swaps_count, bytes: reading.bytes, contended_per_s, stays, seen }
    }
}

/// Not public: returns the contended calls per second and the number of swaps of each object that the engine
/// has a record of. Clients sort by them.
#[doc(hidden)]
pub fn __loads() -> Vec<(Id, f64, u64)> {
    if forked() {
        return Vec::new();
    }
    let state = engine::state();
    state.records.iter().map(|(id, record)| (*id, record.contended_per_s, record.swaps_count)).collect()
}

/// Returns the ids of the objects that the engine has a record of.
fn known() -> Vec<Id> {
    if forked() { Vec::new() } else { engine::state().records.keys().copied().collect() }
}

/// Returns the status of an adaptive object, unless it was destroyed or is not adaptive.
///
/// ```
/// use squall::Handle;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// // This class belongs to no family.
/// let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// assert!(squall::adapt::control::status(Handle::id(hits.handle())).is_none());
/// ```
pub fn status(id: Id) -> Option<Status> {
    statuses_of(&[id]).pop().flatten()
}

fn status_of(id: Id, families: &[&'static dyn AnyFamily], is_off: bool, noted: Noted) -> Option<Status> {
    let (family, form) = family::of_among(families, id)?;
    let (frozen, dry_run) = settings::flags(id);
    let reason = noted.stays.unwrap_or(if is_off { Reason::EngineOff } else { Reason::NotExamined });
    Some(Status {
        id,
        family: family.name(),
        form: family.forms()[form].name(),
        forms: family.forms().iter().map(|form| form.name()).collect(),
        frozen,
        frozen_all: all_frozen(),
        dry_run,
        swaps_count: noted.swaps_count,
        bytes: noted.bytes,
        contended_per_s: noted.contended_per_s,
        stays: Stays { reason, seen: noted.seen.filter(|_| reason.rests_on_calls()) },
        last: decision::latest(id).map(Arc::unwrap_or_clone),
    })
}

/// Returns why an adaptive object keeps its form: what the engine found at its last look, or why it has not
/// looked. Returns `None` if the object was destroyed or is not adaptive.
///
/// Only the latest reason is kept. The [`history`] has the decisions.
///
/// ```
/// use squall::Handle;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// // This class belongs to no family.
/// let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// assert!(squall::adapt::control::stays(Handle::id(hits.handle())).is_none());
/// ```
pub fn stays(id: Id) -> Option<Stays> {
    status(id).map(|status| status.stays)
}

fn class(id: Id) -> Result<ClassInfo, ControlError> {
    class_of(id).ok_or(ControlError::NoObject(id))
}

fn adaptive(id: Id) -> Result<(), ControlError> {
    let class = class(id)?;
    family::of(id).map(|_| ()).ok_or(ControlError::NotAdaptive(id, class.class))
}

/// Freezes an object or thaws it. The engine leaves a frozen object as it is. It counts the object's calls
/// once, for [`stays`], and not all the time. Equivalent to the attribute `freeze`. A swap that the engine
/// has begun, or is about to begin, is still completed.
///
/// # Errors
/// [`ControlError`]: the object was destroyed, or is not adaptive.
pub fn freeze(id: Id, frozen: bool) -> Result<(), ControlError> {
    values(id)?.set(&settings::FREEZE, frozen)?;
    engine::wake(id);
    Ok(())
}

/// Freezes all objects, or thaws those that are not frozen individually.
///
/// ```
/// use squall::adapt::control::{all_frozen, freeze_all};
///
/// freeze_all(true);
/// assert!(all_frozen());
/// freeze_all(false);
/// ```
pub fn freeze_all(frozen: bool) {
    if settings::ALL_FROZEN.swap(frozen, Ordering::Relaxed) != frozen {
        mode_changed(if frozen { Mode::Frozen } else { Mode::Thawed });
    }
    wake_all();
}

/// Returns `true` if all objects are frozen.
pub fn all_frozen() -> bool {
    settings::ALL_FROZEN.load(Ordering::Relaxed)
}

/// Makes all policies only record their decisions, or carry them out again.
///
/// ```
/// use squall::adapt::control::{all_dry_run, dry_run_all};
///
/// dry_run_all(true);
/// assert!(all_dry_run());
/// dry_run_all(false);
/// ```
pub fn dry_run_all(dry: bool) {
    if settings::ALL_DRY_RUN.swap(dry, Ordering::Relaxed) != dry {
        mode_changed(if dry { Mode::DryRun } else { Mode::Acting });
    }
    wake_all();
}

/// Returns `true` if all policies only record their decisions.
pub fn all_dry_run() -> bool {
    settings::ALL_DRY_RUN.load(Ordering::Relaxed)
}

fn wake_all() {
    known().into_iter().for_each(engine::wake);
}

/// Returns the attribute values of an adaptive object, and creates them if needed.
fn values(id: Id) -> Result<Arc<InstanceValues>, ControlError> {
    adaptive(id)?;
    if let Some(values) = attribute::values_of(id) {
        return Ok(values);
    }
    Ok(attribute::attach(id, Arc::new(InstanceValues::of_class(&settings::ALL))))
}

/// Lists the attributes of an object: those of its policy if it is adaptive, or those that the program
/// attached to it, and those [registered](register_attribute) for its interface.
///
/// # Errors
/// [`ControlError`]: the object was destroyed, or has no attributes.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::policy::attribute::{self, Attribute, ClassValues, InstanceValues, Schema};
/// use std::sync::Arc;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// static LIMIT: Attribute<u64> = Attribute::new("limit", 100);
/// static SCHEMA: Schema = Schema::new("hits", &[&LIMIT]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// let id = Handle::id(hits.handle());
/// attribute::attach(id, Arc::new(InstanceValues::of_class(&CLASS)));
/// control::set_attribute(id, "limit", "7")?;
/// assert_eq!(control::attributes(id)?[0].value, "7");
/// # Ok::<(), control::ControlError>(())
/// ```
pub fn attributes(id: Id) -> Result<Vec<AttributeInfo>, ControlError> {
    let class = class(id)?;
    let by_swap = live::list(id, &class);
    let mut kept = match attribute::values_of(id) {
        Some(values) => values.list(),
        None if family::of(id).is_some() => settings::ALL.list(),
        None if by_swap.is_empty() => return Err(ControlError::NotAdaptive(id, class.class)),
        None => Vec::new(),
    };
    kept.extend(by_swap);
    Ok(kept)
}

/// Registers an attribute with a value that is determined by the implementation of an object.
///
/// `read` returns the value for an object, or `None` if the object does not have the attribute. Setting the
/// attribute calls `make` and swaps the object that it returns for the replacement, with a deadline of one
/// second. A second registration of the same name for the same interface has no effect.
pub fn register_attribute<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    make: fn(Handle<I>, T) -> Option<PlannedSwap<I>>,
) {
    live::register(attribute, read, make);
}

/// Registers an attribute that is read from an object and set by a call of it.
///
/// `read` returns the value for an object, and `write` sets it. Both return an empty option if the object
/// does not have the attribute. A second registration of the same name for the same interface has no effect.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::policy::attribute::Attribute;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// # #[squall::interface]
/// # trait Limited: Send + Sync { fn limit(&self) -> u64; fn set_limit(&self, limit: u64); }
/// # struct Is(AtomicU64);
/// # impl Limited for Is {
/// #     fn limit(&self) -> u64 { self.0.load(Ordering::Relaxed) }
/// #     fn set_limit(&self, limit: u64) { self.0.store(limit, Ordering::Relaxed) }
/// # }
/// static LIMIT: Attribute<u64> = Attribute::new("limit", 100);
/// let (read, write) = (|it: Handle<dyn Limited>| it.try_limit().ok(), |it: Handle<dyn Limited>, n| it.try_set_limit(n).ok());
/// control::register_setting(&LIMIT, read, write);
///
/// let object: squall::Owned<dyn Limited> = squall::shared(Is(AtomicU64::new(3)));
/// control::set_attribute(Handle::id(object.handle()), "limit", "7")?;
/// assert_eq!(object.limit(), 7);
/// # Ok::<(), control::ControlError>(())
/// ```
pub fn register_setting<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    write: fn(Handle<I>, T) -> Option<()>,
) {
    live::register_setting(attribute, read, write);
}

/// Registers a reading: an attribute that is read from an object, such as a count, and cannot be set. Its
/// [range](squall_policy::attribute::AttributeInfo::range) is "read only".
///
/// `read` returns the value for an object, or an empty option if the object does not have the attribute. A
/// second registration of the same name for the same interface has no effect.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{self, ControlError};
/// use squall::policy::attribute::Attribute;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn hits(&self) -> u64; }
/// # struct Count;
/// # impl Hits for Count { fn hits(&self) -> u64 { 5 } }
/// static HITS: Attribute<u64> = Attribute::new("hits", 0);
/// control::register_reading(&HITS, |it: Handle<dyn Hits>| it.try_hits().ok());
///
/// let object: squall::Owned<dyn Hits> = squall::shared(Count);
/// let id = Handle::id(object.handle());
/// assert_eq!(control::attributes(id)?[0].value, "5");
/// assert!(matches!(control::set_attribute(id, "hits", "0"), Err(ControlError::ReadOnly(..))));
/// # Ok::<(), control::ControlError>(())
/// ```
pub fn register_reading<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
) {
    live::register_reading(attribute, read);
}

/// Sets an attribute of an object by its name, from text. A [registered](register_attribute) attribute is set
/// by a swap.
///
/// # Errors
/// [`ControlError`]: the object was destroyed or has no attributes; or the name, the type or the value is
/// wrong. If the value is wrong, the error names the values allowed.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{ControlError, set_attribute};
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// // The object is not adaptive.
/// let refused = set_attribute(Handle::id(hits.handle()), "cooldown", "50ms");
/// assert!(matches!(refused, Err(ControlError::NotAdaptive(..))));
/// ```
pub fn set_attribute(id: Id, name: &str, text: &str) -> Result<(), ControlError> {
    set(id, name, text, None)
}

/// Like [`set_attribute`], but names the author. If the attribute is set by a swap, the recorded [`Decision`]
/// names the author, too.
///
/// # Errors
/// [`ControlError`], as for [`set_attribute`].
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{Author, attributes, set_attribute_by};
///
/// let hits = squall::objects::counter::adaptive();
/// let id = Handle::id(hits.handle());
/// set_attribute_by(id, "margin", "2.5", &Author::new("ann, with a debugger"))?;
/// assert!(attributes(id)?.iter().any(|attribute| attribute.name == "margin" && attribute.value == "2.5"));
/// # Ok::<(), squall::adapt::control::ControlError>(())
/// ```
pub fn set_attribute_by(id: Id, name: &str, text: &str, author: &Author) -> Result<(), ControlError> {
    set(id, name, text, Some(author))
}

fn set(id: Id, name: &str, text: &str, author: Option<&Author>) -> Result<(), ControlError> {
    let class = class(id)?;
    if let Some(live) = live::named(id, &class, name) {
        if live.is_reading() {
            return Err(ControlError::ReadOnly(id, name.to_owned()));
        }
        if squall_rcu::in_operation() {
            return Err(ControlError::InOperation(id));
        }
        let swapped = live.set(id, &class, text, BY_HAND)?;
        if let Some(report) = swapped.ok_or(ControlError::NoObject(id))?? {
            engine::replaced(id, &class, report.to, &report, author);
        }
        return Ok(());
    }
    let values = match attribute::values_of(id) {
        Some(values) => values,
        None => values(id)?,
    };
    values.set_text(name, text)?;
    engine::wake(id);
    Ok(())
}

/// Unsets an attribute of an object, so that the value for all objects, or the default, applies again.
/// Returns `true` if the object had a value of its own.
///
/// # Errors
/// [`ControlError`]: the object was destroyed or has no attribute of this name, or its implementation
/// determines the value of the attribute.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{freeze, set_attribute, status, unset_attribute};
///
/// let hits = squall::objects::counter::adaptive();
/// let id = Handle::id(hits.handle());
/// freeze(id, true)?;
/// assert!(status(id).unwrap().frozen);
/// assert!(unset_attribute(id, "freeze")?);
/// assert!(!status(id).unwrap().frozen);
/// # Ok::<(), squall::adapt::control::ControlError>(())
/// ```
pub fn unset_attribute(id: Id, name: &str) -> Result<bool, ControlError> {
    let class = class(id)?;
    if let Some(live) = live::named(id, &class, name) {
        let refuse = if live.is_reading() { ControlError::ReadOnly } else { ControlError::NotUnset };
        return Err(refuse(id, name.to_owned()));
    }
    let Some(values) = attribute::values_of(id) else {
        family::of(id).ok_or(ControlError::NotAdaptive(id, class.class))?;
        // An unknown name is an error here, too.
        settings::ALL.get_text(name)?;
        return Ok(false);
    };
    let was_set = values.unset(name)?;
    engine::wake(id);
    Ok(was_set)
}

type Replace = Arc<dyn Fn(Id) -> Option<Result<SwapReport, SwapError>> + Send + Sync>;

/// An implementation registered by hand.
struct Implementation {
    interface: TypeId,
    name: &'static str,
    replace: Replace,
}

static IMPLEMENTATIONS: Mutex<Vec<Implementation>> = Mutex::new(Vec::new());

fn implementations_list() -> MutexGuard<'static, Vec<Implementation>> {
    // Only a failed allocation panics under this lock, and it leaves the list intact.
    IMPLEMENTATIONS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Registers an implementation of an interface under a name, so that objects can be swapped for it by hand.
/// `make` gets the object that the replacement is for. A name that is already registered for this interface
/// is replaced.
///
/// ```
/// use squall::adapt::control;
/// use squall::swap::{Replacement, State, StateFormats};
/// use squall::{Handle, Owned, swappable};
/// # #[squall::interface]
/// # trait Version: Send + Sync { fn version(&self) -> u32; }
/// # struct Is(u32);
/// # impl Version for Is { fn version(&self) -> u32 { self.0 } }
/// # impl State for Is {
/// #     fn formats(formats: &mut StateFormats<'_, Is>) { formats.export(|_| Ok(())).import(|_, ()| Ok(())); }
/// # }
/// control::register::<dyn Version>("two", |_| Replacement::swappable(Is(2)));
///
/// let object: Owned<dyn Version> = swappable(Is(1));
/// let id = Handle::id(object.handle());
/// assert_eq!(control::implementations(id), ["two"]);
/// control::swap(id, "two")?;
/// assert_eq!(object.version(), 2);
/// assert_eq!(control::history(id)[0].verdict, control::Verdict::ByHand);
/// # Ok::<(), control::ControlError>(())
/// ```
pub fn register<I: ?Sized + Interface>(
    name: &'static str,
    make: impl Fn(Handle<I>) -> Replacement<I> + Send + Sync + 'static,
) {
    if forked() {
        return;
    }
    let replace: Replace = Arc::new(move |id| {
        let handle = Handle::<I>::find(id)?;
        Some(Swap::new(handle).timeout(BY_HAND).run(make(handle)))
    });
    let interface = TypeId::of::<I>();
    let before = {
        let mut list = implementations_list();
        match list.iter_mut().find(|there| there.interface == interface && there.name == name) {
            Some(there) => Some(std::mem::replace(&mut there.replace, replace)),
            None => {
                list.push(Implementation { interface, name, replace });
                None
            }
        }
    };
    // Dropped outside the lock, because the captured values are user data (I1).
    drop(before);
}

/// Returns the names of the implementations that an object can be swapped for: those [registered](register)
/// for its interface, and the forms of the interface's families. For an example see [`register`].
pub fn implementations(id: Id) -> Vec<&'static str> {
    let Some(class) = class_of(id) else { return Vec::new() };
    let mut names: Vec<&'static str> = family::forms_for(class.interface_id)
        .into_iter()
        .map(|(family, form)| family.forms()[form].name())
        .collect();
    let list = implementations_list();
    names.extend(list.iter().filter(|there| there.interface == class.interface_id).map(|there| there.name));
    names
}

/// Swaps an object for the implementation with this name. The engine may swap it back after the cool-down,
/// unless the object is frozen. For an example see [`register`].
///
/// # Errors
/// [`ControlError`]; the object keeps serving as before.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{ControlError, swap};
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// let refused = swap(Handle::id(hits.handle()), "tree");
/// assert!(matches!(refused, Err(ControlError::NoImplementation { .. })));
/// ```
pub fn swap(id: Id, implementation: &str) -> Result<SwapReport, ControlError> {
    swap_for(id, implementation, None)
}

/// Like [`swap`], but names the author. The recorded [`Decision`] names the author, too.
///
/// # Errors
/// [`ControlError`]; the object keeps serving as before.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{Author, history, swap_by};
///
/// let hits = squall::objects::counter::adaptive();
/// let id = Handle::id(hits.handle());
/// let ann = Author::new("ann, with a debugger");
/// swap_by(id, "distributed", &ann)?;
/// let decision = &history(id)[0];
/// assert_eq!((&*decision.why, &decision.author), ("requested by ann, with a debugger", &Some(ann)));
/// # Ok::<(), squall::adapt::control::ControlError>(())
/// ```
pub fn swap_by(id: Id, implementation: &str, author: &Author) -> Result<SwapReport, ControlError> {
    swap_for(id, implementation, Some(author))
}

fn swap_for(id: Id, implementation: &str, author: Option<&Author>) -> Result<SwapReport, ControlError> {
    if squall_rcu::in_operation() {
        return Err(ControlError::InOperation(id));
    }
    let class = class(id)?;
    // Families of one interface may have forms of the same name. The object's own family comes first.
    let own =
        family::of(id).into_iter().flat_map(|(own, _)| (0..own.forms().len()).map(move |form| (own, form)));
    let mut forms = own.chain(family::forms_for(class.interface_id));
    if let Some((family, form)) = forms.find(|(family, form)| family.forms()[*form].name() == implementation)
    {
        return Ok(by_hand(id, family, form, BY_HAND, author).ok_or(ControlError::NoObject(id))??);
    }
    let replace = implementations_list()
        .iter()
        .find(|there| there.interface == class.interface_id && there.name == implementation)
        .map(|there| (there.name, Arc::clone(&there.replace)));
    match replace {
        Some((name, replace)) => {
            let report = replace(id).ok_or(ControlError::NoObject(id))??;
            engine::replaced(id, &class, name, &report, author);
            Ok(report)
        }
        None => Err(ControlError::NoImplementation {
            id,
            interface: class.interface,
            asked: implementation.to_owned(),
            known: implementations(id),
        }),
    }
}

/// Counts the calls of an object for a span of at most one second. The calling thread sleeps during the span.
/// See [`count_calls`].
///
/// # Errors
/// [`ControlError`]: the object was destroyed, the span is too long, the calls cannot be counted now, or the
/// caller is inside an operation.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{ControlError, sample};
/// use std::time::Duration;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// let id = Handle::id(hits.handle());
/// assert_eq!(sample(id, Duration::from_micros(300))?.count(), 0);
/// assert!(matches!(sample(id, Duration::from_secs(2)), Err(ControlError::TooLong(..))));
/// # Ok::<(), ControlError>(())
/// ```
pub fn sample(id: Id, span: Duration) -> Result<Calls, ControlError> {
    if squall_rcu::in_operation() {
        return Err(ControlError::InOperation(id));
    }
    if span > SAMPLE_MAX {
        return Err(ControlError::TooLong(id, span));
    }
    class(id)?;
    Ok(count_calls(id, span)?)
}
