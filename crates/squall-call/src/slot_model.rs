//! Models of a slot, and their twins with one weakened site.

use super::*;
use squall_sys::sync::{Arc, Condvar, Mutex, thread};

/// Sleeping as in the kernel: comparing and sleeping are one step against a wake.
struct Kernel {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Kernel {
    fn new() -> Kernel {
        Kernel { lock: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Sleep for Kernel {
    fn sleep(&self, word: &AtomicU32, expected: u32, _limit: Option<Duration>) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.lock.lock().unwrap());
        self.woken.notify_all();
    }
}

/// A slot, its desk, and the data of the call.
struct Slot {
    call: AtomicU32,
    reply: AtomicU32,
    argument: AtomicU32,
    result: AtomicU32,
    desk: Desk,
    /// Number of workers in the slot.
    workers: AtomicU32,
    callers: Kernel,
    worker: Kernel,
}

impl Slot {
    fn new() -> Arc<Slot> {
        Arc::new(Slot {
            call: AtomicU32::new(NEW),
            reply: AtomicU32::new(0),
            argument: AtomicU32::new(0),
            result: AtomicU32::new(0),
            desk: Desk::new(),
            workers: AtomicU32::new(0),
            callers: Kernel::new(),
            worker: Kernel::new(),
        })
    }

    fn words(&self) -> Words<'_> {
        Words { call: &self.call, reply: &self.reply }
    }

    /// A caller's call, which asks for a worker by `ask` if none is there.
    fn call(&self, number: Number, argument: u32, ask: impl FnOnce()) -> u32 {
        self.argument.store(argument, Ordering::Relaxed);
        if self.words().issue(number, &self.worker) == Issued::Absent {
            ask();
        }
        while !self.words().answered(number) {
            self.words().sleep_for_answer(number, None, &self.callers);
        }
        self.result.load(Ordering::Relaxed)
    }

    /// A worker that has taken the slot. It leaves when it has slept once, or without sleep.
    fn work(&self, sleeps: bool) {
        assert_eq!(self.workers.fetch_add(1, Ordering::Relaxed), 0, "two workers in a slot");
        let left = serve(self.words(), &self.desk, &Work { slot: self, sleeps });
        assert_eq!(left, Left::Idle);
    }
}

struct Work<'a> {
    slot: &'a Slot,
    sleeps: bool,
}

impl Service for Work<'_> {
    fn run(&self) {
        let argument = self.slot.argument.load(Ordering::Relaxed);
        self.slot.result.store(argument + 1, Ordering::Relaxed);
    }

    fn wait(&self, words: Words<'_>, last: Number) -> bool {
        if self.sleeps && last == Number::FIRST {
            words.sleep_for_call(last, None, &self.slot.worker);
        }
        // The worker's count ends before the desk is free for the next one.
        self.slot.workers.store(0, Ordering::Relaxed);
        false
    }

    fn is_over(&self) -> bool {
        false
    }

    fn sleep(&self) -> &impl Sleep {
        &self.slot.callers
    }
}

/// A worker waits in the slot. A caller calls, and neither sleeps for ever.
fn hand_off() {
    let slot = Slot::new();
    assert!(slot.desk.ask());
    let worker = {
        let slot = slot.clone();
        thread::spawn(move || slot.work(true))
    };
    let ask = || {
        if slot.desk.ask() {
            slot.work(false);
        }
    };
    let result = slot.call(Number::FIRST.next(), 6, ask);
    assert_eq!(result, 7);
    worker.join().unwrap();
}

/// A worker is about to leave. A caller calls, and asks for a worker if it must.
fn leaves() {
    let slot = Slot::new();
    assert!(slot.desk.ask());
    // As after a call: the caller knows that a worker is there.
    slot.call.store(0, Ordering::Relaxed);
    let worker = {
        let slot = slot.clone();
        thread::spawn(move || slot.work(false))
    };
    let ask = || {
        if slot.desk.ask() {
            slot.work(false);
        }
    };
    let result = slot.call(Number::FIRST.next(), 6, ask);
    assert_eq!(result, 7);
    worker.join().unwrap();
    assert!(!slot.desk.is_taken());
}

/// A worker serves a call and leaves. The next worker knows which call is next.
fn follows() {
    let slot = Slot::new();
    slot.desk.ask();
    slot.words().issue(Number::FIRST.next(), &slot.worker);
    let worker = {
        let slot = slot.clone();
        thread::spawn(move || slot.work(false))
    };
    if slot.desk.ask() {
        let last = slot.desk.last();
        assert_eq!(last, Number::FIRST.next(), "the next worker does not know the last call");
        slot.work(false);
    }
    worker.join().unwrap();
}

macro_rules! models {
    ($($model:ident: $($site:ident),*;)*) => {$(
        mod $model {
            #[test]
            fn holds() {
                #[cfg(loom)]
                squall_sys::sync::weaken::check(super::$model);
                #[cfg(not(loom))]
                super::$model();
            }

            #[cfg(loom)]
            #[test]
            fn fails_when_weakened() {
                let test = concat!("slot::model::", stringify!($model), "::holds");
                $(squall_sys::sync::weaken::twin(super::sites::$site, &[], test);)*
            }
        }
    )*};
}

models! {
    hand_off: ISSUE, ARGUMENTS, ANSWER, RESULT, WORKER_FLAG, CALLER_FLAG;
    leaves: ABSENT_FLAG, AGAIN;
    follows: LEAVE;
}

#[test]
fn a_number_wraps_and_never_touches_the_flags() {
    let largest = Number::from(u32::MAX);
    assert_eq!(largest.word() & FLAGS, 0);
    assert_eq!(largest.next(), Number::FIRST);
    assert_eq!(Number::of(largest.word() | FLAGS), largest);
}

#[cfg(not(loom))]
#[test]
fn a_caller_that_writes_any_number_harms_its_own_slot_only() {
    let slot = Slot::new();
    assert!(slot.desk.ask());
    slot.call.store(77 << 2, Ordering::Relaxed);
    assert_eq!(serve(slot.words(), &slot.desk, &Work { slot: &slot, sleeps: false }), Left::Broken);
    assert!(!slot.desk.is_taken());
    assert_eq!(slot.reply.load(Ordering::Relaxed), 0);
}
