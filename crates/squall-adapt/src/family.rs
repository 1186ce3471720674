//! Families: the implementations of one interface among which an object may change, and what each costs.
//!
//! Problem: the engine knows when an object may be swapped and how often, but not what its load costs in another form.
//! Idea: the author of an adaptive object says four things: which forms there are, how one is made, what its sensors read,
//! and what a load that was seen would cost in each form. The engine does the rest, for all families alike.
//!
//! Source: KTK §2 (policies apart from what they govern), K42 §8.5 (CO-71: descriptions of implementations that a runtime can
//! reason about).

use std::any::{TypeId, type_name};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle, Id, Interface, class_of};
use squall_machine::{Vp, VpSet};

use crate::calls::Calls;

/// A form that objects of a family may have.
#[derive(Clone, Copy)]
pub struct Form {
    name: &'static str,
    class: fn() -> TypeId,
    class_name: fn() -> &'static str,
}

impl Form {
    /// A form of this name, for people: `central`. `T` is the class of objects that have it: the type of the value, or of the
    /// root.
    pub const fn of<T: 'static>(name: &'static str) -> Form {
        Form { name, class: TypeId::of::<T>, class_name: type_name::<T> }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is that of the class of this name, as a report of a swap has it.
    pub(crate) fn is_of(&self, class_name: &str) -> bool {
        (self.class_name)() == class_name
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The form that an object has or might have: which, and where it is at home if that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The index among the forms of its family. The first is the one in which objects begin, and to which they go back.
    pub form: usize,
    /// The VP to which it is biased, for a form that is.
    pub place: Option<Vp>,
}

/// What an object's sensors read. All but `place` only ever grow, and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What was done by those for whom it is at home.
    pub local: u64,
    /// What took the contended or the foreign path.
    pub foreign: u64,
    /// Global operations: those that visit every representative.
    pub global: u64,
    /// The VP to which it is biased.
    pub place: Option<Vp>,
    /// Representatives.
    pub reps: usize,
    /// Bytes of all its parts, but what it has in every form: what growing costs, and going back gives back.
    pub bytes: usize,
    /// Something else that its family's judge asks for, as it is now.
    pub detail: u64,
}

impl Reading {
    /// What happened between an earlier reading and this one.
    pub fn since(self, earlier: Reading) -> Reading {
        // Of sums that also shrink, how far they moved.
        let moved = |now: u64, before: u64| now.wrapping_sub(before).cast_signed().unsigned_abs();
        Reading {
            local: moved(self.local, earlier.local),
            foreign: moved(self.foreign, earlier.foreign),
            global: moved(self.global, earlier.global),
            ..self
        }
    }

    /// Whether nothing was seen to happen. What adds and subtracts as much is not seen.
    pub fn is_quiet(self) -> bool {
        (self.local, self.foreign, self.global) == (0, 0, 0)
    }
}

/// A load that was seen, for a [judge](Family::estimate_costs).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load<'a> {
    /// The form that served it.
    pub shape: Shape,
    /// What the sensors read in a span of some milliseconds before the calls were counted.
    pub before: Reading,
    /// That span.
    pub span: Duration,
    /// The VPs that called in that span.
    pub callers: VpSet,
    /// The calls, counted for a moment after it. Whoever did not run just then is missing.
    pub calls: &'a Calls,
    /// What a transfer of a cache line between two VPs costs, by [`TRANSFER`](crate::settings::TRANSFER).
    pub transfer_ns: f64,
    /// What the caches of a node keep of it, by [`CACHE`](crate::settings::CACHE).
    pub cache_bytes: u64,
}

/// What a load would cost in a form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The form.
    pub shape: Shape,
    /// What its calls would take of their callers' time, in nanoseconds, in each second.
    pub ns_per_s: f64,
    /// Bytes that it would have, but what it has in every form.
    pub bytes: usize,
}

/// Implementations of one interface among which an object may change by itself. A value of this type describes them; there
/// is one for the process, and it is made known by [`register`].
pub trait Family: Send + Sync + 'static {
    /// The interface.
    type Interface: ?Sized + Interface;

    /// A name, for people: `counter`.
    fn name(&self) -> &'static str;

    /// The forms. Classes of different families, and of forms of one family, differ.
    fn forms(&self) -> &'static [Form];

    /// Makes an object of this shape, to take the place of `co`. It must have a format of state in common with the others.
    fn make(&self, shape: Shape, co: Handle<Self::Interface>) -> Replacement<Self::Interface>;

    /// Reads the sensors.
    ///
    /// # Errors
    /// [`CallError`]: the object is gone.
    fn read(&self, co: Handle<Self::Interface>) -> Result<Reading, CallError>;

    /// Has the object [post](crate::engine::post) after about so many steps of its sensor; zero: never.
    ///
    /// # Errors
    /// [`CallError`]: the object is gone.
    fn arm(&self, co: Handle<Self::Interface>, after: u32) -> Result<(), CallError>;

    /// What a load would cost in each shape that is worth a thought, the one that served it among them.
    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost>;

    /// What is at stake where one VP alone calls an object that is not in its first form, which would be better for one alone: callers' time in
    /// nanoseconds, of the swap there and of the one back, if it turns out that it was not alone. Whether it stays alone nobody knows, so it is
    /// swapped when it has lost as much by waiting, and then loses twice of what it had to at most (Karlin, Manasse, Rudolph and Sleator 1988,
    /// ski rental). Nothing is, unless the family says otherwise: then what [costs](Family::estimate_costs) less is followed at once.
    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64 {
        let _ = (shape, reading);
        0.0
    }

    /// Whether an object of this shape, which is not its first form, takes that one when it is calm for a while. That is not judged by costs:
    /// there is nothing to count, or nobody who shares it. It does unless the family says otherwise, as where the first form is for less
    /// than this object has.
    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        let _ = (shape, calm, reading);
        true
    }
}

