//! Hot-swap: the formats of state, and the record of swaps.

use crate::common::alone;
use squall::swap::{
    Format, Replacement, RootFormats, State, StateFormats, Swap, SwapFailure, SwapOutcome, SwapPhase,
    Transferred, recent,
};
use squall::{ClusterSize, Handle, Owned, RepContext, Root, Vp};
use std::error::Error;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

#[squall::interface]
trait Words: Send + Sync {
    fn push(&self, word: &str);
    fn all(&self) -> Vec<String>;
    /// The address of the words.
    fn address(&self) -> usize;
}

type Table = Mutex<Vec<String>>;

/// Words joined by spaces.
struct Text(String);
impl Format for Text {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn joined(table: &Table) -> Text {
    Text(table.lock().unwrap().join(" "))
}

fn split(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The formats that an implementation knows, in its order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// The table itself.
    Pointer,
    /// A copy of it.
    Copied,
    /// One text.
    Text,
    /// The words of each part.
    Parts,
}
use Knows::{Copied, Parts, Pointer, Text as AsText};

/// The formats that a class exports and imports. Each list is a type, since classes are types.
trait Lists: Send + Sync + 'static {
    const OUT: &'static [Knows];
    const IN: &'static [Knows];
}

macro_rules! lists {
    ($($name:ident: $out:expr, $in:expr;)*) => { $(
        #[derive(Default)]
        struct $name;
        impl Lists for $name {
            const OUT: &'static [Knows] = &$out;
            const IN: &'static [Knows] = &$in;
        }
    )* };
}
lists! {
    Rich: [Pointer, Copied, AsText], [Pointer, Copied, AsText];
    Plain: [AsText], [AsText];
    LikesText: [AsText, Copied], [AsText, Copied, Pointer];
    LikesCopies: [Copied, Pointer], [Copied, AsText];
    InParts: [Parts, AsText], [Parts, AsText];
    Nothing: [], [];
}

/// A shared object: one table.
#[derive(Default)]
struct One<L> {
    table: Mutex<Arc<Table>>,
    moved: Option<Arc<AtomicUsize>>,
    lists: PhantomData<L>,
}

impl<L: Lists> One<L> {
    fn table(&self) -> Arc<Table> {
        self.table.lock().unwrap().clone()
    }

    fn add(&self, words: Vec<String>) -> Transferred<()> {
        self.table().lock().unwrap().extend(words);
        Ok(())
    }
}

impl<L: Lists> State for One<L> {
    fn formats(formats: &mut StateFormats<'_, One<L>>) {
        for knows in L::OUT {
            match knows {
                Pointer => formats.export(|this| Ok(this.table())),
                Copied => formats.export(|this| Ok(this.table().lock().unwrap().clone())),
                AsText => formats.export(|this| Ok(joined(&this.table()))),
                Parts => formats.export_part(|this| Ok(this.table().lock().unwrap().clone())),
            };
        }
        for knows in L::IN {
            match knows {
                Pointer => formats.import(|this, table| {
                    *this.table.lock().unwrap() = table;
                    Ok(())
                }),
                Copied => formats.import(|this, words| this.add(words)),
                AsText => formats.import(|this, Text(text)| this.add(split(&text))),
                Parts => formats.import_part(|this, words| this.add(words)),
            };
        }
    }

    fn moved(&self) {
        if let Some(moved) = &self.moved {
            moved.fetch_add(1, Relaxed);
        }
    }
}

impl<L: Lists> Words for One<L> {
    fn push(&self, word: &str) {
        self.add(vec![word.to_owned()]).unwrap();
    }
    fn all(&self) -> Vec<String> {
        self.table().lock().unwrap().clone()
    }
    fn address(&self) -> usize {
        Arc::as_ptr(&self.table()).addr()
    }
}

/// The root of a distributed object: a table for each cluster.
#[derive(Default)]
struct Many<L>(L);

struct Part<L: Lists>(RepContext<Many<L>>, Table);

