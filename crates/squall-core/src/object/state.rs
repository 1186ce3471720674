//! The state of an object, and the formats in which it moves.
//!
//! A format is a type. Each implementation lists the formats that it can export and those that it can import,
//! best first. The best format that both know is used (`protocol::formats::agree`). A format moves the state
//! as a whole or part by part. By parts, each representative of the old object exports one part, and the new
//! object's representative for the same VP imports it.
//!
//! - I1. The calls that are added to a list run under the conditions of `formats/I1`: on valid objects of
//!   this class.
//!
//! Source: K42's transfer negotiation protocol (CO-39).

use squall_machine::{Cluster, Vp};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::object::distributed::Multi;
use crate::object::root::Root;
use crate::protocol::formats::{Format, List, Part, Transferred};
use crate::protocol::object::Object;
use crate::protocol::reps::Rep;

/// A value whose state can move to and from another implementation. See [`swappable`](crate::swappable).
///
/// ```
/// use squall::swap::{StateFormats, State};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// struct Central(AtomicU64);
/// impl State for Central {
///     fn formats(formats: &mut StateFormats<'_, Central>) {
///         formats
///             .export_part(|this| Ok(this.0.load(Relaxed)))
///             .import_part(|this, n: u64| Ok(drop(this.0.fetch_add(n, Relaxed))));
///     }
/// }
/// ```
pub trait State: Send + Sync + Sized + 'static {
    /// Lists the formats, best first.
    fn formats(formats: &mut StateFormats<'_, Self>);

    /// Tells the old value that its state has moved to another object, which serves from now on. Called once,
    /// before the value is dropped.
    fn moved(&self) {}
}

/// The formats of a value: see [`State`].
///
/// Each method adds a format to the end of the list of exports or imports. An export leaves the value
/// unchanged, since the value may have to serve on. If the swap is cancelled after an import, or another part
/// fails, the imported value is dropped. So a format that contains a pointer must share or copy its target,
/// and must not give it away. An import gets a value that no other code uses yet.
///
/// All callers wait for exports and imports. Neither may call the object through its handle: such a call
/// would wait for the swap, and fails the transfer. Neither may take a lock that another thread holds while
/// it calls the object: that would be a deadlock.
///
/// ```
/// use squall::swap::{State, StateFormats};
/// use std::sync::Mutex;
///
/// struct Log(Mutex<Vec<String>>);
/// impl State for Log {
///     fn formats(formats: &mut StateFormats<'_, Log>) {
///         formats
///             .export(|this| Ok(this.0.lock().unwrap().clone()))
///             .import(|this, lines: Vec<String>| Ok(*this.0.lock().unwrap() = lines));
///     }
/// }
/// ```
pub struct StateFormats<'a, T> {
    list: &'a mut List,
    value: unsafe fn(NonNull<Object>) -> NonNull<T>,
}

impl<'a, T> StateFormats<'a, T> {
    /// Makes an empty list of state formats.
    ///
    /// # Safety
    /// `value` returns the value of every object of the class that owns this list.
    pub(crate) unsafe fn new(
        list: &'a mut List,
        value: unsafe fn(NonNull<Object>) -> NonNull<T>,
    ) -> StateFormats<'a, T> {
        StateFormats { list, value }
    }
}

impl<T: 'static> StateFormats<'_, T> {
    /// Adds an export of the whole state.
    ///
    /// ```
    /// # use squall::swap::{State, StateFormats};
    /// # use std::sync::Mutex;
    /// struct Name(Mutex<String>);
    /// impl State for Name {
    ///     fn formats(formats: &mut StateFormats<'_, Name>) {
    ///         formats.export(|this| Ok(this.0.lock().unwrap().clone()));
    ///     }
    /// }
    /// ```
    pub fn export<F: Format>(
        &mut self,
        export: impl Fn(&T) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_export(false, export)
    }

