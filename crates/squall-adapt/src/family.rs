//! Families: implementations of one interface that an object can change among, and the cost of each.
//!
//! Problem: the engine knows when and how often an object may be swapped, but not the cost of its load in
//! another form. Idea: the author of an adaptive object lists the forms, and writes how to make each and how
//! to read its sensors. The author also writes an estimate of the cost of an observed load in each form. The
//! engine does the rest for all families.
//!
//! Source: KTK §2 (policies separate from the objects that they govern), K42 §8.5 (descriptions of
//! implementations for a runtime).

use std::any::{TypeId, type_name};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle, Id, Interface, Root, class_of};
use squall_machine::{Vp, VpSet};

use crate::calls::Calls;
use crate::costs::MachineCosts;

/// A form that the objects of a family can have.
///
/// ```
/// use squall::adapt::family::Form;
///
/// struct OneWord;
/// static FORMS: [Form; 1] = [Form::of::<OneWord>("shared")];
/// assert_eq!(FORMS[0].name(), "shared");
/// ```
#[derive(Clone, Copy)]
pub struct Form {
    name: &'static str,
    about: &'static str,
    class: fn() -> TypeId,
    class_name: fn() -> &'static str,
}

impl Form {
    /// Declares a form with this name for people, such as `shared`. `T` is the class of its objects: the type
    /// of the value or of the root.
    pub const fn of<T: 'static>(name: &'static str) -> Form {
        Form { name, about: "", class: TypeId::of::<T>, class_name: type_name::<T> }
    }

    /// Not public: declares a form of objects with the root `R`, which may have another name than its type
    /// (`Root::class_name`).
    #[doc(hidden)]
    pub const fn of_root<R: Root>(name: &'static str) -> Form {
        Form { class_name: R::class_name, ..Form::of::<R>(name) }
    }

    /// Adds a description for the sentences of decisions, such as `one representative per processor`.
    pub const fn described(self, about: &'static str) -> Form {
        Form { about, ..self }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the description, or `the form` and the name.
    pub fn about(&self) -> Cow<'static, str> {
        if self.about.is_empty() { format!("the form {}", self.name).into() } else { self.about.into() }
    }

    /// Returns `true` if this is the form of the class with this name, as in a swap report.
    pub(crate) fn is_of(&self, class_name: &str) -> bool {
        (self.class_name)() == class_name
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A form of an object, together with its bias.
///
/// ```
/// use squall::adapt::family::Shape;
///
/// let first = Shape { form: 0, place: None };
/// assert_ne!(first, Shape { form: 1, ..first });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Index among the forms of the family. Objects begin in the first form and return to it.
    pub form: usize,
    /// VP that the object is biased to, for a biased form.
    pub place: Option<Vp>,
}

/// Reading of an object's sensors. The counts only grow, and may wrap.
///
/// ```
/// use squall::adapt::family::Reading;
///
/// let earlier = Reading { local: 100, ..Reading::default() };
/// let later = Reading { local: 160, foreign: 2, ..Reading::default() };
/// let between = later.since(earlier);
/// assert_eq!((between.local, between.foreign, between.is_quiet()), (60, 2, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Calls on the local path: made on a VP that the representative serves or is biased to.
    pub local: u64,
    /// Calls on the contended path, or from a VP that the object is not biased to.
    pub foreign: u64,
    /// Global operations, which visit every representative.
    pub global: u64,
    /// VP that the object is biased to.
    pub place: Option<Vp>,
    /// Number of representatives.
    pub reps: usize,
    /// Bytes of the form beyond those of every form: the cost of growing, recovered by shrinking.
    pub bytes: usize,
    /// Additional value for the family's cost estimate.
    pub detail: u64,
}

impl Reading {
    /// Returns the events between an earlier reading and this one. For an example see [`Reading`].
    pub fn since(self, earlier: Reading) -> Reading {
        // Some sensors are sums that can shrink. For those the distance counts.
        let moved = |now: u64, before: u64| now.wrapping_sub(before).cast_signed().unsigned_abs();
        Reading {
            local: moved(self.local, earlier.local),
            foreign: moved(self.foreign, earlier.foreign),
            global: moved(self.global, earlier.global),
            ..self
        }
    }

    /// Returns `true` if no event was seen. Additions and subtractions that cancel out are not
    /// seen.
    pub fn is_quiet(self) -> bool {
        (self.local, self.foreign, self.global) == (0, 0, 0)
    }
}