impl<L: Lists> Root for Many<L> {
    type Interface = dyn Words;
    type Rep = Part<L>;
    fn make_rep(&self, at: RepContext<Many<L>>) -> Part<L> {
        Part(at, Table::default())
    }
    fn formats(formats: &mut RootFormats<'_, Many<L>>) {
        for knows in L::OUT {
            match knows {
                AsText => formats.export(|whole| {
                    let texts: Vec<_> = whole.reps().map(|(_, part)| joined(&part.1).0).collect();
                    Ok(Text(texts.join(" ")))
                }),
                Parts => formats.export_part(|_, part| Ok(part.1.lock().unwrap().clone())),
                other => unreachable!("{other:?} is unknown to distributed tables"),
            };
        }
        for knows in L::IN {
            match knows {
                AsText => formats.import(|whole, Text(text)| {
                    assert_eq!(whole.reps().count(), 0);
                    whole.rep(Vp::current()).1.lock().unwrap().extend(split(&text));
                    assert_eq!(whole.reps().count(), 1);
                    Ok(())
                }),
                Parts => formats.import_part(|_, part, words: Vec<String>| {
                    part.1.lock().unwrap().extend(words);
                    Ok(())
                }),
                other => unreachable!("{other:?} is unknown to distributed tables"),
            };
        }
    }
}

impl<L: Lists> Words for Part<L> {
    fn push(&self, word: &str) {
        self.1.lock().unwrap().push(word.to_owned());
    }
    fn all(&self) -> Vec<String> {
        self.0.reps().flat_map(|part| part.1.lock().unwrap().clone()).collect()
    }
    fn address(&self) -> usize {
        0
    }
}

/// A root with the shared object as its only representative, or one per processor.
struct Only<L>(L);

impl<L: Lists> Root for Only<L> {
    type Interface = dyn Words;
    type Rep = One<L>;
    fn make_rep(&self, _: RepContext<Only<L>>) -> One<L> {
        One { table: Mutex::default(), moved: None, lists: PhantomData }
    }
    fn formats(formats: &mut RootFormats<'_, Only<L>>) {
        formats.forward_to_rep();
    }
}

fn one<L: Lists + Default>() -> Replacement<dyn Words> {
    Replacement::swappable(One::<L>::default())
}

fn many<L: Lists + Default>() -> Replacement<dyn Words> {
    Replacement::root(Many::<L>::default(), ClusterSize::Cpu)
}

fn patient(handle: Handle<dyn Words>) -> Swap<dyn Words> {
    Swap::new(handle).drain_timeout(Duration::from_secs(600))
}

#[test]
fn co_39_the_best_common_format_is_used() {
    type Make = fn() -> Replacement<dyn Words>;
    let (pointer, copy, text) = (
        std::any::type_name::<Arc<Table>>(),
        std::any::type_name::<Vec<String>>(),
        std::any::type_name::<Text>(),
    );
    let (word, words) = (size_of::<String>(), "some words of state".len());
    let cases: &[(Make, Make, &str, usize, bool)] = &[
        (one::<Rich>, one::<Rich>, pointer, size_of::<Arc<Table>>(), false),
        // The preferred format is unknown to one side: the next common one.
        (one::<Rich>, one::<Plain>, text, words, false),
        (one::<Plain>, one::<Rich>, text, words, false),
        // The least sum of ranks. Text is last for one side and first for the other; a copy is in the middle
        // for both. The exporting side breaks the tie.
        (one::<Rich>, one::<LikesText>, pointer, size_of::<Arc<Table>>(), false),
        (one::<LikesText>, one::<Rich>, text, words, false),
        (one::<Rich>, one::<LikesCopies>, copy, 4 * word, false),
        (one::<LikesCopies>, one::<LikesText>, copy, 4 * word, false),
        // Between shared and distributed objects, by parts and as a whole.
        (one::<InParts>, many::<InParts>, copy, 4 * word, true),
        (many::<InParts>, one::<InParts>, copy, 4 * word, true),
        (many::<InParts>, one::<Plain>, text, words, false),
        (one::<Rich>, many::<Plain>, text, words, false),
        (many::<Plain>, many::<InParts>, text, words, false),
    ];
    for (number, (from, to, format, bytes, by_parts)) in cases.iter().enumerate() {
        let owner = from().create().unwrap();
        ["some", "words", "of", "state"].iter().for_each(|word| owner.push(word));
        let address = owner.address();
        let reps = squall::info_of(Handle::id(owner.handle())).unwrap().reps.len();
        let report = patient(owner.handle()).run(to()).unwrap();
        assert_eq!((report.format, report.bytes), (Some(*format), *bytes), "case {number}");
        // The thread may have run on several VPs.
        assert_eq!(report.parts, if *by_parts { reps } else { 1 }, "case {number}");
        let mut after = owner.all();
        after.sort();
        assert_eq!(after, ["of", "some", "state", "words"], "case {number}");
        // A table that moves by pointer keeps its address.
        assert_eq!(*format == pointer, owner.address() == address && address != 0, "case {number}");
        Owned::destroy(owner).wait().unwrap();
    }
}

