//! What a person or a program can do to objects by their ids: see what was decided of them, freeze them, set their
//! attributes, swap them by hand. What `squall top` does from outside, it does by these.
//!
//! - I1. No code of the program's runs under a lock of this module.

use std::any::TypeId;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{ClassInfo, Handle, Id, Interface, class_of};
use squall_sys::fork::forked;

use squall_policy::attribute::{self, Attribute, AttributeError, AttributeInfo, InstanceValues, Value};
use crate::live;
use crate::calls::{Calls, count_calls};
pub use crate::decision::{Decision, Held, Verdict, history, recent};
use crate::engine::{self, by_hand};
use crate::family;
use crate::settings;

/// How long a swap by hand may take.
const BY_HAND: Duration = Duration::from_secs(1);
/// The longest time for which calls are counted.
const SAMPLE_MAX: Duration = Duration::from_secs(1);

/// An object that can adapt, as far as its policy knows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The object, as the interface it was made for.
    pub id: Id,
    /// Its family.
    pub family: &'static str,
    /// The form that it has.
    pub form: &'static str,
    /// The forms that it may have; the first is the one in which it began.
    pub forms: Vec<&'static str>,
    /// Whether it is frozen, itself or with all others.
    pub frozen: bool,
    /// Whether its policy only says what it would do.
    pub dry_run: bool,
    /// Swaps that the engine knows of.
    pub swaps_count: u64,
    /// Bytes of its parts, when they were read last; zero if they never were.
    pub bytes: usize,
    /// What took the contended path, in each second between the last two looks.
    pub contended_per_s: f64,
    /// The last decision about it that is remembered.
    pub last: Option<Decision>,
}

