//! Adaptive objects of the program's own types, which need no sensors.
//!
//! Problem: a family needs sensors in its forms, methods in its interface to read them, and an estimate.
//! Idea: the miss of a second VP is a sensor that costs a hit nothing. The shared form is the author's value
//! as the only representative of a root of this module, which sees the misses. The engine then counts calls,
//! and estimates costs from the counts alone. It removes the object's table entries at each look, so VPs that
//! still call miss once more, and post again.
//!
//! - I1. A miss posts if the previous miss came from another VP. So a VP that calls alone posts at most once
//!   after the entries were removed, and then not again.
//! - I2. The engine limits the looks, not the misses (`Family::has_sensors`).
//!
//! Cost: an object in its shared form has a root and a representative, about 300 bytes more than with
//! [`swappable`](squall_core::swappable). A call costs as much as any other.
//!
//! Source: KT-17 (a miss is a fact that costs nothing to note); K42 §8.5.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};

use squall_core::swap::{Replacement, RootFormats, State};
use squall_core::{
    CallError, Cleanup, CreateError, Handle, Id, Interface, InterfaceOf, Miss, MissAnswer, Owned, RepContext,
    RepMemory, Root, info_of, methods_of, tables,
};
use squall_machine::{Cluster, ClusterSize, Vp};

use crate::engine;
use crate::estimate::{CallCosts, Estimate};
use crate::family::{self, Cost, Family, Form, Load, Reading, Shape, is_reading};

/// Name of the form in which an object starts.
pub const SHARED: &str = "shared";
/// Name of the form with a representative for each calling cluster.
pub const DISTRIBUTED: &str = "distributed";

/// Makes adaptive objects with a shared form `T` and a distributed form with the root `R`.
///
/// Both have one interface and a common state format. An object starts in the shared form. When several VPs
/// call it often enough, the engine replaces it by the distributed form, with its state. When one VP is left
/// or the calls end, the object returns to the shared form. Neither type needs a sensor.
///
/// A program has one value for each pair of types, usually a `static`. [`adaptive`] needs no `static` and has
/// the default settings.
///
/// # Cost
/// A call costs as much as in the present form without adaptation. While several VPs call an object that
/// stays shared, the engine's thread looks at it again. The pauses grow from 0.2 s to 6.4 s. A look counts
/// the calls for 0.3 ms, which makes each some tens of nanoseconds slower.
///
/// ```
/// use squall::swap::{RootFormats, State, StateFormats};
/// use squall::{Adaptive, RepContext, Root};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self, n: u64); fn total(&self) -> u64; }
/// #[derive(Default)]
/// struct OneWord(AtomicU64);
/// # impl Hits for OneWord {
/// #     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
/// #     fn total(&self) -> u64 { self.0.load(Relaxed) }
/// # }
/// impl State for OneWord {
///     fn formats(formats: &mut StateFormats<'_, OneWord>) {
///         formats.export_part(|this| Ok(this.total())).import_part(|this, n: u64| Ok(this.add(n)));
///     }
/// }
///
/// struct PerProcessor;
/// struct Local { count: AtomicU64, context: RepContext<PerProcessor> }
/// # impl Hits for Local {
/// #     fn add(&self, n: u64) { self.count.fetch_add(n, Relaxed); }
/// #     fn total(&self) -> u64 { self.context.reps().map(|rep| rep.count.load(Relaxed)).sum() }
/// # }
/// impl Root for PerProcessor {
///     type Interface = dyn Hits;
///     type Rep = Local;
///     fn make_rep(&self, context: RepContext<PerProcessor>) -> Local {
///         Local { count: AtomicU64::new(0), context }
///     }
///     fn formats(formats: &mut RootFormats<'_, PerProcessor>) {
///         formats
///             .export_part(|_, rep| Ok(rep.count.load(Relaxed)))
///             .import_part(|_, rep, n: u64| Ok(rep.add(n)));
///     }
/// }
///
/// static HITS: Adaptive<OneWord, PerProcessor> =
///     Adaptive::new(OneWord::default, || PerProcessor).global(&["total"]);
///
/// let hits = HITS.create();
/// hits.add(2);
/// assert_eq!(hits.total(), 2);
/// ```
pub struct Adaptive<T, R: Root> {
    make_shared: MakeShared<T, R::Interface>,
    make_root: fn() -> R,
    estimate: Estimate,
    sensors: Option<Sensors<R::Interface>>,
    is_known: AtomicBool,
}

/// Function that makes the value of the shared form.
enum MakeShared<T, I: ?Sized + Interface> {
    Alone(fn() -> T),
    WithHandle(fn(Handle<I>) -> T),
}

