//! The state of an object, and the formats in which it moves.
//!
//! A format is a type. Each implementation lists the formats that it can export and those that it can import, best first;
//! the best that both know is used ([`agree`]). A format moves the state whole, or part by part: then each representative
//! of the old object exports one part, and the new one's representative for the same VP imports it.
//!
//! - I1. The calls that are added to a list run as `formats/I1` says: on valid objects of this class.
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

/// A value whose state can move to another implementation, and from one: see [`swappable`](crate::swappable).
///
/// ```
/// use squall_core::swap::{StateFormats, State};
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
    /// Lists the formats: best first.
    fn formats(formats: &mut StateFormats<'_, Self>);

    /// The state has moved to another object, which serves from now on: called once, before the value is dropped.
    fn moved(&self) {}
}

/// The formats of a value: see [`State`].
///
/// Each method adds a format to the end of what can be exported, or imported. An export leaves the value as it is: it may
/// have to serve on. So does an import: its value is dropped if the swap is cancelled after it, or another part fails; a
/// format by pointer shares what it points to, or copies it, and gives nothing away. An import gets a value that nobody
/// else uses yet.
///
/// All callers wait for them. Neither may use the object by its reference, which would wait for the swap: such a call fails the
/// transfer. Neither may take a lock that anybody holds while calling the object: that is a deadlock which nothing ends.
pub struct StateFormats<'a, T> {
    list: &'a mut List,
    value: unsafe fn(NonNull<Object>) -> NonNull<T>,
}

impl<'a, T> StateFormats<'a, T> {
    /// # Safety
    /// `value` gives the value of any object of the class whose list this is.
    pub(crate) unsafe fn new(
        list: &'a mut List,
        value: unsafe fn(NonNull<Object>) -> NonNull<T>,
    ) -> StateFormats<'a, T> {
        StateFormats { list, value }
    }
}

impl<T: 'static> StateFormats<'_, T> {
    /// Exports the whole state.
    pub fn export<F: Format>(
        &mut self,
        export: impl Fn(&T) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_export(false, export)
    }

    /// Imports the whole state.
    pub fn import<F: Format>(
        &mut self,
        import: impl Fn(&T, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_import(false, import)
    }

    /// Exports the state as the one part that it is.
    pub fn export_part<F: Format>(
        &mut self,
        export: impl Fn(&T) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_export(true, export)
    }

    /// Imports one part of the state: called for each that there is, perhaps by several threads at once.
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
/// As [`StateFormats`], with two forms: the whole object at once, or representative by representative, which may run on several
/// threads at once. What lies in the root is in no part: roots with state of their own list formats of the whole.
pub struct RootFormats<'a, R: Root> {
    list: &'a mut List,
    class: PhantomData<fn(R) -> R>,
}

impl<'a, R: Root> RootFormats<'a, R> {
    /// # Safety
    /// `list` is of a class of this root.
    pub(crate) unsafe fn new(list: &'a mut List) -> RootFormats<'a, R> {
        RootFormats { list, class: PhantomData }
    }

    /// Exports the whole state.
    pub fn export<F: Format>(
        &mut self,
        export: impl Fn(Whole<'_, R>) -> Transferred<F> + Send + Sync + 'static,
    ) -> &mut Self {
        // SAFETY: an object of this class (I1).
        self.list.export(false, move |object, _| export(unsafe { Whole::new(object) }));
        self
    }

    /// Imports the whole state, into representatives that [`Whole::rep`] makes.
    pub fn import<F: Format>(
        &mut self,
        import: impl Fn(Whole<'_, R>, F) -> Transferred<()> + Send + Sync + 'static,
    ) -> &mut Self {
        // SAFETY: an object of this class (I1).
        self.list.import(false, move |object, _, format| import(unsafe { Whole::new(object) }, format));
        self
    }

    /// Exports the part of one representative: called for each.
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

    /// Imports a part into the representative that answers where the part comes from: called for each part, by several
    /// threads at once and several times for a representative, where the old object's clusters are smaller.
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

/// # Safety
/// A valid object of the class of `R`, and one of its representatives.
unsafe fn parts<'a, R: Root>(object: NonNull<Object>, part: Part) -> (&'a R, &'a R::Rep) {
    let owner = part.expect("a format by parts has a part");
    // SAFETY: the caller's promise.
    unsafe { (&object.cast::<Multi<R>>().as_ref().root, Multi::<R>::value(Rep::of(owner)).as_ref()) }
}

/// A whole distributed object, whose state moves.
pub struct Whole<'a, R: Root> {
    object: NonNull<Multi<R>>,
    life: crate::object::root::Bound<'a, R>,
}

impl<'a, R: Root> Whole<'a, R> {
    /// # Safety
    /// A valid object of the class of `R`, for `'a`; and nobody calls it, so that it can be made representatives.
    unsafe fn new(object: NonNull<Object>) -> Whole<'a, R> {
        Whole { object: object.cast(), life: PhantomData }
    }

    fn multi(&self) -> &'a Multi<R> {
        // SAFETY: valid for `'a` (`new`).
        unsafe { self.object.as_ref() }
    }

    /// The root.
    pub fn root(&self) -> &'a R {
        &self.multi().root
    }

    /// The representatives that there are, with their clusters.
    pub fn reps(&self) -> impl Iterator<Item = (Cluster, &'a R::Rep)> {
        let mut walk = self.multi().reps.walk();
        std::iter::from_fn(move || {
            // SAFETY: nobody frees nodes while the state moves.
            unsafe {
                let rep = walk.step()?;
                Some((Cluster::new(rep.as_ref().cluster), Multi::<R>::value(rep).as_ref()))
            }
        })
    }

    /// The representative of the cluster of `vp`, made if it has none.
    ///
    /// # Panics
    /// If `make_rep` does.
    pub fn rep(&self, vp: Vp) -> &'a R::Rep {
        let rep = Multi::find_or_make(self.object, self.multi().clusters().cluster_of(vp), vp);
        // SAFETY: as in `reps`.
        unsafe { Multi::<R>::value(rep).as_ref() }
    }
}

impl<T> fmt::Debug for StateFormats<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Formats(out: {}; in: {})", self.list.exports(), self.list.imports())
    }
}

impl<R: Root> fmt::Debug for RootFormats<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootFormats(out: {}; in: {})", self.list.exports(), self.list.imports())
    }
}

impl<R: Root> fmt::Debug for Whole<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole").finish_non_exhaustive()
    }
}
