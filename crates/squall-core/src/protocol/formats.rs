//! The untyped list of state formats that a class exports and imports.
//!
//! - I1. A function stored in a [`List`] runs only on valid objects of the class that listed it. An import
//!   gets a value of the format that it names.

use std::any::{Any, TypeId, type_name};
use std::error::Error;
use std::fmt;
use std::ptr::NonNull;

use squall_sys::sync::Arc;

use super::object::Object;
use super::reps::Owner;

/// The result of an export or an import. Any error fails the transfer, and the old object keeps serving.
pub type Transferred<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A type that carries state from one implementation to another.
///
/// ```
/// struct Table(Vec<u64>);
/// impl squall::swap::Format for Table {
///     fn bytes(&self) -> usize {
///         size_of_val(self.0.as_slice())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state format",
    note = "a type of the program becomes one by `impl squall::swap::Format for T {{}}`"
)]
pub trait Format: Send + Sized + 'static {
    /// Returns the number of bytes that move, for the record of the swap. The default is the size of the
    /// value itself, without the memory that it points to.
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

/// The state formats of one class, without their types.
#[derive(Default)]
pub(crate) struct List {
    exports: Vec<Export>,
    imports: Vec<Import>,
}

/// A part of an object: all of it if absent, otherwise the part of one representative.
pub(crate) type Part = Option<NonNull<Owner>>;
/// A value of a state format, and its size in bytes.
pub(crate) type Parcel = (Box<dyn Any + Send>, usize);

/// The type and name of a format, and whether it moves by parts.
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

/// An export function; called as I1 says, like an import function.
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
    pub(crate) fn export<F: Format>(
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

    pub(crate) fn import<F: Format>(
        &mut self,
        by_parts: bool,
        call: impl Fn(NonNull<Object>, Part, F) -> Transferred<()> + Send + Sync + 'static,
    ) {
        let call = move |object, part, format: Box<dyn Any + Send>| match format.downcast::<F>() {
            Ok(format) => call(object, part, *format),
            Err(_) => Err(another_format()),
        };
        self.imports.push(Import { kind: Kind::of::<F>(by_parts), call: Box::new(call) });
    }

    /// Names the exported formats, for an error message.
    pub(crate) fn exports(&self) -> String {
        names(self.exports.iter().map(|export| export.kind))
    }

    /// Names the imported formats, for an error message.
    pub(crate) fn imports(&self) -> String {
        names(self.imports.iter().map(|import| import.kind))
    }
}

#[cold]
fn another_format() -> Box<dyn Error + Send + Sync> {
    "the import got a value of another format than the one it was listed with".into()
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

    /// Exports the state of the old object, or a part of it.
    ///
    /// # Safety
    /// The object is valid and of the class that listed the export. `part` is one of its representatives, if
    /// given.
    pub(crate) unsafe fn take(&self, object: NonNull<Object>, part: Part) -> Transferred<Parcel> {
        (self.export.call)(object, part)
    }

    /// Imports the state, or a part of it, into the new object.
    ///
    /// # Safety
    /// The object is valid and of the class that listed the import. `part` is one of its representatives, if
    /// given.
    pub(crate) unsafe fn put(
        &self,
        object: NonNull<Object>,
        part: Part,
        format: Box<dyn Any + Send>,
    ) -> Transferred<()> {
        (self.import.call)(object, part, format)
    }
}

/// Chooses the best format that `old` exports and `new` imports: the least sum of its ranks in the two lists.
/// The exporter's order decides a tie.
pub(crate) fn agree(old: &mut List, new: &mut List) -> Option<Agreed> {
    let ranks = old.exports.iter().enumerate().filter_map(|(out, export)| {
        let into = new.imports.iter().position(|import| import.kind == export.kind)?;
        Some((out + into, out, into))
    });
    let (_, out, into) = ranks.min()?;
    Some(Agreed { export: old.exports.swap_remove(out), import: new.imports.swap_remove(into) })
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
        assert_eq!(chosen(&[table], &[by_parts]), None, "a whole format does not match a format by parts");
    }
}
