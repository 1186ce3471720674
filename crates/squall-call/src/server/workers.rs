//! The threads that serve calls.
//!
//! Problem: a call should be served on its caller's processor, by a thread that waits there already. Threads
//! must not pile up, a caller that keeps many must not take them from others, and a call must be served even
//! where no thread can be started.
//! Idea: a worker stays in the slot of its last call for a while, then waits in a pool for its processor, and
//! ends when it is idle for long. One thread is reserved: it serves the calls for which no worker exists.
//!
//! - I1. A slot whose desk was taken is in exactly one place: a worker has it, or the list of waiting slots.
//! - I2. A waiting slot is served: by the next worker that becomes free, or by the reserved one.
//! - I3. A connection has at most as many workers as its export allows. Its other slots wait.
//!
//! Source: Gamsa et al. 1999, §6.1 (TO-16, TO-17); Unrau et al. 1995, §4.2 (HU-11).

use squall_sys::affinity;
use squall_sys::sync::atomic::Ordering;
use squall_machine::Vp;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, OnceLock, StdArc as Arc, lock, thread};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::client::Client;
use crate::codec::{Reader, Writer};
use crate::layout::{BULK_BYTES, REGION_SLOTS};
use crate::segment::Slot;
use crate::sleep::{self, Kernel};
use crate::slot::{self, Arrived, Left, Number, Service, Sleep, Words};
use crate::status;

/// Time after which a worker without work ends.
const END: Duration = Duration::from_secs(1);
/// Largest number of workers of the process.
const LIMIT: usize = 1024;

/// A slot that needs a worker.
#[derive(Clone)]
struct Job {
    client: Arc<Client>,
    slot: u32,
    /// The processor on which it is to be served, if it matters.
    processor: Option<usize>,
}

/// A worker that waits for work.
struct Idle {
    processor: Option<usize>,
    job: Mutex<Option<Job>>,
    given: Condvar,
}

/// The workers of this process. The counts of workers of each client change under its lock, too.
#[derive(Default)]
struct Pool {
    idle: Vec<Arc<Idle>>,
    waiting: VecDeque<Job>,
    workers: usize,
    /// Whether the reserved worker was started.
    reserved: bool,
}

static POOL: OnceLock<Mutex<Pool>> = OnceLock::new();
/// Wakes the reserved worker.
static RESERVE: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    lock(POOL.get_or_init(Mutex::default), "the pool of workers")
}

/// Starts the reserved worker.
///
/// # Errors
/// The system can start no thread.
pub(super) fn reserve() -> std::io::Result<()> {
    let mut pool = pool();
    if !pool.reserved {
        thread::Builder::new().name("squall-call-all".into()).spawn(serve_as_reserve)?;
        pool.reserved = true;
    }
    Ok(())
}

/// Number of workers, without the reserved one; and how many of them wait for work.
pub(crate) fn count() -> (usize, usize) {
    let pool = pool();
    (pool.workers, pool.idle.len())
}

/// Sends a worker to a slot, unless one is there.
pub(super) fn send(client: &Arc<Client>, slot: u32) {
    if client.desk(slot).ask() {
        place(Job { client: client.clone(), slot, processor: processor_for(client, slot) });
    }
}

/// The processor on which a slot's calls are to be served, if this process may run there. In a virtual topology
/// it is a virtual one.
fn processor_for(client: &Client, slot: u32) -> Option<usize> {
    let machine = squall_machine::machine();
    if machine.is_virtual() {
        // The caller's virtual processor, as far as this process has one of that number.
        let region = slot / REGION_SLOTS;
        return machine.vps().contains(Vp::new(region)).then_some(region as usize);
    }
    let wanted = match &client.exported.settings.processors {
        None => client.segment().slot(slot).caller_cpu(),
        Some(processors) => processors.get(slot as usize % processors.len().max(1)).copied(),
    };
    let vp = u32::try_from(wanted?).ok()?;
    machine.allowance().usable().contains(Vp::new(vp)).then_some(wanted?)
}

