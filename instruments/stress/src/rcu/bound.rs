//! The bound on pending memory, checked at the end: short threads retire values while a reader stays inside
//! an operation. Each batch beyond the bound must have cost its thread a wait.

use std::sync::mpsc;
use std::thread;

use squall_rcu::{pin, retire, stats};

/// Bytes that may be pending before a thread waits, and bytes that close a batch (README of `squall-rcu`).
const LIMIT: u64 = 16 << 20;
const BATCH: u64 = 256 << 10;
/// Values of [`VALUE`] bytes that each thread retires, and the number of threads.
const VALUES: usize = 100;
const VALUE: usize = 16 << 10;
const THREADS: u64 = 14;

/// Memory that the threads retired, and the most that was pending at once.
#[derive(Clone, Copy, Default)]
pub(super) struct Peak {
    pub(super) retired: u64,
    pub(super) pending: u64,
}

/// Checks the bound. No other thread uses the library, except the reclaimer.
///
/// # Errors
/// Describes the violation.
pub(super) fn check() -> Result<Peak, String> {
    let (inside, entered) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        pin(|_| {
            let _ = inside.send(());
            let _ = ends.recv();
        });
    });
    entered.recv().map_err(|_| "the stalled reader has panicked".to_owned())?;
    let peak = retire_in_threads();
    drop(end);
    reader.join().map_err(|_| "the stalled reader has panicked".to_owned())?;
    peak
}

fn retire_in_threads() -> Result<Peak, String> {
    let before = stats();
    let mut peak = Peak::default();
    for _ in 0..THREADS {
        let short = thread::spawn(|| (0..VALUES).for_each(|_| retire(Box::new([0_u8; VALUE]))));
        short.join().map_err(|_| "a short thread has panicked".to_owned())?;
        let (now, waits) = (stats().pending_bytes, stats().throttled - before.throttled);
        peak.retired += (VALUES * VALUE) as u64;
        peak.pending = peak.pending.max(now);
        let most = LIMIT + (1 + waits) * BATCH;
        if now > most {
            return Err(format!("{now} bytes are pending after {waits} waits, but at most {most} should be"));
        }
    }
    Ok(peak)
}