impl std::iter::Sum for Reading {
    /// Adds the counts of representatives. The place is that of the first reading that has one.
    fn sum<I: Iterator<Item = Reading>>(readings: I) -> Reading {
        readings.fold(Reading::default(), |sum, reading| Reading {
            local: sum.local.wrapping_add(reading.local),
            foreign: sum.foreign.wrapping_add(reading.foreign),
            global: sum.global.wrapping_add(reading.global),
            place: sum.place.or(reading.place),
            reps: sum.reps + reading.reps,
            bytes: sum.bytes + reading.bytes,
            detail: sum.detail.wrapping_add(reading.detail),
        })
    }
}

/// An observed load, input of [`Family::estimate_costs`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load<'a> {
    /// Form that served the load.
    pub shape: Shape,
    /// Sensor events in a span of some milliseconds before the calls were counted.
    pub before: Reading,
    /// Duration of that span.
    pub span: Duration,
    /// VPs that called in that span.
    pub callers: VpSet,
    /// Calls, counted for a short time after that span. Threads that did not run in that time are missing.
    pub calls: &'a Calls,
    /// Costs of instructions and of cache line transfers on this machine, in the mode of this process.
    pub costs: MachineCosts,
    /// Bytes of an object that the caches of a node can hold, from [`CACHE`](crate::settings::CACHE).
    pub cache_bytes: u64,
}

/// Cost of a load in a form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The form.
    pub shape: Shape,
    /// Time that callers would spend on their calls, in nanoseconds per second.
    pub ns_per_s: f64,
    /// Bytes that the form would have, beyond those of every form.
    pub bytes: usize,
}

/// Describes the implementations of one interface that an object can change among.
///
/// A process has one value of such a type, registered by [`register`].
///
/// # Example
/// A counter with two forms:
/// ```
/// use squall::adapt::family::{Cost, Family, Form, Load, Reading, Shape};
/// use squall::swap::{Replacement, State, StateFormats};
/// use squall::{CallError, Handle};
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self); }
/// # struct OneWord;
/// # struct WordPerVp;
/// # impl Hits for OneWord { fn add(&self) {} }
/// # impl Hits for WordPerVp { fn add(&self) {} }
/// # impl State for OneWord {
/// #     fn formats(formats: &mut StateFormats<'_, OneWord>) { formats.export(|_| Ok(())).import(|_, ()| Ok(())); }
/// # }
/// # impl State for WordPerVp {
/// #     fn formats(formats: &mut StateFormats<'_, WordPerVp>) { formats.export(|_| Ok(())).import(|_, ()| Ok(())); }
/// # }
/// static FORMS: [Form; 2] = [Form::of::<OneWord>("shared"), Form::of::<WordPerVp>("distributed")];
///
/// struct Counters;
/// impl Family for Counters {
///     type Interface = dyn Hits;
///     fn name(&self) -> &'static str {
///         "counter"
///     }
///     fn forms(&self) -> &'static [Form] {
///         &FORMS
///     }
///     fn make(&self, shape: Shape, _: Handle<dyn Hits>) -> Replacement<dyn Hits> {
///         if shape.form == 0 { Replacement::swappable(OneWord) } else { Replacement::swappable(WordPerVp) }
///     }
///     fn read(&self, _: Handle<dyn Hits>) -> Result<Reading, CallError> {
///         Ok(Reading::default()) // the counts of its sensors
///     }
///     fn arm(&self, _: Handle<dyn Hits>, _after: u32) -> Result<(), CallError> {
///         Ok(()) // sets the threshold of its sensor
///     }
///     fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
///         let adds = load.calls.rate_of("add");
///         let sharers = load.callers.len().saturating_sub(1) as f64;
///         let cost = |form, ns, bytes| Cost { shape: Shape { form, place: None }, ns_per_s: adds * ns, bytes };
///         vec![cost(0, 5.0 + sharers.min(1.0) * load.costs.transfer_ns, 0), cost(1, 5.0, 64 * load.callers.len())]
///     }
/// }
///
/// static COUNTERS: Counters = Counters;
/// squall::adapt::family::register(&COUNTERS);
/// ```
pub trait Family: Send + Sync + 'static {
    /// The interface.
    type Interface: ?Sized + Interface;

    /// Returns the name for people, such as `counter`.
    fn name(&self) -> &'static str;

    /// Returns the forms. Each class belongs to at most one form, of one family.
    fn forms(&self) -> &'static [Form];

    /// Makes a replacement of this shape for the object `handle`. All forms of a family must share a state
    /// format.
    fn make(&self, shape: Shape, handle: Handle<Self::Interface>) -> Replacement<Self::Interface>;

    /// Reads the sensors.
    ///
    /// # Errors
    /// [`CallError`]: the object was destroyed.
    fn read(&self, handle: Handle<Self::Interface>) -> Result<Reading, CallError>;

    /// Sets the sensor to [post](crate::engine::post) after about `after` steps; zero means never.
    ///
    /// # Errors
    /// [`CallError`]: the object was destroyed.
    fn arm(&self, handle: Handle<Self::Interface>, after: u32) -> Result<(), CallError>;

    /// Returns `true` if the forms post by themselves while their load lasts. The default is `true`.
    ///
    /// A family without sensors posts only at misses. The engine then treats the VPs that call as events.
    /// After a post it looks at the object again, with pauses that grow from 0.2 s to 6.4 s. It looks at a
    /// grown object without a post.
    fn has_sensors(&self) -> bool {
        true
    }

    /// Estimates the cost of a load in each shape worth considering, including the shape that served it.
    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost>;

    /// Returns the cost of a swap that turns out wrong, in nanoseconds of callers' time. The default is zero.
    ///
    /// The engine asks this for an object that one VP calls alone, in a form other than the first, if the
    /// first would be cheaper. A second VP may call soon, and then the object must be swapped back. The
    /// returned cost covers both swaps. The engine waits until the present form has lost as much, and swaps
    /// then. So it loses at most twice the unavoidable cost. With zero the engine follows
    /// [`estimate_costs`](Family::estimate_costs) at once.
    ///
    /// # Source
    /// Karlin, Manasse, Rudolph and Sleator 1988 (ski rental).
    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64 {
        let _ = (shape, reading);
        0.0
    }

    /// Returns `true` if an object of this shape returns to the first form after it was calm for a while. The
    /// default is `true`. Not called for the first form.
    ///
    /// The engine does not use cost estimates for this step, because a calm object has no load to estimate. A
    /// family returns `false`, for example, if the object holds more than its first form can.
    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        let _ = (shape, calm, reading);
        true
    }
}