/// Why something could not be done to an object.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no live object of this id.
    NoObject(Id),
    /// Its class is of no family, so that there is no policy.
    NotAdaptive(Id, &'static str),
    /// There is no implementation of this name for its interface.
    NoImplementation {
        /// The object.
        id: Id,
        /// Its interface.
        interface: &'static str,
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The swap was not made.
    Swap(SwapError),
    /// An attribute was refused.
    Attribute(AttributeError),
    /// Calls were to be counted for too long.
    TooLong(Id, Duration),
    /// Inside an operation, where nothing may wait.
    InOperation(Id),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NoObject(id) => write!(f, "there is no live object {id}"),
            ControlError::NotAdaptive(id, class) => {
                write!(f, "object {id} of class {class} does not adapt: its class is in no family")
            }
            ControlError::NoImplementation { id, interface, asked, known } => {
                write!(f, "{interface}#{id} cannot become {asked:?}: ")?;
                match known.as_slice() {
                    [] => write!(f, "no implementation of {interface} was registered"),
                    known => write!(f, "registered are {}", known.join(", ")),
                }
            }
            ControlError::Swap(error) => error.fmt(f),
            ControlError::Attribute(error) => error.fmt(f),
            ControlError::TooLong(id, span) => {
                write!(f, "calls of object {id} were to be counted for {span:?}; at most for {SAMPLE_MAX:?}")
            }
            ControlError::InOperation(id) => {
                write!(f, "object {id}: asked for inside an operation, where nothing may wait")
            }
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

/// The objects that the policies know: those whose sensors tripped, or that somebody steered. An adaptive object that nobody
/// shares is not among them; [`status`] finds it by its id.
pub fn statuses() -> Vec<Status> {
    let mut ids = known();
    ids.sort();
    ids.into_iter().filter_map(status).collect()
}

/// The objects of which the engine has a record.
fn known() -> Vec<Id> {
    if forked() { Vec::new() } else { engine::state().records.keys().copied().collect() }
}

/// What is known of an object that can adapt; none if it is gone, or cannot.
pub fn status(id: Id) -> Option<Status> {
    let (family, form) = family::of(id)?;
    let settings = settings::Settings::of(id);
    let known = engine::state()
        .records
        .get(&id)
        .map(|record| (record.swaps_count, record.reading.bytes, record.contended_per_s));
    let (swaps_count, bytes, contended_per_s) = known.unwrap_or_default();
    Some(Status {
        id,
        family: family.name(),
        form: family.forms()[form].name(),
        forms: family.forms().iter().map(|form| form.name()).collect(),
        frozen: settings.freeze,
        dry_run: settings.dry_run,
        swaps_count,
        bytes,
        contended_per_s,
        last: history(id).pop(),
    })
}

fn class(id: Id) -> Result<ClassInfo, ControlError> {
    class_of(id).ok_or(ControlError::NoObject(id))
}

fn adaptive(id: Id) -> Result<(), ControlError> {
    let class = class(id)?;
    family::of(id).map(|_| ()).ok_or(ControlError::NotAdaptive(id, class.class))
}

/// Freezes an object, or thaws it: a frozen one is left as it is by its policy. As the attribute `freeze`. A swap that its
/// policy has begun, or is just about to begin, is still made.
///
/// # Errors
/// [`ControlError`]: it is gone, or does not adapt.
pub fn freeze(id: Id, frozen: bool) -> Result<(), ControlError> {
    values(id)?.set(&settings::FREEZE, frozen)?;
    engine::wake(id);
    Ok(())
}

/// Freezes all objects, or thaws those that are not frozen themselves.
pub fn freeze_all(frozen: bool) {
    engine::FROZEN.store(frozen, Ordering::Relaxed);
    wake_all();
}

/// Whether all objects are frozen.
pub fn all_frozen() -> bool {
    engine::FROZEN.load(Ordering::Relaxed)
}

/// Has all policies only say what they would do, or do it.
pub fn dry_run_all(dry: bool) {
    engine::DRY_RUN.store(dry, Ordering::Relaxed);
    wake_all();
}

/// Whether all policies only say what they would do.
pub fn all_dry_run() -> bool {
    engine::DRY_RUN.load(Ordering::Relaxed)
}

fn wake_all() {
    known().into_iter().for_each(engine::wake);
}

/// The values of an adaptive object's attributes, made now if nobody ever set one.
fn values(id: Id) -> Result<Arc<InstanceValues>, ControlError> {
    adaptive(id)?;
    if let Some(values) = attribute::of(id) {
        return Ok(values);
    }
    Ok(attribute::attach(id, Arc::new(InstanceValues::of_class(&settings::ALL))))
}

/// The attributes of an object: those of its policy, if it adapts, or those that the program attached to it, and those that
/// were [registered](register_attribute) for its interface.
///
/// # Errors
/// [`ControlError`]: it is gone, or has none.
pub fn attributes(id: Id) -> Result<Vec<AttributeInfo>, ControlError> {
    let class = class(id)?;
    let by_swap = live::list(id, &class);
    let mut kept = match attribute::of(id) {
        Some(values) => values.list(),
        None if family::of(id).is_some() => settings::ALL.list(),
        None if by_swap.is_empty() => return Err(ControlError::NotAdaptive(id, class.class)),
        None => Vec::new(),
    };
    kept.extend(by_swap);
    Ok(kept)
}

/// An object that is to be swapped, and for what.
pub type PlannedSwap<I> = (Handle<I>, Replacement<I>);

/// Makes an attribute known that objects of an interface have, whose value is which implementation an object has: `read` reads it
/// from the object, nothing if that one does not have it; to set it is to swap what `make` says, within a second, for what it
/// made. Again is nothing.
pub fn register_attribute<I: ?Sized + Interface, T: Value>(
    attribute: &'static Attribute<T>,
    read: fn(Handle<I>) -> Option<T>,
    make: fn(Handle<I>, T) -> Option<PlannedSwap<I>>,
) {
    live::register(attribute, read, make);
}

/// Sets an attribute of an object, by its name and as text. One that was [registered](register_attribute) is set by a swap.
///
/// # Errors
/// [`ControlError`]: the object is gone or has no attributes; the name, the type or the value is wrong, and then the error
/// says what would be right.
pub fn set_attribute(id: Id, name: &str, text: &str) -> Result<(), ControlError> {
    let class = class(id)?;
    if let Some(live) = live::named(id, &class, name) {
        if squall_rcu::in_operation() {
            return Err(ControlError::InOperation(id));
        }
        let swapped = live.set(id, &class, text, BY_HAND)?;
        if let Some(report) = swapped.ok_or(ControlError::NoObject(id))?? {
            engine::replaced(id, &class, report.to, &report);
        }
        return Ok(());
    }
    let values = match attribute::of(id) {
        Some(values) => values,
        None => values(id)?,
    };
    values.set_text(name, text)?;
    engine::wake(id);
    Ok(())
}

type Replace = Arc<dyn Fn(Id) -> Option<Result<SwapReport, SwapError>> + Send + Sync>;

/// An implementation that was registered by hand.
struct Implementation {
    interface: TypeId,
    name: &'static str,
    replace: Replace,
}

static IMPLEMENTATIONS: Mutex<Vec<Implementation>> = Mutex::new(Vec::new());

fn implementations_list() -> MutexGuard<'static, Vec<Implementation>> {
    // Nothing panics under this lock but a failed allocation, which leaves the list whole.
    IMPLEMENTATIONS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Makes an implementation of an interface known, so that a person can have an object swapped for it. `make` gets the object
/// whose place it is to take. A name that is known already for this interface is replaced.
pub fn register<I: ?Sized + Interface>(
    name: &'static str,
    make: impl Fn(Handle<I>) -> Replacement<I> + Send + Sync + 'static,
) {
    if forked() {
        return;
    }
    let replace: Replace = Arc::new(move |id| {
        let co = Handle::<I>::find(id)?;
        Some(Swap::new(co).timeout(BY_HAND).run(make(co)))
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
    // Outside the lock: what it captured is the program's (I1).
    drop(before);
}

/// The implementations that an object can be swapped for: those that were [registered](register) for its interface, and the
/// forms of families of it.
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

/// Swaps an object for an implementation of this name. Its policy may swap it back when its cool-down is over, unless it is
/// frozen.
///
/// # Errors
/// [`ControlError`]; the object serves on as it was.
pub fn swap(id: Id, implementation: &str) -> Result<SwapReport, ControlError> {
    if squall_rcu::in_operation() {
        return Err(ControlError::InOperation(id));
    }
    let class = class(id)?;
    let forms = family::forms_for(class.interface_id);
    if let Some((family, form)) =
        forms.into_iter().find(|(family, form)| family.forms()[*form].name() == implementation)
    {
        return Ok(by_hand(id, family, form, BY_HAND).ok_or(ControlError::NoObject(id))??);
    }
    let replace = implementations_list()
        .iter()
        .find(|there| there.interface == class.interface_id && there.name == implementation)
        .map(|there| (there.name, Arc::clone(&there.replace)));
    match replace {
        Some((name, replace)) => {
            let report = replace(id).ok_or(ControlError::NoObject(id))??;
            engine::replaced(id, &class, name, &report);
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

/// Counts the calls of an object for so long, at most a second. The calling thread sleeps meanwhile. See
/// [`count_calls`].
///
/// # Errors
/// [`ControlError`].
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