/// What happens to an object that may go back to its first form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calm {
    /// Nothing.
    Quiet,
    /// One VP alone calls it.
    Alone,
}

/// Why an object's sensors could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is gone.
    Gone,
    /// The call was refused, or panicked.
    Refused,
}

/// A family whose interface is not known. What of it panics counts as having said nothing, but for `swap`.
pub(crate) trait AnyFamily: Send + Sync {
    fn name(&self) -> &'static str;
    fn forms(&self) -> &'static [Form];
    fn interface_id(&self) -> TypeId;
    fn read(&self, id: Id) -> Result<Reading, Unread>;
    fn arm(&self, id: Id, after: u32);
    fn judge(&self, load: &Load<'_>) -> Vec<Cost>;
    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64;
    fn may_fold(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool;
    fn swap(&self, id: Id, shape: Shape, within: Duration) -> Option<Result<SwapReport, SwapError>>;
}

/// The form of the class that a report names, if it is one of this family; else that class.
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
        let co = Handle::find(id).ok_or(Unread::Gone)?;
        let _reading = ReadingNow(READING.replace(true));
        let read = catch_unwind(AssertUnwindSafe(|| Family::read(self, co)));
        // A function of the program's that arbitrates its calls may refuse this one.
        read.ok().and_then(Result::ok).ok_or_else(|| match class_of(id) {
            Some(_) => Unread::Refused,
            None => Unread::Gone,
        })
    }

    fn arm(&self, id: Id, after: u32) {
        if let Some(co) = Handle::find(id) {
            let _reading = ReadingNow(READING.replace(true));
            let _ = catch_unwind(AssertUnwindSafe(|| Family::arm(self, co, after)));
        }
    }

    fn judge(&self, load: &Load<'_>) -> Vec<Cost> {
        // Without a judgement the object stays as it is.
        catch_unwind(AssertUnwindSafe(|| Family::estimate_costs(self, load))).unwrap_or_default()
    }

    fn at_stake_ns(&self, shape: Shape, reading: &Reading) -> f64 {
        // Of whom nothing is known nothing is ventured.
        catch_unwind(AssertUnwindSafe(|| Family::at_stake_ns(self, shape, reading))).unwrap_or(f64::INFINITY)
    }

    fn may_fold(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        catch_unwind(AssertUnwindSafe(|| Family::may_shrink(self, shape, calm, reading))).unwrap_or(false)
    }

    fn swap(&self, id: Id, shape: Shape, within: Duration) -> Option<Result<SwapReport, SwapError>> {
        let co = Handle::find(id)?;
        Some(Swap::new(co).timeout(within).run(Family::make(self, shape, co)))
    }
}

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// While this exists its thread reads sensors.
struct ReadingNow(bool);

impl Drop for ReadingNow {
    fn drop(&mut self) {
        READING.set(self.0);
    }
}

/// Calls `f` as somebody who only looks.
pub(crate) fn reading<R>(f: impl FnOnce() -> R) -> R {
    let _reading = ReadingNow(READING.replace(true));
    f()
}

/// Whether the calling thread is [reading](Family::read) an object's sensors. Its miss is not that of a caller: a root answers
/// it with any representative that there is, [once](squall_core::Found::once), so that none is made for who only looks.
pub fn is_reading() -> bool {
    READING.get()
}

static FAMILIES: Mutex<Vec<&'static dyn AnyFamily>> = Mutex::new(Vec::new());

fn families() -> MutexGuard<'static, Vec<&'static dyn AnyFamily>> {
    // Nothing panics under this lock but a failed allocation, which leaves the list whole.
    FAMILIES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Makes a family known; once for each, before the first of its objects posts. Again is nothing.
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
        // No code of the family's runs under the lock.
        if families.len() == known.len() {
            families.push(family);
            return;
        }
    }
}

/// The family of the object of this id, the form that it has now, and the name of that.
pub(crate) fn of(id: Id) -> Option<(&'static dyn AnyFamily, usize)> {
    let class = class_of(id)?;
    let known = families().clone();
    known.iter().find_map(|family| {
        let form = family.forms().iter().position(|form| (form.class)() == class.type_id)?;
        (family.interface_id() == class.interface_id).then_some((*family, form))
    })
}

/// The names of the forms of the families of this interface.
pub(crate) fn forms_for(interface: TypeId) -> Vec<(&'static dyn AnyFamily, usize)> {
    let known = families().clone();
    let of = known.iter().filter(|family| family.interface_id() == interface);
    of.flat_map(|family| (0..family.forms().len()).map(|form| (*family, form))).collect()
}
