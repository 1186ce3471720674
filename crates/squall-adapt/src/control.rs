//! Manual control of objects by their ids: read their status and decisions, freeze them, set their
//! attributes, swap them. `squall top` uses these functions from outside the process.
//!
//! - I1. User code does not run under a lock of this module.

use std::any::TypeId;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{ClassInfo, Handle, Id, Interface, class_of, name_of};
use squall_sys::fork::forked;

use crate::calls::{Calls, count_calls};
use crate::decision;
pub use crate::decision::{Decision, Held, Verdict, history, recent};
use crate::engine::{self, EngineState, by_hand, thread_state};
use crate::family;
use crate::live;
pub use crate::live::PlannedSwap;
use crate::settings;
use crate::stays::{Reason, Stays};
use squall_policy::attribute::{self, Attribute, AttributeError, AttributeInfo, InstanceValues, Value};

/// Deadline of a swap by hand.
const BY_HAND: Duration = Duration::from_secs(1);
/// Author of changes by the program itself.
const PROGRAM: &str = "the program";
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
    /// `true` if the object is frozen, individually or with all others.
    pub frozen: bool,
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

/// Returns the status of each of these objects, in this order. The option is empty if the object was
/// destroyed or is not adaptive.
///
/// # Cost
/// One pass over the recorded decisions, for any number of objects.
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
    let mut latest = decision::latest(ids);
    ids.iter().map(|id| status_with(*id, latest.remove(id))).collect()
}

/// Returns the ids of the objects that the engine has a record of.
fn known() -> Vec<Id> {
    if forked() { Vec::new() } else { engine::state().records.keys().copied().collect() }
}

/// Returns the status of an adaptive object. Returns `None` if it was destroyed or is not adaptive.
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

/// Returns the status of an adaptive object, with this decision as the latest.
fn status_with(id: Id, last: Option<Decision>) -> Option<Status> {
    let (family, form) = family::of(id)?;
    let (frozen, dry_run) = settings::is_held(id);
    let known = engine::state()
        .records
        .get(&id)
        .map(|r| (r.swaps_count, r.reading.bytes, r.contended_per_s, r.stays, r.seen));
    let (swaps_count, bytes, contended_per_s, stays, seen) = known.unwrap_or_default();
    let is_off = matches!(thread_state(), EngineState::Off | EngineState::Failed);
    let reason = stays.unwrap_or(if is_off { Reason::EngineOff } else { Reason::NotExamined });
    Some(Status {
        id,
        family: family.name(),
        form: family.forms()[form].name(),
        forms: family.forms().iter().map(|form| form.name()).collect(),
        frozen,
        dry_run,
        swaps_count,
        bytes,
        contended_per_s,
        stays: Stays { reason, seen: seen.filter(|_| reason.rests_on_calls()) },
        last,
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

/// Freezes an object or thaws it. The engine leaves a frozen object as it is. Equivalent to the attribute
/// `freeze`. A swap that the engine has begun, or is about to begin, is still completed.
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
    settings::ALL_FROZEN.store(frozen, Ordering::Relaxed);
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
    settings::ALL_DRY_RUN.store(dry, Ordering::Relaxed);
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
    set_attribute_by(id, name, text, PROGRAM)
}

/// Like [`set_attribute`], but names the author. If the attribute is set by a swap, the reason of the
/// recorded [`Decision`] is `requested by`, followed by `author`.
///
/// # Errors
/// [`ControlError`], as for [`set_attribute`].
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{attributes, set_attribute_by};
///
/// let hits = squall::objects::counter::adaptive();
/// let id = Handle::id(hits.handle());
/// set_attribute_by(id, "margin", "2.5", "ann, with a debugger")?;
/// assert!(attributes(id)?.iter().any(|attribute| attribute.name == "margin" && attribute.value == "2.5"));
/// # Ok::<(), squall::adapt::control::ControlError>(())
/// ```
pub fn set_attribute_by(id: Id, name: &str, text: &str, author: &str) -> Result<(), ControlError> {
    let class = class(id)?;
    if let Some(live) = live::named(id, &class, name) {
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
    swap_by(id, implementation, PROGRAM)
}

/// Like [`swap`], but names the author. The reason of the recorded [`Decision`] is `requested by`, followed
/// by `author`.
///
/// # Errors
/// [`ControlError`]; the object keeps serving as before.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control::{history, swap_by};
///
/// let hits = squall::objects::counter::adaptive();
/// let id = Handle::id(hits.handle());
/// swap_by(id, "distributed", "ann, with a debugger")?;
/// assert_eq!(history(id)[0].why, "requested by ann, with a debugger");
/// # Ok::<(), squall::adapt::control::ControlError>(())
/// ```
pub fn swap_by(id: Id, implementation: &str, author: &str) -> Result<SwapReport, ControlError> {
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