    /// Adds an import of the whole state.
    ///
    /// ```
    /// # use squall::swap::{State, StateFormats};
    /// # use std::sync::Mutex;
    /// struct Name(Mutex<String>);
    /// impl State for Name {
    ///     fn formats(formats: &mut StateFormats<'_, Name>) {
    ///         formats.import(|this, name: String| Ok(*this.0.lock().unwrap() = name));
    ///     }
    /// }
    /// ```
    pub fn import<F: Format>(
        &mut self,
        import: impl Fn(&T, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_import(false, import)
    }

    /// Adds an export of the state as its only part.
    ///
    /// ```
    /// # use squall::swap::{State, StateFormats};
    /// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// struct Hits(AtomicU64);
    /// impl State for Hits {
    ///     fn formats(formats: &mut StateFormats<'_, Hits>) {
    ///         formats.export_part(|this| Ok(this.0.load(Relaxed)));
    ///     }
    /// }
    /// ```
    pub fn export_part<F: Format>(
        &mut self,
        export: impl Fn(&T) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_export(true, export)
    }

    /// Adds an import of one part of the state. It is called for each part, possibly by several threads at
    /// once.
    ///
    /// ```
    /// # use squall::swap::{State, StateFormats};
    /// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// struct Hits(AtomicU64);
    /// impl State for Hits {
    ///     fn formats(formats: &mut StateFormats<'_, Hits>) {
    ///         formats.import_part(|this, n: u64| Ok(drop(this.0.fetch_add(n, Relaxed))));
    ///     }
    /// }
    /// ```
    pub fn import_part<F: Format>(
        &mut self,
        import: impl Fn(&T, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_import(true, import)
    }

    fn add_export<F: Format>(
        &mut self,
        by_parts: bool,
        export: impl Fn(&T) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        let value = self.value;
        // SAFETY: an object of this class (I1).
        self.list.export(by_parts, move |object, _| export(unsafe { value(object).as_ref() }));
        self
    }

    fn add_import<F: Format>(
        &mut self,
        by_parts: bool,
        import: impl Fn(&T, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        let value = self.value;
        // SAFETY: an object of this class (I1).
        self.list
            .import(by_parts, move |object, _, format| import(unsafe { value(object).as_ref() }, format));
        self
    }
}

/// The formats of a distributed object: see [`Root::formats`].
///
/// They follow the rules of [`StateFormats`]. A format covers the whole object at once, or goes
/// representative by representative, possibly on several threads at once. State in the root belongs to no
/// part, so roots with state of their own list formats of the whole.
pub struct RootFormats<'a, R: Root> {
    list: &'a mut List,
    class: PhantomData<fn(R) -> R>,
}

impl<'a, R: Root> RootFormats<'a, R> {
    /// Makes an empty list of state formats.
    ///
    /// # Safety
    /// `list` belongs to a class of this root.
    pub(crate) unsafe fn new(list: &'a mut List) -> RootFormats<'a, R> {
        RootFormats { list, class: PhantomData }
    }

    /// Adds an export of the whole state.
    pub fn export<F: Format>(
        &mut self,
        export: impl Fn(Whole<'_, R>) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        // SAFETY: an object of this class (I1).
        self.list.export(false, move |object, _| export(unsafe { Whole::new(object) }));
        self
    }

    /// Adds an import of the whole state, into representatives that [`Whole::rep`] makes.
    pub fn import<F: Format>(
        &mut self,
        import: impl Fn(Whole<'_, R>, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        // SAFETY: an object of this class (I1).
        self.list.import(false, move |object, _, format| import(unsafe { Whole::new(object) }, format));
        self
    }

    /// Adds an export of the part of one representative. It is called for each representative.
    pub fn export_part<F: Format>(
        &mut self,
        export: impl Fn(&R, &R::Rep) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        self.list.export(true, move |object, part| {
            // SAFETY: an object of this class, and its representative (I1).
            let (root, rep) = unsafe { parts::<R>(object, part) };
            export(root, rep)
        });
        self
    }

    /// Adds the formats of the representative's own [`State`], for an object whose clusters are the machine.
    /// Formats by parts have one part, the representative.
    ///
    /// # Panics
    /// An export or import panics, and the swap fails, if the object has several clusters.
    ///
    /// ```
    /// use squall::swap::{Replacement, RootFormats, State, StateFormats, swap};
    /// use squall::{ClusterSize, RepContext, Root};
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// # #[squall::interface]
    /// # trait Counter: Send + Sync { fn add(&self, n: u64); fn get(&self) -> u64; }
    /// struct Central(AtomicU64);
    /// # impl Counter for Central {
    /// #     fn add(&self, n: u64) { self.0.fetch_add(n, Relaxed); }
    /// #     fn get(&self) -> u64 { self.0.load(Relaxed) }
    /// # }
    /// impl State for Central {
    ///     fn formats(formats: &mut StateFormats<'_, Central>) {
    ///         formats.export(|this| Ok(this.get())).import(|this, n: u64| Ok(this.add(n)));
    ///     }
    /// }
    /// /// Has one representative, and learns of each miss.
    /// struct One;
    /// impl Root for One {
    ///     type Interface = dyn Counter;
    ///     type Rep = Central;
    ///     fn make_rep(&self, _: RepContext<One>) -> Central {
    ///         Central(AtomicU64::new(0))
    ///     }
    ///     fn formats(formats: &mut RootFormats<'_, One>) {
    ///         formats.forward_to_rep();
    ///     }
    /// }
    ///
    /// let counter = One.create(ClusterSize::Machine);
    /// counter.add(5);
    /// swap(counter.handle(), Replacement::swappable(Central(AtomicU64::new(0))))?;
    /// swap(counter.handle(), Replacement::root(One, ClusterSize::Machine))?;
    /// assert_eq!(counter.get(), 5);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn forward_to_rep(&mut self) -> &mut Self
    where
        R::Rep: State,
    {
        // SAFETY: `only_rep` finds the value in objects of the class of `R`, which owns this list.
        R::Rep::formats(&mut unsafe { StateFormats::new(self.list, only_rep::<R>) });
        self
    }

    /// Adds an import of a part. The part goes into the representative that serves the VP of the exporting
    /// representative.
    ///
    /// It is called for each part, by several threads at once. If the old object's clusters are smaller, it
    /// is called several times for one representative.
    pub fn import_part<F: Format>(
        &mut self,
        import: impl Fn(&R, &R::Rep, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        self.list.import(true, move |object, part, format| {
            // SAFETY: an object of this class, and its representative (I1).
            let (root, rep) = unsafe { parts::<R>(object, part) };
            import(root, rep, format)
        });
        self
    }
}

/// Returns the root and the representative of a part.
///
/// # Safety
/// A valid object of the class of `R`, and one of its representatives.
unsafe fn parts<'a, R: Root>(object: NonNull<Object>, part: Part) -> (&'a R, &'a R::Rep) {
    let owner = part.expect("a format by parts was called without a part");
    // SAFETY: the caller's promise.
    unsafe { (&object.cast::<Multi<R>>().as_ref().root, Multi::<R>::value(Rep::of(owner)).as_ref()) }
}

/// Returns the representative of an object with one cluster; makes it if there is none.
///
/// # Safety
/// A valid object of the class of `R`. No thread calls it, so its representative can be made.
unsafe fn only_rep<R: Root>(object: NonNull<Object>) -> NonNull<R::Rep> {
    // SAFETY: the caller's promise, for this function.
    let whole = unsafe { Whole::<R>::new(object) };
    let mut clusters = whole.multi().clusters().iter();
    let (only, more) = (clusters.next(), clusters.next());
    let (Some(cluster), None) = (only, more) else {
        panic!("`forward_to_rep` needs an object with one cluster; create it with `ClusterSize::Machine`")
    };
    let vp = whole.multi().clusters().members(cluster)[0];
    // SAFETY: a representative of this class, found as a pointer to its whole block.
    unsafe { Multi::<R>::value(Multi::find_or_make(whole.object, cluster, vp)) }
}

/// A whole distributed object, for a format that moves its state at once.
///
/// ```
/// use squall::swap::RootFormats;
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
///
/// fn formats(formats: &mut RootFormats<'_, Spread>) {
///     formats
///         .export(|whole| Ok(whole.reps().map(|(_, rep)| rep.count.load(Relaxed)).sum::<u64>()))
///         .import(|whole, n: u64| Ok(whole.rep(squall::Vp::current()).add(n)));
/// }
/// # use std::sync::atomic::Ordering::Relaxed;
/// ```
pub struct Whole<'a, R: Root> {
    object: NonNull<Multi<R>>,
    life: crate::object::root::Bound<'a, R>,
}

impl<'a, R: Root> Whole<'a, R> {
    /// Wraps the object.
    ///
    /// # Safety
    /// A valid object of the class of `R`, for `'a`. No thread calls it, so representatives can be made.
    unsafe fn new(object: NonNull<Object>) -> Whole<'a, R> {
        Whole { object: object.cast(), life: PhantomData }
    }

    fn multi(&self) -> &'a Multi<R> {
        // SAFETY: valid for `'a` (`new`).
        unsafe { self.object.as_ref() }
    }

    /// Returns the root.
    pub fn root(&self) -> &'a R {
        &self.multi().root
    }

    /// Iterates over the representatives, with their clusters.
    pub fn reps(&self) -> impl Iterator<Item = (Cluster, &'a R::Rep)> {
        let mut walk = self.multi().reps.walk();
        std::iter::from_fn(move || {
            // SAFETY: nodes are not freed while the state moves.
            unsafe {
                let rep = walk.step()?;
                Some((Cluster::new(rep.as_ref().cluster), Multi::<R>::value(rep).as_ref()))
            }
        })
    }

    /// Returns the representative of the cluster of `vp`; makes it if there is none.
    ///
    /// # Panics
    /// If `make_rep` panics.
    pub fn rep(&self, vp: Vp) -> &'a R::Rep {
        let rep = Multi::find_or_make(self.object, self.multi().clusters().cluster_of(vp), vp);
        // SAFETY: nodes are not freed while the state moves.
        unsafe { Multi::<R>::value(rep).as_ref() }
    }
}

impl<T> fmt::Debug for StateFormats<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateFormats(exports: {}; imports: {})", self.list.exports(), self.list.imports())
    }
}

impl<R: Root> fmt::Debug for RootFormats<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootFormats(exports: {}; imports: {})", self.list.exports(), self.list.imports())
    }
}

impl<R: Root> fmt::Debug for Whole<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole").finish_non_exhaustive()
    }
}
