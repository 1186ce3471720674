//! Operations opened by signal handlers, at any instruction of a registered thread.
//!
//! - I1. The handler acts only on a thread that listens, and a thread listens only while it is registered. In
//!   another thread the first operation would register it, which allocates; a handler must not allocate.
//! - I2. The handler neither allocates nor locks nor panics. It writes its observations to atomics.

mod raw;

use std::cell::Cell;
use std::sync::atomic::Ordering;

use squall_rcu::try_pin;

use super::world::{AGE_FREE, PLACES, World, Wrong};
use crate::skeleton::delay::spin;

pub(super) use raw::send;

thread_local! {
    // Without a destructor or lazy initialization, so that a handler may read it at any time.
    static LISTENS: Cell<Option<&'static World>> = const { Cell::new(None) };
}

/// Lets the calling thread handle signals, or stops that (I1).
pub(super) fn listen(world: Option<&'static World>) {
    LISTENS.set(world);
}

/// Installs the handler in this process.
///
/// # Errors
/// The system refuses the handler.
pub(super) fn install() -> std::io::Result<()> {
    raw::install()
}

/// Handles a signal (I2).
fn handle() {
    let Some(world) = LISTENS.get() else { return };
    let count = world.handled.fetch_add(1, Ordering::Relaxed);
    let outer = |depth: u64| {
        try_pin(|o| {
            let held = world.take(Some(o), (count % PLACES as u64) as usize);
            spin(count % 64);
            let nested = try_pin(|_| world.examine(&held));
            spin(depth + count % 16);
            nested.map(|first| first.and_then(|_| world.examine(&held)))
        })
    };
    for depth in 0..1 + count % 3 {
        match outer(depth) {
            Ok(Ok(Ok(_))) => {}
            Ok(Ok(Err(wrong))) => {
                let code = match wrong {
                    Wrong::Aged(age) => u64::from(age),
                    Wrong::Reused => u64::from(AGE_FREE) + 1,
                    Wrong::Torn => u64::from(AGE_FREE) + 2,
                };
                world.handler_saw.store(code, Ordering::Relaxed);
            }
            Ok(Err(_)) | Err(_) => {
                world.handled_refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Checks the observations of the handlers.
///
/// # Errors
/// A handler saw a block that breaks the rules.
pub(super) fn check(world: &World) -> Result<(), String> {
    let code = world.handler_saw.load(Ordering::Relaxed);
    let free = u64::from(AGE_FREE);
    match code {
        0 => Ok(()),
        age if age <= free => Err(format!("a signal handler saw a block at age {age} inside its operation")),
        code if code == free + 1 => {
            Err("a signal handler's block was reused inside its operation".to_owned())
        }
        _ => Err("a signal handler's block has words of different writes".to_owned()),
    }
}
