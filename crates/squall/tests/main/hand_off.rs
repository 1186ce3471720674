//! Calls that another thread makes for the caller, during swaps; and `wake` functions that panic.

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

/// Swaps with a timeout that a slow machine does not reach.
fn swap_to(handle: Handle<dyn Work>, new: Replacement<dyn Work>) {
    Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(new).unwrap();
}

#[squall::interface]
trait Work: Send + Sync {
    #[blocking]
    fn work(&self) -> u32;
}

/// The replacement of the other implementations.
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

// --- both threads read the caller's frames ---

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
        // The thread of the job and this thread ask at the same time. Both get `true`.
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
fn both_threads_of_a_handed_off_call_may_ask_shall_leave() {
    let inside = Arc::new(AtomicBool::new(false));
    let old: Owned<dyn Work> =
        swappable_with(|handle| Older { handle, inside: Arc::clone(&inside) }).unwrap();
    let handle = old.handle();
    let caller = thread::spawn(move || handle.work());
    wait_for(|| inside.load(SeqCst));
    swap_to(handle, Replacement::swappable(Newer::default()));
    assert_eq!(caller.join().unwrap(), 2, "the call is repeated on the new implementation");
}

// --- in a transfer ---

/// The result of `in_transfer`, and of the call.
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
            // In the thread of the job, the call would wait for the swap, and the swap for the call.
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
fn a_thread_that_moves_state_cannot_hand_off() {
    let old: Owned<dyn Work> = swappable_with(|_| Newer::default()).unwrap();
    let (seen, submitted) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let importer =
        Importer { handle: old.handle(), seen: Arc::clone(&seen), submitted: Arc::clone(&submitted) };
    swap_to(old.handle(), Replacement::swappable(importer));
    assert_eq!(*seen.lock().unwrap(), [(true, Err(NotRun))]);
    assert!(!submitted.load(SeqCst) && !in_transfer());
    assert_eq!(old.work(), 3);
    assert_eq!(hand_off(|| 4, |job| job.run()), Ok(4), "outside a transfer, the call is handed off");
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
        panic!("planned panic of wake")
    }
}

/// Stays in its method until `wake` ran.
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
fn an_object_is_dropped_although_its_wake_panics() {
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
fn a_swap_goes_on_although_wake_panics() {
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
    assert_eq!(caller.join().unwrap(), 1, "the call ended in the old implementation");
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
        panic!("planned panic of wake")
    }
    fn formats(_formats: &mut RootFormats<'_, Sleeper>) {}
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_root_with_a_panicking_wake_is_dropped_and_its_sleepers_wake() {
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