impl<T, I: ?Sized + Interface> Clone for MakeShared<T, I> {
    fn clone(&self) -> MakeShared<T, I> {
        *self
    }
}
impl<T, I: ?Sized + Interface> Copy for MakeShared<T, I> {}

/// Functions that read and arm the sensors of the author's forms.
struct Sensors<I: ?Sized + Interface> {
    read: ReadSensors<I>,
    arm: ArmSensors<I>,
}

/// Reads the sensors of an object: see [`Adaptive::sensors`].
pub type ReadSensors<I> = fn(Handle<I>) -> Result<Reading, CallError>;
/// Arms the sensors of an object: see [`Adaptive::sensors`].
pub type ArmSensors<I> = fn(Handle<I>, u32) -> Result<(), CallError>;

impl<T, R> Adaptive<T, R>
where
    T: State,
    R: Root,
    R::Interface: InterfaceOf<T>,
{
    const FORMS: [Form; 2] = [Form::of_root::<Single<T, R>>(SHARED), Form::of_root::<R>(DISTRIBUTED)];

    /// Describes objects that these functions make, empty, in their two forms. The defaults: one
    /// representative per processor, no global methods, and [`CallCosts::DEFAULT`].
    ///
    /// Both types list a state format in common (`State::formats` and `Root::formats`). Without one, every
    /// swap fails, and the objects stay shared.
    pub const fn new(shared: fn() -> T, distributed: fn() -> R) -> Adaptive<T, R> {
        Self::of(MakeShared::Alone(shared), distributed)
    }

    /// Like [`new`](Adaptive::new), but passes the object's handle to the function for the shared form. For
    /// forms with [`sensors`](Adaptive::sensors), which post by it.
    pub const fn with_handle(
        shared: fn(Handle<R::Interface>) -> T,
        distributed: fn() -> R,
    ) -> Adaptive<T, R> {
        Self::of(MakeShared::WithHandle(shared), distributed)
    }

    const fn of(make_shared: MakeShared<T, R::Interface>, make_root: fn() -> R) -> Adaptive<T, R> {
        let estimate = Estimate {
            costs: CallCosts {
                shared_bytes: 256 + size_of::<T>(),
                root_bytes: 256 + size_of::<R>(),
                rep_bytes: 128 + size_of::<R::Rep>(),
                ..CallCosts::DEFAULT
            },
            ..Estimate::DEFAULT
        };
        Adaptive { make_shared, make_root, estimate, sensors: None, is_known: AtomicBool::new(false) }
    }

    /// Names the methods that visit every representative of the distributed form, such as a sum. Objects that
    /// spend their time in these methods stay shared.
    ///
    /// The first object of this family panics if the interface, and those it extends, have no such method.
    pub const fn global(mut self, methods: &'static [&'static str]) -> Adaptive<T, R> {
        self.estimate.global = methods;
        self
    }

    /// Names the methods that change nothing and read only the caller's representative. Without changes, many
    /// readers do not disturb each other, so objects that are only read stay shared.
    ///
    /// The first object of this family panics if the interface, and those it extends, have no such method.
    pub const fn reads(mut self, methods: &'static [&'static str]) -> Adaptive<T, R> {
        self.estimate.reads = methods;
        self
    }

    /// Sets the size of the clusters that have a representative each in the distributed form. The default is
    /// one processor.
    pub const fn cluster(mut self, size: ClusterSize) -> Adaptive<T, R> {
        self.estimate.size = size;
        self
    }

    /// Sets the costs of calls in nanoseconds, for methods that do more than change a word.
    pub const fn costs(mut self, shared_ns: f64, local_ns: f64, visit_ns: f64) -> Adaptive<T, R> {
        self.estimate.costs = CallCosts { shared_ns, local_ns, visit_ns, ..self.estimate.costs };
        self
    }

    /// Has the forms post by sensors of their own, such as a [`Sensor`](crate::sensor::Sensor), and not by
    /// misses. The engine then reacts after 1,024 events, and does not look at an object without events.
    ///
    /// The interface has two methods for these functions:
    ///
    /// ```text
    /// .sensors(|hits| hits.try_reading(), |hits, after| hits.try_arm(after))
    /// ```
    pub const fn sensors(
        mut self,
        read: ReadSensors<R::Interface>,
        arm: ArmSensors<R::Interface>,
    ) -> Adaptive<T, R> {
        self.sensors = Some(Sensors { read, arm });
        self
    }

    /// Creates an object in the shared form. The first call registers the family, and starts the engine's
    /// thread unless it is switched off.
    ///
    /// # Panics
    /// If [`try_create`](Adaptive::try_create) returns an error or panics, and if the function for the shared
    /// form panics.
    #[track_caller]
    pub fn create(&'static self) -> Owned<R::Interface> {
        self.try_create().unwrap_or_else(|error| panic!("cannot make a {}: {error}", Family::name(self)))
    }

    /// Like [`create`](Adaptive::create), but returns an error instead of panicking.
    ///
    /// # Errors
    /// [`CreateError`]: the object cannot be created.
    /// # Panics
    /// If another `Adaptive`, or another family, has one of the two types. If [`global`](Adaptive::global) or
    /// [`reads`](Adaptive::reads) names a method that the interface does not have.
    #[track_caller]
    pub fn try_create(&'static self) -> Result<Owned<R::Interface>, CreateError> {
        if !self.is_known.load(Ordering::Relaxed) {
            self.register();
        }
        engine::start();
        Single::of(self).try_create(ClusterSize::Machine)
    }

    #[cold]
    #[track_caller]
    fn register(&'static self) {
        self.check_methods("global", self.estimate.global);
        self.check_methods("reads", self.estimate.reads);
        family::register(self);
        assert!(
            family::is_registered(self) || squall_sys::fork::forked(),
            "the forms {} and {} of {} belong to another family; create their objects with that one",
            type_name::<T>(),
            type_name::<R>(),
            <R::Interface as Interface>::NAME,
        );
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Panics if the interface lacks one of the methods that `setting` names.
    #[track_caller]
    fn check_methods(&self, setting: &str, names: &[&str]) {
        let methods = methods_of::<R::Interface>();
        if let Some(unknown) = names.iter().find(|name| !methods.contains(name)) {
            panic!(
                "cannot make a {}: `.{setting}(..)` names `{unknown}`, which is no method of the interface; its \
                 methods are {}",
                Family::name(self),
                methods.join(", ")
            );
        }
    }
}