#[test]
fn co_39_without_a_common_format_nobody_is_blocked() {
    let owner = one::<Plain>().create().unwrap();
    owner.push("word");
    let before = squall::info_of(Handle::id(owner.handle())).unwrap();
    let (text, copies) = (std::any::type_name::<Text>(), std::any::type_name::<Vec<String>>());
    let by_parts = format!("{copies} by parts");
    for (new, class, imports) in [
        (one::<Nothing>(), std::any::type_name::<One<Nothing>>(), "none"),
        (Replacement::shared(Fixed), std::any::type_name::<Fixed>(), "none"),
        (many::<Nothing>(), std::any::type_name::<Many<Nothing>>(), "none"),
        // An export of the whole does not fit an import of parts.
        (many::<InPartsOnly>(), std::any::type_name::<Many<InPartsOnly>>(), &by_parts),
    ] {
        let error = patient(owner.handle()).run(new).unwrap_err();
        assert_eq!(error.failure(), SwapFailure::NoCommonFormat);
        assert!(error.report().is_none(), "the swap did not begin");
        let from = std::any::type_name::<One<Plain>>();
        let remedy = "list a format in `formats` of both, or swap `without_state`";
        let detail = format!("{from} exports {text}; {class} imports {imports}; {remedy}");
        assert_eq!(error.source().unwrap().to_string(), detail);
        assert_eq!(
            error.to_string(),
            format!(
                "swap of Words#{}: the two implementations have no state format in common: {detail}",
                error.id()
            )
        );
    }
    let after = squall::info_of(Handle::id(owner.handle())).unwrap();
    assert_eq!((before.class, before.state), (after.class, after.state));
    assert!(recent().iter().all(|report| report.id != before.id));
    assert_eq!(owner.all(), ["word"]);
}

lists! {
    InPartsOnly: [Parts], [Parts];
}

struct Fixed;
impl Words for Fixed {
    fn push(&self, _: &str) {}
    fn all(&self) -> Vec<String> {
        vec!["fixed".to_owned()]
    }
    fn address(&self) -> usize {
        1
    }
}

#[test]
fn co_39_a_swap_without_state_needs_no_format() {
    let owner = one::<Plain>().create().unwrap();
    owner.push("word");
    let report = patient(owner.handle()).without_state().run(Replacement::shared(Fixed)).unwrap();
    assert_eq!((report.format, report.parts, report.bytes), (None, 0, 0));
    assert_eq!(owner.all(), ["fixed"]);
    // A swap from an object without formats works too.
    let filled = One::<Plain>::default();
    filled.push("other");
    patient(owner.handle()).without_state().run(Replacement::swappable(filled)).unwrap();
    assert_eq!(owner.all(), ["other"]);
}

#[test]
fn co_39_a_root_with_one_representative_moves_the_state_of_that_representative() {
    fn only<L: Lists + Default>(size: ClusterSize) -> Replacement<dyn Words> {
        Replacement::root(Only::<L>(L::default()), size)
    }
    let machine = ClusterSize::Machine;
    for steps in [
        // Whole and by parts, with and without a representative before the state moves in.
        [one::<Rich>(), only::<Rich>(machine), only::<Plain>(machine), many::<Plain>()],
        [many::<InParts>(), only::<InParts>(machine), one::<InParts>(), only::<InParts>(machine)],
    ] {
        let mut steps = steps.into_iter();
        let words = steps.next().unwrap().create().unwrap();
        words.push("a");
        for new in steps {
            patient(words.handle()).run(new).unwrap();
        }
        words.push("b");
        assert_eq!(words.all(), ["a", "b"]);
    }
    // With several clusters, one representative is not the whole state.
    if squall::machine().vps().len() > 1 {
        let words = one::<Plain>().create().unwrap();
        let error = patient(words.handle()).run(only::<Plain>(ClusterSize::Cpu)).unwrap_err();
        assert_eq!(error.failure(), SwapFailure::TransferPanicked);
        assert!(error.to_string().contains("ClusterSize::Machine"), "{error}");
    }
}

