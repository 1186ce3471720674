//! Tests that stop a thread at a pause point of this crate (`squall_sys::pause`).

// The macro names this crate from outside.
extern crate self as squall_core;

use crate::swap::{Replacement, State, StateFormats, Swap, SwapError};
use crate::{Handle, Owned, swappable};
use squall_rcu::{Marker, MarkerState, barrier, pin, set_reclaimer, stats};
use squall_sys::pause;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[squall_macros::interface(crate = squall_core)]
trait Sum: Send + Sync {
    /// Runs `before` within the call, then adds.
    fn add(&self, n: u64, before: &dyn Fn());
    /// Like `add`, but holds its representative instead of an operation.
    #[blocking]
    fn add_blocking(&self, n: u64, before: &dyn Fn());
    fn total(&self) -> u64;
}

#[derive(Default)]
struct Total(AtomicU64);

impl Sum for Total {
    fn add(&self, n: u64, before: &dyn Fn()) {
        before();
        self.0.fetch_add(n, Ordering::SeqCst);
    }
    fn add_blocking(&self, n: u64, before: &dyn Fn()) {
        before();
        self.0.fetch_add(n, Ordering::SeqCst);
    }
    fn total(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl State for Total {
    fn formats(formats: &mut StateFormats<'_, Total>) {
        formats.export(|this| Ok(this.total())).import(|this, n: u64| {
            this.0.store(n, Ordering::SeqCst);
            Ok(())
        });
    }
}

/// Waits until no other test of this module runs. The reclaimer is off, so that only the tests' threads begin
/// grace periods.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(|poison| poison.into_inner());
    set_reclaimer(false);
    while stats().pending_calls > 0 {
        barrier().unwrap();
    }
    alone
}

/// Swaps the object for a new one. The phase `Block` has no limit that a test could reach.
fn swap(handle: Handle<dyn Sum>) -> Result<(), SwapError> {
    let swap = Swap::new(handle).drain_timeout(Duration::from_secs(3600));
    swap.run(Replacement::swappable(Total::default())).map(drop)
}

/// Returns a function that waits for one message, or for the end of the other side.
fn waits(receiver: Receiver<()>) -> impl Fn() + Send + Sync + 'static {
    let receiver = Mutex::new(receiver);
    move || _ = receiver.lock().unwrap().recv()
}

/// Returns a hook that sends a message at the point.
fn tells(point: &'static str, sender: Sender<()>) -> impl Fn(&'static str) + Send + Sync + 'static {
    move |name| {
        if name == point {
            let _ = sender.send(());
        }
    }
}

/// Ends a swap that should wait for a call. After the swap the call may end, if it waits for that.
fn end_both(
    sum: &Owned<dyn Sum>,
    swapping: JoinHandle<Result<(), SwapError>>,
    end_of_swap: &Sender<()>,
    calling: JoinHandle<()>,
) {
    let swapped = swapping.join().unwrap();
    let _ = end_of_swap.send(());
    calling.join().unwrap();
    swapped.unwrap();
    assert_eq!(sum.total(), 1, "the state moved before the call had ended");
}

/// A call that the mediator counted stops before it takes its hold. Until then the swap must see the count.
#[test]
fn a_swap_waits_for_a_blocking_call_that_is_about_to_take_its_hold() {
    let _alone = alone();
    let sum: Owned<dyn Sum> = swappable(Total::default());
    let handle = sum.handle();
    // A reader keeps the swap in `Forward` until the call has met the mediator.
    let (is_reading, reading) = channel();
    let (end_reading, end) = channel();
    let reader = thread::spawn(move || {
        pin(|_| {
            is_reading.send(()).unwrap();
            waits(end)();
        });
    });
    reading.recv().unwrap();
    let (in_forward, forward) = channel();
    let (in_block, block) = channel();
    let swapping = thread::spawn(move || {
        let (forward, block) = (tells("forward", in_forward), tells("block", in_block));
        let _hooked = pause::hook(move |name| {
            forward(name);
            block(name);
        });
        // The sender of `block` ends with the hook only at the end of the process, so tell the call.
        let swapped = swap(handle);
        pause::point("block");
        swapped
    });
    forward.recv().unwrap();
    let calling = thread::spawn(move || {
        let is_first = AtomicBool::new(true);
        let wait_for_block = waits(block);
        let _hooked = pause::hook(move |name| {
            if name == "hold" && is_first.swap(false, Ordering::SeqCst) {
                end_reading.send(()).unwrap();
                // The swap waits for this call, or it is over.
                wait_for_block();
            }
        });
        handle.add_blocking(1, &|| ());
    });
    calling.join().unwrap();
    swapping.join().unwrap().unwrap();
    reader.join().unwrap();
    assert_eq!(sum.total(), 1, "the state moved before the call had ended");
}

/// A call begins after the swap has decided to attach its mediator, and before it does. The swap must wait
/// for the call, though a grace period began before it.
#[test]
fn a_swap_waits_for_a_call_that_began_just_before_it_attached() {
    let _alone = alone();
    let sum: Owned<dyn Sum> = swappable(Total::default());
    let handle = sum.handle();
    let (begin, may_begin) = channel();
    let (is_inside, inside) = channel();
    let (end, may_end) = channel();
    let (end_of_swap, may_end) = (end.clone(), waits(may_end));
    let calling = thread::spawn(move || {
        waits(may_begin)();
        handle.add(1, &|| {
            is_inside.send(()).unwrap();
            may_end();
        });
    });
    let swapping = thread::spawn(move || {
        let (forward, inside) = (tells("forward", end), waits(inside));
        let _hooked = pause::hook(move |name| {
            forward(name);
            if name == "attach" {
                // Begins a grace period, which this operation keeps open and the call does not.
                assert_eq!(Marker::set().update_and_check(), Ok(MarkerState::Active));
                begin.send(()).unwrap();
                inside();
            }
        });
        swap(handle)
    });
    end_both(&sum, swapping, &end_of_swap, calling);
}

/// A blocking call is inside its method when the swap begins. It is in no operation and not counted.
#[test]
fn a_swap_waits_for_a_blocking_call_with_a_hold() {
    let _alone = alone();
    let sum: Owned<dyn Sum> = swappable(Total::default());
    let handle = sum.handle();
    let (is_inside, inside) = channel();
    let (in_block, block) = channel();
    let end_of_swap = in_block.clone();
    let calling = thread::spawn(move || {
        let wait_for_block = waits(block);
        handle.add_blocking(1, &|| {
            is_inside.send(()).unwrap();
            wait_for_block();
        });
    });
    inside.recv().unwrap();
    let swapping = thread::spawn(move || {
        let _hooked = pause::hook(tells("block", in_block));
        swap(handle)
    });
    end_both(&sum, swapping, &end_of_swap, calling);
}