/// State of an object that may return to its first form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calm {
    /// The object had no events.
    Quiet,
    /// One VP alone calls the object.
    Alone,
}

/// Reason why an object's sensors could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The object was destroyed.
    Gone,
    /// The call was refused, or panicked.
    Refused,
}

/// A family with its interface type erased. If one of its methods panics, the result is a cautious default;
/// only `swap` lets the panic through.
pub(crate) trait AnyFamily: Send + Sync {
    fn name(&self) -> &'static str;
    fn forms(&self) -> &'static [Form];
    fn interface_id(&self) -> TypeId;
    fn read(&self, id: Id) -> Result<Reading, Unread>;
    fn arm(&self, id: Id, after: u32);
    fn has_sensors(&self) -> bool;
    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost>;
    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64;
    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool;
    fn swap(&self, id: Id, shape: Shape, within: Duration) -> Option<Result<SwapReport, SwapError>>;
}

/// Returns the name of the form with this class name, or the class name if the family has no such form.
pub(crate) fn form_of_class(family: &'static dyn AnyFamily, class_name: &'static str) -> &'static str {
    family.forms().iter().find(|form| form.is_of(class_name)).map_or(class_name, |form| form.name)
}

impl<F: Family> AnyFamily for F {
    fn name(&self) -> &'static str {
        Family::name(self)
    }

    fn forms(&self) -> &'static [Form] {
        Family::forms(self)
    }

    fn interface_id(&self) -> TypeId {
        TypeId::of::<F::Interface>()
    }

    fn read(&self, id: Id) -> Result<Reading, Unread> {
        let handle = Handle::find(id).ok_or(Unread::Gone)?;
        let _reading = ReadingNow(READING.replace(true));
        let read = catch_unwind(AssertUnwindSafe(|| Family::read(self, handle)));
        // An arbiter of the program may refuse this call.
        read.ok().and_then(Result::ok).ok_or_else(|| match class_of(id) {
            Some(_) => Unread::Refused,
            None => Unread::Gone,
        })
    }

    fn arm(&self, id: Id, after: u32) {
        if let Some(handle) = Handle::find(id) {
            let _reading = ReadingNow(READING.replace(true));
            let _ = catch_unwind(AssertUnwindSafe(|| Family::arm(self, handle, after)));
        }
    }

    fn has_sensors(&self) -> bool {
        catch_unwind(AssertUnwindSafe(|| Family::has_sensors(self))).unwrap_or(true)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        // Without an estimate the object stays as it is.
        catch_unwind(AssertUnwindSafe(|| Family::estimate_costs(self, load))).unwrap_or_default()
    }

    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64 {
        // With an unknown cost the engine does not take the risk.
        catch_unwind(AssertUnwindSafe(|| Family::at_stake_ns(self, shape, reading))).unwrap_or(f64::INFINITY)
    }

    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        catch_unwind(AssertUnwindSafe(|| Family::may_shrink(self, shape, calm, reading))).unwrap_or(false)
    }

    fn swap(&self, id: Id, shape: Shape, within: Duration) -> Option<Result<SwapReport, SwapError>> {
        let handle = Handle::find(id)?;
        Some(Swap::new(handle).timeout(within).run(Family::make(self, shape, handle)))
    }
}

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Guard: while it lives, its thread reads sensors.
struct ReadingNow(bool);

