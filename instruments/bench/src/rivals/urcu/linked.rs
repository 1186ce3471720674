//! The two flavours behind one set of subjects.
//!
//! - I1. A `Registered` is made and dropped on one thread. Every loop of a flavour runs on a thread that has
//!   one: workers and background readers make theirs first.
//! - I2. A flavour's `qsbr` threads are offline except inside the shim's own loops, so a thread that waits at
//!   a gate holds up no grace period.

use std::ffi::c_void;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use crossbeam_utils::CachePadded;

use crate::case::{Background, Missing, Setting, SliceEnd, Spacing, Subject, Worker};
use crate::work::retire::{SAMPLE_EVERY, Tally};

type Slot = AtomicPtr<c_void>;

/// The functions of one flavour in the shim.
struct Flavour {
    register: unsafe extern "C" fn(),
    unregister: unsafe extern "C" fn(),
    read: unsafe extern "C" fn(*const Slot, u64) -> u64,
    wait: unsafe extern "C" fn(),
    item: unsafe extern "C" fn() -> *mut c_void,
    item_free: unsafe extern "C" fn(*mut c_void),
    item_bytes: extern "C" fn() -> u64,
    retire: unsafe extern "C" fn(*const Slot, *const Slot, u64, u64) -> u64,
    barrier: unsafe extern "C" fn(),
    dropped: fn() -> u64,
}

macro_rules! flavour {
    ($name:ident: $register:ident $unregister:ident $read:ident $wait:ident $item:ident $item_free:ident
        $item_bytes:ident $retire:ident $barrier:ident $dropped:ident) => {
        unsafe extern "C" {
            fn $register();
            fn $unregister();
            fn $read(slot: *const Slot, ops: u64) -> u64;
            fn $wait();
            fn $item() -> *mut c_void;
            fn $item_free(item: *mut c_void);
            safe fn $item_bytes() -> u64;
            fn $retire(own: *const Slot, other: *const Slot, first: u64, ops: u64) -> u64;
            fn $barrier();
            safe fn $dropped() -> u64;
        }
        static $name: Flavour = Flavour {
            register: $register,
            unregister: $unregister,
            read: $read,
            wait: $wait,
            item: $item,
            item_free: $item_free,
            item_bytes: $item_bytes,
            retire: $retire,
            barrier: $barrier,
            dropped: || $dropped(),
        };
    };
}

flavour!(MEMB: squall_memb_register squall_memb_unregister squall_memb_read squall_memb_wait squall_memb_item
    squall_memb_item_free squall_memb_item_bytes squall_memb_retire squall_memb_barrier squall_memb_dropped);
flavour!(QSBR: squall_qsbr_register squall_qsbr_unregister squall_qsbr_read squall_qsbr_wait squall_qsbr_item
    squall_qsbr_item_free squall_qsbr_item_bytes squall_qsbr_retire squall_qsbr_barrier squall_qsbr_dropped);

/// A thread's registration with a flavour.
struct Registered {
    flavour: &'static Flavour,
    /// Not `Send`: the library unregisters the calling thread.
    _here: PhantomData<*const ()>,
}

impl Registered {
    fn new(flavour: &'static Flavour) -> Registered {
        // SAFETY: `register` requires that the thread is not registered with this flavour. Callers make one
        // `Registered` per thread and slice, and drop it before the next.
        unsafe { (flavour.register)() };
        Registered { flavour, _here: PhantomData }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: `unregister` requires a registered thread outside any read section. `new` registered it,
        // this type is not `Send`, and read sections begin and end inside the shim.
        unsafe { (self.flavour.unregister)() };
    }
}

/// A word behind a pointer that readers load.
struct Shared {
    flavour: &'static Flavour,
    cell: CachePadded<Slot>,
}

impl Shared {
    fn new(flavour: &'static Flavour) -> Shared {
        Shared { flavour, cell: CachePadded::new(AtomicPtr::new(Box::into_raw(Box::new(1u64)).cast())) }
    }