impl<T, R> Family for Adaptive<T, R>
where
    T: State,
    R: Root,
    R::Interface: InterfaceOf<T>,
{
    type Interface = R::Interface;

    fn name(&self) -> &'static str {
        <R::Interface as Interface>::NAME
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<R::Interface>) -> Replacement<R::Interface> {
        match shape.form {
            0 => Replacement::root(Single::of(self), ClusterSize::Machine),
            _ => Replacement::root((self.make_root)(), self.estimate.size),
        }
    }

    fn read(&self, handle: Handle<R::Interface>) -> Result<Reading, CallError> {
        // The engine asks the tables for the callers. An object that was destroyed is found elsewhere.
        let info = info_of(Handle::id(handle));
        let (reps, bytes) = info.map_or((0, 0), |info| (info.reps.len(), info.bytes));
        let counts = self.sensors.as_ref().map(|sensors| (sensors.read)(handle)).transpose()?;
        Ok(Reading { reps, bytes, ..counts.unwrap_or_default() })
    }

    fn arm(&self, handle: Handle<R::Interface>, after: u32) -> Result<(), CallError> {
        if let Some(sensors) = &self.sensors {
            return (sensors.arm)(handle, after);
        }
        // From here on each VP that calls misses once (I1).
        tables::forget(Handle::id(handle));
        Ok(())
    }

    fn has_sensors(&self) -> bool {
        self.sensors.is_some()
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        self.estimate.costs(load)
    }
}

impl<T, R: Root> fmt::Debug for Adaptive<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adaptive({}, {})", type_name::<T>(), type_name::<R>())
    }
}

/// Root of the shared form. Its only representative is the author's value.
struct Single<T, R: Root> {
    make: MakeShared<T, R::Interface>,
    /// Whether misses post. They do unless the forms have sensors.
    posts: bool,
    /// Object that this root serves. Set before its first miss.
    id: OnceLock<Id>,
    /// Index of the VP that missed last, plus one; zero before the first miss.
    last: AtomicU32,
    /// `true` if the state has moved to another object.
    has_moved: AtomicBool,
}

impl<T: 'static, R: Root> Single<T, R> {
    fn of(family: &Adaptive<T, R>) -> Single<T, R> {
        Single {
            make: family.make_shared,
            posts: family.sensors.is_none(),
            id: OnceLock::new(),
            last: AtomicU32::new(0),
            has_moved: AtomicBool::new(false),
        }
    }

    /// Notes a miss, and posts if the previous one came from another VP (I1). Returns `false` if the post was
    /// dropped, so that the VP must miss again.
    fn note_miss(&self, vp: Vp) -> bool {
        let this = vp.index() as u32 + 1;
        // Relaxed: each of two concurrent misses may post, and a second post has no effect.
        let last = self.last.swap(this, Ordering::Relaxed);
        let is_heard = last == 0 || last == this || self.id.get().is_none_or(|id| engine::post(*id));
        if !is_heard {
            self.last.store(last, Ordering::Relaxed);
        }
        is_heard
    }
}