/// Gives a job to a worker, or lets it wait.
fn place(job: Job) {
    let mut pool = pool();
    if !job.client.may_have_worker() {
        job.client.wanted.fetch_add(1, Ordering::Relaxed);
        let client = job.client.clone();
        pool.waiting.push_back(job);
        drop(pool);
        // Workers that wait for calls of this client leave, and take the waiting slot.
        client.wake_workers();
        return;
    }
    job.client.workers.fetch_add(1, Ordering::Relaxed);
    if let Some(at) = pool.idle.iter().position(|idle| idle.processor == job.processor) {
        pool.idle.swap_remove(at).give(job);
        return;
    }
    if pool.workers < LIMIT {
        let name = job.processor.map_or("squall-call-any".into(), |processor| format!("squall-call-{processor}"));
        let given = job.clone();
        if thread::Builder::new().name(name).spawn(move || work(given)).is_ok() {
            pool.workers += 1;
            return;
        }
    }
    if let Some(idle) = pool.idle.pop() {
        idle.give(job);
        return;
    }
    job.client.workers.fetch_sub(1, Ordering::Relaxed);
    job.client.wanted.fetch_add(1, Ordering::Relaxed);
    pool.waiting.push_back(job);
    RESERVE.notify_one();
}

impl Pool {
    /// Takes a waiting slot whose client may have another worker.
    fn next(&mut self) -> Option<Job> {
        let at = self.waiting.iter().position(|job| job.client.may_have_worker())?;
        let job = self.waiting.remove(at)?;
        job.client.workers.fetch_add(1, Ordering::Relaxed);
        job.client.wanted.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }
}

impl Idle {
    fn give(&self, job: Job) {
        *lock(&self.job, "the work of an idle worker") = Some(job);
        self.given.notify_one();
    }
}

/// The body of a worker.
fn work(first: Job) {
    let mut place = Place::default();
    let mut next = Some(first);
    let mut buffer = vec![0; BULK_BYTES].into_boxed_slice();
    while let Some(job) = next {
        place.go_to(job.processor);
        serve(&job, &mut buffer, false);
        next = after(job);
    }
}

