//! Calls that another thread makes for their caller, against swaps; and what wakes the waiting, when it panics.

use crate::common::drops_panic;
use squall::swap::{Replacement, RootFormats, State, StateFormats, Swap};
use squall::{ClusterSize, Handle, Owned, RepContext, Root, swappable_with};
use squall_core::wrap::{
    Around, Invoked, NotRun, Refusal, Wrap, hand_off, in_transfer, shall_leave, wrapped_swappable,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

fn wait_for(happened: impl Fn() -> bool) {
    while !happened() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Swaps with all the time that a slow machine takes.
fn swap_to(handle: Handle<dyn Work>, new: Replacement<dyn Work>) {
    Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(new).unwrap();
}

#[squall::interface]
trait Work: Send + Sync {
    #[blocking]
    fn work(&self) -> u32;
}

/// What comes after the others.
#[derive(Default)]
struct Newer {
    dropped: Option<Arc<AtomicBool>>,
}

impl Work for Newer {
    fn work(&self) -> u32 {
        2
    }
}

impl State for Newer {
    fn formats(formats: &mut StateFormats<'_, Newer>) {
        formats.export_part(|_| Ok(())).import_part(|_, (): ()| Ok(()));
    }
}

impl Drop for Newer {
    fn drop(&mut self) {
        if let Some(dropped) = &self.dropped {
            dropped.store(true, SeqCst);
        }
    }
}

// --- both threads look at the caller's frames ---

struct Older {
    handle: Handle<dyn Work>,
    inside: Arc<AtomicBool>,
}

impl Work for Older {
    fn work(&self) -> u32 {
        let id = Handle::id(self.handle);
        let inside = &self.inside;
        let until_told = || {
            inside.store(true, SeqCst);
            wait_for(|| shall_leave(id));
            1
        };
        // The job's thread and this one ask at the same time, and both are told.
        let result = hand_off(until_told, |job| {
            let runs = thread::spawn(move || job.run());
            wait_for(|| shall_leave(id));
            runs.join().unwrap();
        });
        result.unwrap()
    }
}

impl State for Older {
    fn formats(formats: &mut StateFormats<'_, Older>) {
        formats.export_part(|_| Ok(())).import_part(|_, (): ()| Ok(()));
    }
}

#[test]
fn who_hands_a_call_off_and_who_runs_it_may_both_ask_whether_it_shall_leave() {
    let inside = Arc::new(AtomicBool::new(false));
    let old: Owned<dyn Work> =
        swappable_with(|handle| Older { handle, inside: Arc::clone(&inside) }).unwrap();
    let handle = old.handle();
    let caller = thread::spawn(move || handle.work());
    wait_for(|| inside.load(SeqCst));
    swap_to(handle, Replacement::swappable(Newer::default()));
    assert_eq!(caller.join().unwrap(), 2, "made again on what serves now");
}

// --- in a transfer ---

/// Whether it was in a transfer, and what came of the call.
type Seen = (bool, Result<u32, NotRun>);

struct Importer {
    handle: Handle<dyn Work>,
    seen: Arc<Mutex<Vec<Seen>>>,
    submitted: Arc<AtomicBool>,
}

impl Work for Importer {
    fn work(&self) -> u32 {
        3
    }
}

impl State for Importer {
    fn formats(formats: &mut StateFormats<'_, Importer>) {
        formats.export_part(|_| Ok(())).import_part(|this, (): ()| {
            let handle = this.handle;
            // In the job's thread this would wait for the swap, which would wait for it.
            let result = hand_off(
                move || handle.work(),
                |job| {
                    this.submitted.store(true, SeqCst);
                    thread::spawn(move || job.run());
                },
            );
            this.seen.lock().unwrap().push((in_transfer(), result));
            Ok(())
        });
    }
}

#[test]
fn who_moves_state_hands_nothing_off() {
    let old: Owned<dyn Work> = swappable_with(|_| Newer::default()).unwrap();
    let (seen, submitted) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let importer =
        Importer { handle: old.handle(), seen: Arc::clone(&seen), submitted: Arc::clone(&submitted) };
    swap_to(old.handle(), Replacement::swappable(importer));
    assert_eq!(*seen.lock().unwrap(), [(true, Err(NotRun))]);
    assert!(!submitted.load(SeqCst) && !in_transfer());
    assert_eq!(old.work(), 3);
    assert_eq!(hand_off(|| 4, |job| job.run()), Ok(4), "elsewhere as ever");
}

// --- a wake that panics ---

fn panicked() -> u64 {
    squall::tables::stats().panicked_drops
}

struct Panics(Arc<AtomicU32>);

impl Wrap for Panics {
    fn around<R>(&self, _call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
        Ok(f())
    }
    fn wake(&self) {
        self.0.fetch_add(1, SeqCst);
        panic!("this wake panics")
    }
}

/// Stays in its method until it was woken.
struct Stays {
    inside: Arc<AtomicBool>,
    woken: Arc<AtomicU32>,
}

impl Work for Stays {
    fn work(&self) -> u32 {
        self.inside.store(true, SeqCst);
        wait_for(|| self.woken.load(SeqCst) > 0);
        1
    }
}

impl State for Stays {
    fn formats(formats: &mut StateFormats<'_, Stays>) {
        formats.export_part(|_| Ok(())).import_part(|_, (): ()| Ok(()));
    }
}

#[test]
fn an_object_whose_wake_panics_is_dropped_all_the_same() {
    let _guard = drops_panic();
    let before = panicked();
    let (dropped, woken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let value = Newer { dropped: Some(Arc::clone(&dropped)) };
    let object: Owned<dyn Work> =
        wrapped_swappable(|_| Around::new(Panics(Arc::clone(&woken)), value)).unwrap();
    assert_eq!(object.work(), 2);
    Owned::destroy(object).wait().unwrap();
    assert!(dropped.load(SeqCst));
    assert_eq!((woken.load(SeqCst), panicked() - before), (1, 1));
}

#[test]
fn a_swap_goes_on_though_the_wake_of_what_serves_panics() {
    let _guard = drops_panic();
    let before = panicked();
    let (inside, woken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let value = Stays { inside: Arc::clone(&inside), woken: Arc::clone(&woken) };
    let object: Owned<dyn Work> =
        wrapped_swappable(|_| Around::new(Panics(Arc::clone(&woken)), value)).unwrap();
    let handle = object.handle();
    let caller = thread::spawn(move || handle.work());
    wait_for(|| inside.load(SeqCst));
    swap_to(handle, Replacement::swappable(Newer::default()));
    assert_eq!(caller.join().unwrap(), 1, "it was in the old object to its end");
    assert_eq!(object.work(), 2);
    assert_eq!(panicked() - before, u64::from(woken.load(SeqCst)));
}

struct Sleeper(Arc<AtomicBool>);
struct Part(RepContext<Sleeper>);

impl Work for Part {
    fn work(&self) -> u32 {
        let _ = self.0.sleep_until(|| -> Option<()> { None });
        5
    }
}

impl Root for Sleeper {
    type Interface = dyn Work;
    type Rep = Part;
    fn make_rep(&self, at: RepContext<Sleeper>) -> Part {
        Part(at)
    }
    fn wake(&self) {
        panic!("this wake panics")
    }
    fn formats(_formats: &mut RootFormats<'_, Sleeper>) {}
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_root_whose_wake_panics_is_dropped_and_its_sleepers_have_woken() {
    let _guard = drops_panic();
    let before = panicked();
    let dropped = Arc::new(AtomicBool::new(false));
    let object: Owned<dyn Work> = Sleeper(Arc::clone(&dropped)).create(ClusterSize::Cpu);
    let handle = object.handle();
    let sleeper = thread::spawn(move || handle.try_work().map_err(|error| error.reason()));
    Owned::destroy(object).wait().unwrap();
    assert!(matches!(
        sleeper.join().unwrap(),
        Ok(5) | Err(squall::CallErrorKind::Destroyed | squall::CallErrorKind::NotThere)
    ));
    assert!(dropped.load(SeqCst));
    assert_eq!(panicked() - before, 1);
}