#[test]
fn co_39_moved_runs_once_and_only_if_the_state_moved() {
    let told = Arc::new(AtomicUsize::new(0));
    let mine = One::<Rich> { moved: Some(told.clone()), ..One::default() };
    mine.push("word");
    let owner: Owned<dyn Words> = squall::swappable(mine);
    for _ in 0..3 {
        patient(owner.handle()).run(Replacement::shared(Fixed)).unwrap_err();
        patient(owner.handle()).deadline(std::time::Instant::now()).run(one::<Rich>()).unwrap_err();
    }
    assert_eq!(told.load(Relaxed), 0);
    patient(owner.handle()).run(one::<Rich>()).unwrap();
    // `moved` runs before the swap returns, so that the old object releases shared state.
    assert_eq!((told.load(Relaxed), owner.all()), (1, vec!["word".to_owned()]));
    patient(owner.handle()).run(one::<Rich>()).unwrap();
    Owned::destroy(owner).wait().unwrap();
    assert_eq!(told.load(Relaxed), 1);
}

// --- the record ---

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn x_02_every_swap_is_recorded_with_its_phases() {
    // The record keeps the last 256 swaps of the process.
    if !alone("swap::state::x_02_every_swap_is_recorded_with_its_phases") {
        return;
    }
    let owner = one::<Rich>().create().unwrap();
    owner.push("word");
    let began = SystemTime::now();
    let id = Handle::id(owner.handle());
    let done = patient(owner.handle()).run(one::<Plain>()).unwrap();
    let error = patient(owner.handle()).timeout(Duration::ZERO).run(one::<Rich>()).unwrap_err();
    let back = error.report().unwrap();
    let seen: Vec<_> = recent().into_iter().filter(|report| report.id == id).collect();
    assert_eq!(seen.len(), 2, "both swaps are recorded, the later one last");
    for (report, expected) in seen.iter().zip([&done, back]) {
        assert_eq!(format!("{report:?}"), format!("{expected:?}"));
        assert_eq!((report.id, report.interface), (id, "Words"));
        assert!(report.began >= began);
        let phases = [report.attach, report.forward, report.block, report.transfer, report.complete];
        assert_eq!(report.total(), phases.into_iter().sum());
        assert_eq!((report.blocked, report.pauses.as_slice(), report.forwarded), (0, &[][..], 0));
        assert_eq!(report.longest_pause, Duration::ZERO);
    }
    let (rich, plain) = (std::any::type_name::<One<Rich>>(), std::any::type_name::<One<Plain>>());
    assert_eq!((done.from, done.to, done.outcome), (rich, plain, SwapOutcome::Swapped));
    let failure = SwapFailure::TimedOut(SwapPhase::Forward);
    assert_eq!((back.from, back.to, back.outcome), (plain, rich, SwapOutcome::RolledBack(failure)));
    // Phases that the swap did not reach have a zero duration.
    assert_eq!((back.block, back.transfer), (Duration::ZERO, Duration::ZERO));
    assert_eq!((back.format, back.parts, back.bytes), (None, 0, 0));
    // The record keeps 256 swaps.
    for _ in 0..300 {
        patient(owner.handle()).run(one::<Rich>()).unwrap();
    }
    assert_eq!(recent().len(), 256);
}

#[test]
fn x_02_formats_know_their_size() {
    assert_eq!(7_u32.bytes(), 4);
    assert_eq!(vec![1_u64, 2, 3].bytes(), 24);
    assert_eq!("four".to_owned().bytes(), 4);
    assert_eq!(vec![0_u8; 9].into_boxed_slice().bytes(), 9);
    assert_eq!(Arc::new([0_u64; 9]).bytes(), size_of::<Arc<[u64; 9]>>());
    assert_eq!(Text("five.".into()).bytes(), 5);
}

#[test]
fn co_33_all_failures_have_different_messages() {
    use SwapFailure::*;
    let phases =
        [SwapPhase::Attach, SwapPhase::Forward, SwapPhase::Block, SwapPhase::Transfer, SwapPhase::Complete];
    assert!(phases.is_sorted());
    let all = [
        Destroyed,
        NotThere,
        Busy,
        Arbitrated,
        InOperation,
        InMethod,
        InTransfer,
        InDeferredCall,
        WrongInterface,
        NoCommonFormat,
        NoSuchMethod,
        TransferFailed,
        TransferPanicked,
        OutOfMemory,
        NoFence,
        Forked,
    ];
    let texts: std::collections::BTreeSet<_> = (all.into_iter())
        .chain(phases.map(TimedOut))
        .chain(phases.map(Cancelled))
        .map(|failure| failure.to_string())
        .collect();
    assert_eq!(texts.len(), all.len() + 2 * phases.len());
}