    fn read_times(&self, _: &Registered, ops: u64) {
        // SAFETY: `read` requires a registered thread; the argument shows it. The slot must always hold a
        // live word: `new` put it there, and only `drop` takes it out.
        black_box(unsafe { (self.flavour.read)(&raw const *self.cell, ops) });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: from a box by `new`, and by `&mut self` no other thread can load it any more.
        drop(unsafe { Box::from_raw(self.cell.get_mut().cast::<u64>()) });
    }
}

struct Read(Shared);

pub(crate) fn memb_read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read(Shared::new(&MEMB))))
}

pub(crate) fn qsbr_read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read(Shared::new(&QSBR))))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        let here = Registered::new(self.0.flavour);
        Box::new(move |ops| self.0.read_times(&here, ops))
    }
}

struct Wait(Shared, Spacing);

pub(crate) fn memb_wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Wait(Shared::new(&MEMB), setting.spacing())))
}

pub(crate) fn qsbr_wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Wait(Shared::new(&QSBR), setting.spacing())))
}

impl Subject for Wait {
    fn worker(&self, _: usize) -> Worker<'_> {
        // A waiter that never reads needs no registration, and the wait is cheaper without it.
        let wait = self.0.flavour.wait;
        Box::new(move |ops| {
            for _ in 0..ops {
                self.1.before();
                // SAFETY: `wait` must be called outside any read section; read sections are inside the shim
                // only.
                unsafe { wait() };
            }
        })
    }

    fn background(&self, run: &Background) {
        let here = Registered::new(self.0.flavour);
        run.read(|| self.0.read_times(&here, READS_PER_CALL));
    }
}

/// Reads of a background reader between two checks of the stop flag. A multiple of the shim's quiescent
/// interval, so that the qsbr flavour reports as often as in one long loop.
const READS_PER_CALL: u64 = 4096;

struct Retire {
    flavour: &'static Flavour,
    slots: Vec<CachePadded<Slot>>,
    tally: &'static Tally,
}

pub(crate) fn memb_retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    retire(setting, &MEMB)
}

pub(crate) fn qsbr_retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    retire(setting, &QSBR)
}

fn retire(setting: &Setting, flavour: &'static Flavour) -> Result<Box<dyn Subject>, Missing> {
    // SAFETY: `item` has no condition. Its result belongs to the slot until it is retired, or freed by
    // `Retire::drop`.
    let item = || CachePadded::new(AtomicPtr::new(unsafe { (flavour.item)() }));
    let slots = (0..setting.threads).map(|_| item()).collect();
    let bytes = (flavour.item_bytes)();
    Ok(Box::new(Retire {
        flavour,
        slots,
        tally: Tally::counted_elsewhere(setting.threads, bytes, flavour.dropped),
    }))
}

impl Subject for Retire {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let body = Body { here: Registered::new(self.flavour), tally: self.tally };
        let own: *const Slot = &raw const *self.slots[thread];
        let other: *const Slot = &raw const *self.slots[(thread + 1) % self.slots.len()];
        Box::new(move |ops| {
            let mut left = ops;
            while left > 0 {
                let chunk = left.min(SAMPLE_EVERY);
                // SAFETY: `retire` requires a registered thread; `body` shows it. The two slots must always
                // hold an item of the shim's: they are made so, and the shim only exchanges items. Only this
                // thread may write the first: it is the thread's own.
                black_box(unsafe { (body.here.flavour.retire)(own, other, left, chunk) });
                left -= chunk;
                self.tally.publish(thread, chunk);
            }
        })
    }

    fn end_slice(&self, ops: u64) -> SliceEnd {
        self.tally.end_slice(ops)
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        self.tally.check(ops)
    }
}

impl Drop for Retire {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let item = std::mem::replace(slot.get_mut(), ptr::null_mut());
            // SAFETY: `item_free` requires an unused item of the shim's. It was never retired, and by `&mut
            // self` no thread reads it.
            unsafe { (self.flavour.item_free)(item) };
        }
    }
}

/// A worker's registration; its drop runs the callbacks that the worker left.
struct Body {
    here: Registered,
    tally: &'static Tally,
}

impl Drop for Body {
    fn drop(&mut self) {
        let flavour = self.here.flavour;
        // SAFETY: `barrier` must be called outside any read section and outside a callback, as here.
        self.tally.drain(|| unsafe { (flavour.barrier)() });
    }
}