impl Drop for ReadingNow {
    fn drop(&mut self) {
        READING.set(self.0);
    }
}

/// Calls `f` with the thread marked as a reader of sensors.
pub(crate) fn reading<R>(f: impl FnOnce() -> R) -> R {
    let _reading = ReadingNow(READING.replace(true));
    f()
}

/// Returns `true` while the calling thread [reads](Family::read) an object's sensors.
///
/// A root then answers a miss with any existing representative, [once](squall_core::RepRef::once). So a
/// reader of sensors does not cause a new representative.
///
/// ```
/// assert!(!squall::adapt::family::is_reading());
/// ```
pub fn is_reading() -> bool {
    READING.get()
}

static FAMILIES: Mutex<Vec<&'static dyn AnyFamily>> = Mutex::new(Vec::new());

fn families() -> MutexGuard<'static, Vec<&'static dyn AnyFamily>> {
    // Only a failed allocation panics under this lock, and it leaves the list intact.
    FAMILIES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Registers a family, before the first of its objects posts. A second registration has no effect. For an
/// example see [`Family`].
pub fn register(family: &'static impl Family) {
    if squall_sys::fork::forked() {
        return;
    }
    let forms = family.forms();
    let is_it = |there: &&'static dyn AnyFamily| {
        there.forms().iter().any(|form| forms.iter().any(|other| (form.class)() == (other.class)()))
    };
    loop {
        let known = families().clone();
        if known.iter().any(is_it) {
            return;
        }
        let mut families = families();
        // The family's code must not run under the lock.
        if families.len() == known.len() {
            families.push(family);
            return;
        }
    }
}

/// Returns `true` if this very family is registered, and not another one with its forms.
pub(crate) fn is_registered(family: &'static impl Family) -> bool {
    let this = std::ptr::from_ref(family).cast::<()>();
    families().iter().any(|known| std::ptr::from_ref::<dyn AnyFamily>(*known).cast::<()>() == this)
}

/// Returns the family of an object, and the index of its present form.
pub(crate) fn of(id: Id) -> Option<(&'static dyn AnyFamily, usize)> {
    of_among(&registered(), id)
}

/// Returns the families registered so far, for [`of_among`].
pub(crate) fn registered() -> Vec<&'static dyn AnyFamily> {
    families().clone()
}

/// Like [`of`], for one object of many.
pub(crate) fn of_among(known: &[&'static dyn AnyFamily], id: Id) -> Option<(&'static dyn AnyFamily, usize)> {
    let class = class_of(id)?;
    known.iter().find_map(|family| {
        let form = family.forms().iter().position(|form| (form.class)() == class.type_id)?;
        (family.interface_id() == class.interface_id).then_some((*family, form))
    })
}

/// Returns all forms of the families of this interface.
pub(crate) fn forms_for(interface: TypeId) -> Vec<(&'static dyn AnyFamily, usize)> {
    let known = families().clone();
    let of = known.iter().filter(|family| family.interface_id() == interface);
    of.flat_map(|family| (0..family.forms().len()).map(|form| (*family, form))).collect()
}
