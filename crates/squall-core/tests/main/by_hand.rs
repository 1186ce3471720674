//! Interfaces implemented without the macro, correctly and incorrectly, and representatives of unusual sizes
//! and alignments.

use squall_core::__macro::Panic;
use squall_core::{
    Extends, Handle, Interface, InterfaceOf, Owned, RepContext, Root, Source, Super, shared, tables,
    try_shared,
};
use squall_machine::ClusterSize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const HERE: Source = Source { file: file!(), line: line!() };

trait Base: Send + Sync {
    fn text(&self) -> &str;
}

trait Sub: Send + Sync {
    fn base(&self) -> &(dyn Base + 'static);
    fn n(&self) -> usize;
}

impl Interface for dyn Base {
    const NAME: &'static str = "Base";
    const SOURCE: Source = HERE;
    const SUPERS: &'static [Super<Self>] = &[];
    type View<'rep> = ();
    fn __shorten<'short, 'long: 'short>((): ()) {}
}

impl Interface for dyn Sub {
    const NAME: &'static str = "Sub";
    const SOURCE: Source = HERE;
    // One interface listed twice: two paths lead to it.
    const SUPERS: &'static [Super<Self>] = &[
        Super::new::<dyn Base>(|sub: &(dyn Sub + 'static)| sub.base()),
        Super::new::<dyn Base>(|_| &Elsewhere),
    ];
    type View<'rep> = ();
    fn __shorten<'short, 'long: 'short>((): ()) {}
}

impl Extends<dyn Base> for dyn Sub {}
// Incorrect on purpose: `SUPERS` does not list it.
impl Extends<dyn Sub> for dyn Base {}

struct Elsewhere;

impl Base for Elsewhere {
    fn text(&self) -> &str {
        "elsewhere"
    }
}

/// A representative that passes another value off as its interface.
struct Boxed(Box<Inner>);

struct Inner(String);

impl Base for Inner {
    fn text(&self) -> &str {
        &self.0
    }
}

impl Sub for Inner {
    fn base(&self) -> &(dyn Base + 'static) {
        self
    }
    fn n(&self) -> usize {
        self.0.len()
    }
}

impl InterfaceOf<Boxed> for dyn Sub {
    fn view(rep: &Boxed) -> &(dyn Sub + 'static) {
        &*rep.0
    }
}

fn n(handle: Handle<dyn Sub>) -> usize {
    Handle::__call(handle, "n", |sub: &(dyn Sub + 'static)| sub.n(), Panic)
}

fn text(handle: Handle<dyn Base>) -> String {
    Handle::__call(handle, "text", |base: &(dyn Base + 'static)| base.text().to_owned(), Panic)
}

#[test]
fn an_interface_may_be_provided_by_a_box_and_an_upcast_by_another_value() {
    let object: Owned<dyn Sub> = shared(Boxed(Box::new(Inner("in a box".into()))));
    assert_eq!(n(object.handle()), 8);
    assert_eq!(text(Handle::upcast(object.handle())), "in a box");
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn pitfall_04_an_upcast_that_supers_do_not_list_panics() {
    struct Plain;
    impl InterfaceOf<Plain> for dyn Base {
        fn view(_: &Plain) -> &(dyn Base + 'static) {
            &Elsewhere
        }
    }
    let object: Owned<dyn Base> = shared(Plain);
    assert_eq!(text(object.handle()), "elsewhere");
    let handle = object.handle();
    assert!(catch_unwind(AssertUnwindSafe(|| Handle::upcast::<dyn Sub>(handle))).is_err());
    Owned::destroy(object).wait().unwrap();
}

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

static PANICS: AtomicBool = AtomicBool::new(false);

struct Refuses(#[allow(dead_code)] Dropped);

impl InterfaceOf<Refuses> for dyn Base {
    fn view(_: &Refuses) -> &(dyn Base + 'static) {
        assert!(!PANICS.load(Ordering::Relaxed), "nothing to see here");
        &Elsewhere
    }
}

/// A root with representatives that can panic in `InterfaceOf::view`.
struct Shy(Dropped);

struct ShyRep {
    at: RepContext<Shy>,
    #[allow(dead_code)]
    dropped: Dropped,
}

impl Root for Shy {
    type Interface = dyn Base;
    type Rep = ShyRep;
    fn make_rep(&self, at: RepContext<Shy>) -> ShyRep {
        ShyRep { at, dropped: Dropped(self.0.0.clone()) }
    }
}

impl InterfaceOf<ShyRep> for dyn Base {
    fn view(rep: &ShyRep) -> &(dyn Base + 'static) {
        // The context is already inside its representative, and peers can be reached.
        assert_eq!(rep.at.reps().count(), 0);
        assert!(!PANICS.load(Ordering::Relaxed), "nothing to see here");
        &Elsewhere
    }
}

#[test]
fn a_conversion_that_panics_returns_all_memory() {
    let dropped = Arc::new(AtomicUsize::new(0));
    PANICS.store(true, Ordering::Relaxed);
    for round in 1..=3 {
        let made = catch_unwind(AssertUnwindSafe(|| {
            drop(try_shared::<dyn Base, _>(Refuses(Dropped(dropped.clone()))));
        }));
        assert!(made.is_err());
        assert_eq!(dropped.swap(0, Ordering::Relaxed), 1, "round {round}");
    }
    let object = Shy(Dropped(dropped.clone())).create(ClusterSize::Machine);
    let handle = object.handle();
    for round in 1..=3 {
        assert!(catch_unwind(AssertUnwindSafe(|| text(handle))).is_err());
        assert_eq!(dropped.swap(0, Ordering::Relaxed), 1, "round {round}");
    }
    PANICS.store(false, Ordering::Relaxed);
    assert_eq!(text(handle), "elsewhere");
    // The failed attempts keep no link to the root.
    Owned::destroy(object).wait().unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "the representative and the root");
}

// --- unusual sizes and alignments ---

#[squall_macros::interface(crate = squall_core)]
trait Shape: Send + Sync {
    /// Returns its address and its value.
    fn look(&self) -> (usize, u64);
}

#[repr(align(4096))]
struct Aligned(u64);

impl Shape for Aligned {
    fn look(&self) -> (usize, u64) {
        (std::ptr::from_ref(self).addr(), self.0)
    }
}

struct Nothing;

impl Shape for Nothing {
    fn look(&self) -> (usize, u64) {
        (0, 7)
    }
}

struct Large([u64; 10_000]);

impl Shape for Large {
    fn look(&self) -> (usize, u64) {
        (std::ptr::from_ref(self).addr(), self.0[0] + self.0[9_999])
    }
}

/// A root of size zero. Its representative is aligned and keeps its context at its end.
struct Empty;

#[repr(align(256))]
struct AlignedRep {
    n: [u64; 40],
    at: Option<(u8, [RepContext<Empty>; 1])>,
}

impl Root for Empty {
    type Interface = dyn Shape;
    type Rep = AlignedRep;
    fn make_rep(&self, at: RepContext<Empty>) -> AlignedRep {
        AlignedRep { n: [3; 40], at: Some((1, [at])) }
    }
}

impl Shape for AlignedRep {
    fn look(&self) -> (usize, u64) {
        let at = &self.at.as_ref().unwrap().1[0];
        assert_eq!(at.reps().count(), 1);
        assert!(std::ptr::eq(at.local(), self));
        (std::ptr::from_ref(self).addr(), self.n.iter().sum())
    }
}

/// A root with representatives of size zero, which do not keep their context.
struct Forgets;

impl Root for Forgets {
    type Interface = dyn Shape;
    type Rep = Nothing;
    fn make_rep(&self, _: RepContext<Forgets>) -> Nothing {
        Nothing
    }
}

#[test]
fn representatives_may_have_any_size_and_alignment() {
    let aligned: Owned<dyn Shape> = shared(Aligned(5));
    let (address, value) = aligned.look();
    assert_eq!((address % 4096, value), (0, 5));
    let nothing: Owned<dyn Shape> = shared(Nothing);
    assert_eq!(nothing.look(), (0, 7));
    let large: Owned<dyn Shape> = shared(Large([1; 10_000]));
    assert_eq!(large.look().1, 2);
    let rep = Empty.create(ClusterSize::Machine);
    let (address, value) = rep.look();
    assert_eq!((address % 256, value), (0, 120));
    let forgets = Forgets.create(ClusterSize::Cpu);
    assert_eq!(forgets.look(), (0, 7));
    for object in [aligned, nothing, large, rep, forgets] {
        Owned::destroy(object).wait().unwrap();
    }
    assert_eq!(tables::stats().entry_bytes, 8);
}