/// Ends a job. Returns the next one, or `None` if the worker ends.
fn after(job: Job) -> Option<Job> {
    let processor = job.processor;
    let (idle, limit) = {
        let mut pool = pool();
        job.client.workers.fetch_sub(1, Ordering::Relaxed);
        if let Some(next) = pool.next() {
            return Some(next);
        }
        let idle = Arc::new(Idle { processor, job: Mutex::new(None), given: Condvar::new() });
        pool.idle.push(idle.clone());
        (idle, Instant::now() + END)
    };
    // The last owner of a client drops its values here, outside every lock. A panic ends the value alone.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(job)));
    let mut given = lock(&idle.job, "the work of an idle worker");
    loop {
        if let Some(job) = given.take() {
            return Some(job);
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        given = match idle.given.wait_timeout(given, left) {
            Ok((given, _)) => given,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    drop(given);
    let mut pool = pool();
    match pool.idle.iter().position(|other| Arc::ptr_eq(other, &idle)) {
        Some(at) => {
            pool.idle.swap_remove(at);
            pool.workers -= 1;
            None
        }
        // Work was given meanwhile.
        None => lock(&idle.job, "the work of an idle worker").take(),
    }
}

/// The body of the reserved worker: it serves one call of a waiting slot, and leaves.
fn serve_as_reserve() {
    let mut buffer = vec![0; BULK_BYTES].into_boxed_slice();
    loop {
        let job = {
            let mut pool = pool();
            loop {
                if let Some(job) = pool.next() {
                    break job;
                }
                pool = RESERVE.wait(pool).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        };
        serve(&job, &mut buffer, true);
        let guard = pool();
        job.client.workers.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
    }
}

/// Where a worker runs.
#[derive(Default)]
struct Place {
    pinned: Option<usize>,
    /// The processors that it may use if none is wanted.
    all: Option<Vec<usize>>,
}

impl Place {
    fn go_to(&mut self, processor: Option<usize>) {
        if self.pinned == processor {
            return;
        }
        if squall_machine::machine().is_virtual() {
            if let Some(vp) = processor.and_then(|processor| u32::try_from(processor).ok())
                && Vp::assign_current(Vp::new(vp)).is_ok()
            {
                self.pinned = processor;
            }
            return;
        }
        if self.all.is_none() {
            self.all = affinity::allowed().ok();
        }
        let moved = match (processor, &self.all) {
            (Some(processor), _) => affinity::restrict_to(&[processor]),
            (None, Some(all)) => affinity::restrict_to(all),
            (None, None) => return,
        };
        // Where the kernel refuses, the worker serves from where it is.
        if moved.is_ok() {
            self.pinned = processor;
        }
    }
}

std::thread_local! {
    /// The client whose call this thread serves.
    static CALLER: RefCell<Option<Arc<Client>>> = const { RefCell::new(None) };
}

/// The client whose call this thread serves.
pub(crate) fn caller() -> Option<Arc<Client>> {
    CALLER.with(|caller| caller.borrow().clone())
}

fn serve(job: &Job, buffer: &mut [u8], once: bool) {
    CALLER.with(|caller| *caller.borrow_mut() = Some(job.client.clone()));
    let slot = job.client.segment().slot(job.slot);
    let work = Work { client: &job.client, slot, buffer: RefCell::new(buffer), served: Cell::new(false), once };
    slot.set_worker_cpu(affinity::current_cpu());
    if slot::serve(slot.words(), job.client.desk(job.slot), &work) == Left::Broken {
        job.client.end();
    }
    CALLER.with(|caller| *caller.borrow_mut() = None);
}

/// The service of one slot.
struct Work<'a> {
    client: &'a Client,
    slot: Slot<'a>,
    /// The private copy of the arguments.
    buffer: RefCell<&'a mut [u8]>,
    served: Cell<bool>,
    /// Whether the worker leaves after its first call.
    once: bool,
}

impl Work<'_> {
    /// Makes the call; returns the code and the length of the result.
    fn execute(&self) -> (u32, u32) {
        let head = self.slot.head();
        let exported = &self.client.exported;
        if !exported.is_open() || !exported.is(head.object) {
            return (status::NO_SUCH_OBJECT, 0);
        }
        if !self.client.is_connected() {
            return (status::PEER_GONE, 0);
        }
        if head.method >= u64::BITS || self.client.rights() >> head.method & 1 == 0 {
            return (status::DENIED, 0);
        }
        let mut buffer = self.buffer.borrow_mut();
        let Some(bytes) = self.slot.data(head.length, &mut buffer) else { return (status::MALFORMED, 0) };
        let mut sink = self.slot.sink();
        // The method's own state is its business; a panic ends this call alone.
        let served = catch_unwind(AssertUnwindSafe(|| {
            exported.serve(head.method, &mut Reader::new(bytes), &mut Writer::new(&mut sink))
        }));
        match served {
            Ok(Ok(())) => (status::DONE, sink.written()),
            Ok(Err(unserved)) => (status::code_of(&unserved), 0),
            Err(payload) => {
                // The drop of the payload may panic, too.
                if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                    std::mem::forget(again);
                }
                (status::PANICKED, 0)
            }
        }
    }
}

impl Service for Work<'_> {
    fn run(&self) {
        let (code, length) = self.execute();
        self.served.set(true);
        self.slot.set_status(code, length);
        self.slot.set_worker_cpu(affinity::current_cpu());
    }

    fn wait(&self, words: Words<'_>, last: Number) -> bool {
        if (self.once && self.served.get()) || self.client.wanted.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let settings = &self.client.exported.settings;
        let time = sleep::spin_for(self.slot.caller_cpu(), settings.spin);
        if sleep::spin(time, || words.arrived(last) != Arrived::Nothing) {
            return true;
        }
        let start = Instant::now();
        words.sleep_for_call(last, Some(settings.idle), &Kernel);
        start.elapsed() < settings.idle
    }

    fn is_over(&self) -> bool {
        !self.client.is_connected()
    }

    fn sleep(&self) -> &impl Sleep {
        &Kernel
    }
}
