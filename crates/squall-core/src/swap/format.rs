//! The state of an object, and the formats in which it moves.
//!
//! A format is a type. Each implementation lists the formats that it can export and those that it can import, best first;
//! the best that both know is used ([`agree`]). A format moves the state whole, or part by part: then each representative
//! of the old object exports one part, and the new one's representative for the same VP imports it.
//!
//! - I1. What is stored in a [`List`] is called with objects of the class that listed it, which are valid, and with a format
//!   of the type that it names.
//!
//! Source: K42's transfer negotiation protocol (CO-39).

use squall_machine::{Cluster, Vp};
use squall_sys::sync::Arc;
use std::any::{Any, TypeId, type_name};
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::multi::Multi;
use crate::raw::object::Object;
use crate::raw::reps::{Owner, Rep};
use crate::root::Root;

/// What an export or an import returns; any error fails the transfer, and the old object serves on.
pub type Transferred<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A type in which state moves from one implementation to another.
///
/// ```
/// struct Table(Vec<u64>);
/// impl squall_core::swap::Format for Table {
///     fn bytes(&self) -> usize {
///         size_of_val(self.0.as_slice())
///     }
/// }
/// ```
pub trait Format: Send + Sized + 'static {
    /// How many bytes move, for the record: by default those of the value itself, without what it points to.
    fn bytes(&self) -> usize {
        size_of_val(self)
    }
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => { $( impl Format for $type {} )* };
}
plain!((), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

impl<T: Send + 'static> Format for Vec<T> {
    fn bytes(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

impl Format for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl<T: Send + Sync + ?Sized + 'static> Format for Arc<T> {}

impl<T: Send + ?Sized + 'static> Format for Box<T> {
    fn bytes(&self) -> usize {
        size_of_val(&**self)
    }
}

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

/// StateFormats of one class, without its types.
#[derive(Default)]
pub(crate) struct List {
    exports: Vec<Export>,
    imports: Vec<Import>,
}

/// Which part of an object: all of it, or that of one representative.
type Part = Option<NonNull<Owner>>;
/// A format, and how many bytes it is.
pub(crate) type Parcel = (Box<dyn Any + Send>, usize);

/// What a format is called, and which it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    format: TypeId,
    name: &'static str,
    by_parts: bool,
}

impl Kind {
    fn of<F: Format>(by_parts: bool) -> Kind {
        Kind { format: TypeId::of::<F>(), name: type_name::<F>(), by_parts }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.by_parts { " by parts" } else { "" })
    }
}

/// Called as I1 says, and so is the next.
type ExportCall = dyn Fn(NonNull<Object>, Part) -> Transferred<Parcel> + Send + Sync;
type ImportCall = dyn Fn(NonNull<Object>, Part, Box<dyn Any + Send>) -> Transferred<()> + Send + Sync;

struct Export {
    kind: Kind,
    call: Box<ExportCall>,
}

struct Import {
    kind: Kind,
    call: Box<ImportCall>,
}

impl List {
    fn export<F: Format>(
        &mut self,
        by_parts: bool,
        call: impl Fn(NonNull<Object>, Part) -> Transferred<F> + Send + Sync + 'static,
    ) {
        let call = move |object, part| {
            let format = call(object, part)?;
            let bytes = format.bytes();
            Ok((Box::new(format) as Box<dyn Any + Send>, bytes))
        };
        self.exports.push(Export { kind: Kind::of::<F>(by_parts), call: Box::new(call) });
    }

    fn import<F: Format>(
        &mut self,
        by_parts: bool,
        call: impl Fn(NonNull<Object>, Part, F) -> Transferred<()> + Send + Sync + 'static,
    ) {
        let call = move |object, part, format: Box<dyn Any + Send>| match format.downcast::<F>() {
            Ok(format) => call(object, part, *format),
            Err(_) => Err("a format came as another one".into()),
        };
        self.imports.push(Import { kind: Kind::of::<F>(by_parts), call: Box::new(call) });
    }

    /// What it can export, for an error.
    pub(crate) fn exports(&self) -> String {
        names(self.exports.iter().map(|export| export.kind))
    }

    /// What it can import, for an error.
    pub(crate) fn imports(&self) -> String {
        names(self.imports.iter().map(|import| import.kind))
    }
}

fn names(kinds: impl Iterator<Item = Kind>) -> String {
    let names: Vec<String> = kinds.map(|kind| kind.to_string()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// A format that both sides know.
pub(crate) struct Agreed {
    export: Export,
    import: Import,
}

impl Agreed {
    pub(crate) fn name(&self) -> &'static str {
        self.export.kind.name
    }

    pub(crate) fn by_parts(&self) -> bool {
        self.export.kind.by_parts
    }

    /// Takes the state, or a part of it, out of the old object.
    ///
    /// # Safety
    /// An object of the class that listed the export, valid, and one of its representatives.
    pub(crate) unsafe fn take(&self, object: NonNull<Object>, part: Part) -> Transferred<Parcel> {
        (self.export.call)(object, part)
    }

    /// Puts it into the new one.
    ///
    /// # Safety
    /// As of `take`, of the import.
    pub(crate) unsafe fn put(
        &self,
        object: NonNull<Object>,
        part: Part,
        format: Box<dyn Any + Send>,
    ) -> Transferred<()> {
        (self.import.call)(object, part, format)
    }
}

/// The best format that one can export and the other import: that whose ranks in the two lists have the least sum; of equals
/// that which the exporter likes better.
pub(crate) fn agree(old: &mut List, new: &mut List) -> Option<Agreed> {
    let ranks = old.exports.iter().enumerate().filter_map(|(out, export)| {
        let into = new.imports.iter().position(|import| import.kind == export.kind)?;
        Some((out + into, out, into))
    });
    let (_, out, into) = ranks.min()?;
    Some(Agreed { export: old.exports.swap_remove(out), import: new.imports.swap_remove(into) })
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
    life: crate::root::Bound<'a, R>,
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Table;
    impl Format for Table {}

    fn list(exports: &[(Kind, &str)], imports: &[(Kind, &str)]) -> List {
        let mut list = List::default();
        for (kind, _) in exports {
            let call = Box::new(|_, _| Err("not called".into()));
            list.exports.push(Export { kind: *kind, call });
        }
        for (kind, _) in imports {
            let call = Box::new(|_, _, _| Err("not called".into()));
            list.imports.push(Import { kind: *kind, call });
        }
        list
    }

    #[test]
    fn co_39_the_best_format_that_both_know_is_taken() {
        let (memory, text, table) = (
            (Kind::of::<Box<u8>>(false), ""),
            (Kind::of::<String>(false), ""),
            (Kind::of::<Table>(true), ""),
        );
        let chosen = |out: &[_], into: &[_]| {
            agree(&mut list(out, &[]), &mut list(&[], into)).map(|agreed| agreed.export.kind.name)
        };
        assert_eq!(chosen(&[memory, text], &[memory, text]), Some(memory.0.name));
        assert_eq!(chosen(&[memory, text], &[text]), Some(text.0.name));
        assert_eq!(
            chosen(&[memory, text, table], &[table, text]),
            Some(text.0.name),
            "the least sum of ranks"
        );
        assert_eq!(
            chosen(&[memory, text], &[text, memory]),
            Some(memory.0.name),
            "the exporter decides a tie"
        );
        assert_eq!(chosen(&[memory], &[text]), None);
        assert_eq!(chosen(&[], &[]), None);
        let by_parts = (Kind::of::<Table>(false), "");
        assert_eq!(chosen(&[table], &[by_parts]), None, "a whole is no part");
    }
}