impl<T, R> Root for Single<T, R>
where
    T: State,
    R: Root,
    R::Interface: InterfaceOf<T>,
{
    type Interface = R::Interface;
    type Rep = T;

    // The value exists before the first miss, also after a swap: a panic of its maker ends the swap.
    const EAGER: bool = true;
    const REP_MEMORY: RepMemory = RepMemory::Program;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn class_name() -> &'static str {
        type_name::<T>()
    }

    fn make_rep(&self, context: RepContext<Single<T, R>>) -> T {
        self.id.get_or_init(|| Handle::id(context.handle()));
        match self.make {
            MakeShared::Alone(make) => make(),
            MakeShared::WithHandle(make) => make(context.handle()),
        }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Single<T, R>>) -> MissAnswer<'a, Single<T, R>> {
        let rep = miss.rep(Cluster::new(0));
        if !self.posts || is_reading() || self.note_miss(miss.vp()) { rep.cached() } else { rep.once() }
    }

    fn formats(formats: &mut RootFormats<'_, Single<T, R>>) {
        formats.forward_to_rep();
    }

    fn moved(&self) {
        self.has_moved.store(true, Ordering::Relaxed);
    }

    fn cleanup(&self, _: Vp, rep: T) {
        if self.has_moved.load(Ordering::Relaxed) {
            rep.moved();
        }
    }
}

/// Creates an adaptive object with two forms: a value made by `shared`, and representatives of the root made
/// by `distributed`.
///
/// It is an [`Adaptive`] with the default settings: one representative per processor, and no global methods.
/// Later calls with the same two types use the functions of the first call.
///
/// # Panics
/// If the object cannot be created: see [`CreateError`]; and if another family has one of the two types.
/// # Cost
/// That of [`Adaptive::create`], and a lock.
///
/// ```
/// use squall::{RepContext, Root, adaptive};
/// # use squall::swap::{RootFormats, State, StateFormats};
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self, n: u64); fn total(&self) -> u64; }
/// # #[derive(Default)]
/// # struct OneWord(AtomicU64);
/// # impl Hits for OneWord {
/// #     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
/// #     fn total(&self) -> u64 { self.0.load(Relaxed) }
/// # }
/// # impl State for OneWord {
/// #     fn formats(formats: &mut StateFormats<'_, OneWord>) {
/// #         formats.export_part(|this| Ok(this.total())).import_part(|this, n: u64| Ok(this.add(n)));
/// #     }
/// # }
/// # struct PerProcessor;
/// # struct Local { count: AtomicU64, context: RepContext<PerProcessor> }
/// # impl Hits for Local {
/// #     fn add(&self, n: u64) { self.count.fetch_add(n, Relaxed); }
/// #     fn total(&self) -> u64 { self.context.reps().map(|rep| rep.count.load(Relaxed)).sum() }
/// # }
/// # impl Root for PerProcessor {
/// #     type Interface = dyn Hits;
/// #     type Rep = Local;
/// #     fn make_rep(&self, context: RepContext<PerProcessor>) -> Local {
/// #         Local { count: AtomicU64::new(0), context }
/// #     }
/// #     fn formats(formats: &mut RootFormats<'_, PerProcessor>) {
/// #         formats
/// #             .export_part(|_, rep| Ok(rep.count.load(Relaxed)))
/// #             .import_part(|_, rep, n: u64| Ok(rep.add(n)));
/// #     }
/// # }
/// // `OneWord` and the root `PerProcessor` implement one interface: see `Adaptive`.
/// let hits = adaptive(OneWord::default, || PerProcessor);
/// hits.add(2);
/// assert_eq!(hits.total(), 2);
/// ```
#[track_caller]
pub fn adaptive<T, R>(shared: fn() -> T, distributed: fn() -> R) -> Owned<R::Interface>
where
    T: State,
    R: Root,
    R::Interface: InterfaceOf<T>,
{
    type Known = HashMap<TypeId, &'static (dyn Any + Send + Sync)>;
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let family = {
        // Only a failed allocation panics under this lock, and it leaves the map intact.
        let mut known = KNOWN.lock().unwrap_or_else(|poison| poison.into_inner());
        *known
            .entry(TypeId::of::<Single<T, R>>())
            .or_insert_with(|| Box::leak(Box::new(Adaptive::new(shared, distributed))))
    };
    match family.downcast_ref::<Adaptive<T, R>>() {
        Some(family) => family.create(),
        None => unreachable!("the key is the type of the shared form of the value"),
    }
}
