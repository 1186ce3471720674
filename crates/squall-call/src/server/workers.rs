//! The threads that serve calls.
//!
//! Problem: a call should be served on its caller's processor, by a thread that waits there already. Threads
//! must not pile up, a caller that keeps many must not take them from others, and a call must be served even
//! where no thread can be started.
//!
//! Idea: a worker stays in the slot of its last call for a while, then waits in a pool for its processor, and
//! ends when it is idle for long. One thread is reserved. It serves single calls if no thread can be started.
//! While it serves one, further calls are answered with *busy* at once, and their callers try again.
//!
//! - I1. A slot with a taken desk is in exactly one place: a worker has it, or it waits in its client's
//!   share.
//! - I2. A slot waits only for the share of its client or its user (`users`), so while workers of that user
//!   run; or for any worker, if more users than the reserve has workers have taken all. Each of them that
//!   leaves looks for waiting slots. A client with waiting slots is in the pool's list.
//! - I3. A client has at most as many workers as its export allows, and four times as many for calls that
//!   come out of calls. Its other slots wait. A call that comes out of a call never waits for a share: the
//!   calls that have the share may be those that wait for it. It is answered with *busy*.
//! - I4. Values of a client are dropped by a thread of their own, or by a worker before it counts as idle.
//!
//! Locks: the pool, then a client's share.
//!
//! Source: Gamsa et al. 1999, §6.1 (TO-16, TO-17); Unrau et al. 1995, §4.2 (HU-11).

use squall_machine::Vp;
use squall_sys::affinity;
use squall_sys::panics::{drop_payload, end_panic};
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Condvar, Mutex, MutexGuard, OnceLock, StdArc as Arc, lock, thread};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::client::{Client, Values, own_user};
use super::exported::Exported;
use super::users::{User, Users, Workers};
use crate::aside::on_thread;
use crate::codec::{Reader, Writer};
use crate::layout::{BULK_BYTES, REGION_SLOTS};
use crate::segment::Slot;
use crate::serving::Serving;
use crate::share::Share;
use crate::sleep::{self, Kernel};
use crate::slot::{self, Desk, Next, Seen, Service, Sleep, Words};
use crate::status;

/// Time after which a worker without work ends.
const END: Duration = Duration::from_secs(1);
/// Largest number of workers of the process.
const LIMIT: usize = 1024;
/// Workers of a client for calls that come out of calls, per worker for others (I3).
const NESTED_SHARE: usize = 4;

/// A slot that needs a worker.
#[derive(Clone)]
struct Job {
    client: Arc<Client>,
    slot: u32,
    /// The VP on which to serve the slot, if there is a preferred one.
    vp: Option<Vp>,
}

/// A worker that waits for work.
struct Idle {
    vp: Option<Vp>,
    job: Mutex<Option<Job>>,
    given: Condvar,
}

/// The workers of this process.
struct Pool {
    idle: Vec<Arc<Idle>>,
    /// Clients with waiting slots, the next one first.
    waiting: VecDeque<Arc<Client>>,
    workers: usize,
    users: Users,
    /// Whether the reserved worker was started.
    reserved: bool,
    /// Whether the reserved worker serves a call, or is about to.
    reserve_works: bool,
    /// The job for the reserved worker.
    for_reserve: Option<Job>,
    /// Values of ended clients that no thread could be started for. Workers drop them.
    retired: Vec<Values>,
}

static POOL: OnceLock<Mutex<Pool>> = OnceLock::new();
/// Wakes the reserved worker.
static RESERVE: Condvar = Condvar::new();
/// Whether a call found no thread. Workers leave their slots early then.
/// Changed with the pool locked.
static STARVED: AtomicBool = AtomicBool::new(false);

fn pool() -> MutexGuard<'static, Pool> {
    let new = || {
        Mutex::new(Pool {
            idle: Vec::new(),
            waiting: VecDeque::new(),
            workers: 0,
            users: Users::new(LIMIT),
            reserved: false,
            reserve_works: false,
            for_reserve: None,
            retired: Vec::new(),
        })
    };
    lock(POOL.get_or_init(new), "the pool of workers")
}

/// The workers of a user, for a new connection.
pub(super) fn of_user(user: User) -> Arc<Workers> {
    pool().users.get(user)
}

fn share(client: &Client) -> MutexGuard<'_, Share> {
    lock(&client.share, "the workers of a client")
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
        place(Job { client: client.clone(), slot, vp: vp_for(client, slot) });
    } else if client.wanted.load(Ordering::Relaxed) != 0 && client.segment().slot(slot).is_nested() {
        // The slot may wait for a worker, and now has a call that must not wait (I3).
        let is_waiting = {
            let _pool = pool();
            let mut share = share(client);
            let is_waiting = share.end_wait(slot);
            client.wanted.fetch_sub(usize::from(is_waiting), Ordering::Relaxed);
            is_waiting
        };
        if is_waiting {
            place(Job { client: client.clone(), slot, vp: vp_for(client, slot) });
        }
    }
}

/// Returns the VP on which to serve a slot's calls, if this process may run there.
fn vp_for(client: &Client, slot: u32) -> Option<Vp> {
    let machine = squall_machine::machine();
    if machine.is_virtual() {
        // The caller's VP, as far as this process has one of that number.
        return Some(Vp::new(slot / REGION_SLOTS)).filter(|vp| machine.vps().contains(*vp));
    }
    let wanted = match &client.exported.settings.processors {
        Some(processors) => Some(processors[slot as usize % processors.len()]),
        // Another user does not choose where threads of this process run.
        None if client.peer.is_some_and(|peer| peer.uid != own_user()) => None,
        None => client.segment().slot(slot).caller_cpu(),
    };
    let vp = Vp::new(u32::try_from(wanted?).ok()?);
    machine.allowance().usable().contains(vp).then_some(vp)
}

/// Whether one more worker may serve the client in this slot, as far as the client's share goes (I3).
fn may_have_worker(client: &Client, share: &Share, slot: u32) -> bool {
    let own = client.exported.settings.workers;
    let nested = client.segment().slot(slot).is_nested();
    share.served().len() < if nested { own.saturating_mul(NESTED_SHARE) } else { own }
}

/// Gives a job to a worker, or lets it wait.
fn place(job: Job) {
    let mut pool = pool();
    let mut share = share(&job.client);
    if share.has_ended() {
        return;
    }
    if let Err(short) = pool.admit(&job.client, &mut share, job.slot) {
        drop(share);
        if job.client.segment().slot(job.slot).is_nested() {
            drop(pool);
            refuse(&job);
            return;
        }
        let is_first_of_client = pool.wait(&job);
        let is_first_of_user = short == Short::User && pool.users.want(&job.client.workers);
        drop(pool);
        // Workers that wait for calls leave, and take the waiting slot. They were told already if other slots
        // wait.
        if is_first_of_user {
            Exported::all().iter().flat_map(|exported| exported.clients()).for_each(|client| {
                if Arc::ptr_eq(&client.workers, &job.client.workers) {
                    make_look(&client);
                }
            });
        } else if is_first_of_client {
            make_look(&job.client);
        }
        return;
    }
    drop(share);
    if let Some(job) = pool.start(job) {
        starve(pool, &job);
        start_waiting();
    }
}

/// Gives workers to the waiting slots that may have one.
fn start_waiting() {
    loop {
        let mut pool = pool();
        let Some(job) = pool.next() else { return };
        if let Some(job) = pool.start(job) {
            starve(pool, &job);
        }
    }
}

/// No thread can be started for a job, and all are in use. The reserved worker serves it, if it is free. Else
/// its call is refused.
#[cold]
fn starve(mut pool: MutexGuard<'_, Pool>, job: &Job) {
    // Relaxed: workers look at it when they would sleep.
    STARVED.store(true, Ordering::Relaxed);
    if pool.reserve_works {
        drop(pool);
        refuse(job);
        drop(leave(job));
        return;
    }
    pool.reserve_works = true;
    pool.for_reserve = Some(job.clone());
    RESERVE.notify_one();
}

/// Answers the call of a slot with *busy*, and leaves the slot.
#[cold]
fn refuse(job: &Job) {
    let slot = job.client.segment().slot(job.slot);
    let answer = || slot.set_status(status::BUSY, 0);
    if !slot::refuse(slot.words(), job.client.desk(job.slot), answer, &Kernel) {
        // A hostile caller changes the slot all the time.
        job.client.end();
    }
}

/// Lets the workers of a client look at the server's state.
fn make_look(client: &Client) {
    let served = share(client).served().to_vec();
    for slot in served {
        client.segment().slot(slot).words().make_look(&Kernel);
    }
}

/// The share that has no room for one more worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    Client,
    User,
}

impl Pool {
    /// Gives a job to an idle worker, or to a new one; returns it if both are missing.
    fn start(&mut self, job: Job) -> Option<Job> {
        if let Some(at) = self.idle.iter().position(|idle| idle.vp == job.vp) {
            self.idle.swap_remove(at).give(job);
            return None;
        }
        if self.workers < LIMIT {
            let name = job.vp.map_or("squall-call-any".into(), |vp| format!("squall-call-{}", vp.index()));
            let given = job.clone();
            if thread::Builder::new().name(name).spawn(move || work(given)).is_ok() {
                self.workers += 1;
                return None;
            }
        }
        match self.idle.pop() {
            Some(idle) => {
                idle.give(job);
                None
            }
            None => Some(job),
        }
    }

    /// Counts one more worker for the client in this slot, if its share and its user's allow it.
    fn admit(&mut self, client: &Client, share: &mut Share, slot: u32) -> Result<(), Short> {
        if !may_have_worker(client, share, slot) {
            return Err(Short::Client);
        }
        if !self.users.may_have_more(&client.workers) {
            return Err(Short::User);
        }
        share.admit(slot);
        self.users.add(&client.workers);
        Ok(())
    }

    /// Lets a slot wait (I2). Returns whether no other slot of the client does.
    fn wait(&mut self, job: &Job) -> bool {
        let mut share = share(&job.client);
        share.wait(job.slot);
        // Relaxed: changed with the pool locked, and `make_look` tells the workers (`slot/I5`).
        let is_first = job.client.wanted.fetch_add(1, Ordering::Relaxed) == 0;
        if !share.is_listed {
            share.is_listed = true;
            self.waiting.push_back(job.client.clone());
        }
        is_first
    }

    /// Takes a waiting slot of the first client that may have another worker. The clients take turns.
    fn next(&mut self) -> Option<Job> {
        let mut wanting = Vec::new();
        for _ in 0..self.waiting.len() {
            let client = self.waiting.pop_front()?;
            let mut share = share(&client);
            let Some(slot) = share.first_waiting() else {
                share.is_listed = false;
                continue;
            };
            let admitted = self.admit(&client, &mut share, slot);
            if admitted == Err(Short::User) {
                wanting.push(client.workers.clone());
            }
            let may = admitted.is_ok();
            if may {
                share.end_wait(slot);
                client.wanted.fetch_sub(1, Ordering::Relaxed);
            }
            let more = share.has_waiting();
            share.is_listed = more;
            drop(share);
            if more {
                self.waiting.push_back(client.clone());
            }
            if may {
                let vp = vp_for(&client, slot);
                return Some(Job { client, slot, vp });
            }
        }
        self.users.want_only(&wanting);
        // Relaxed: as in `starve`. The slots that wait now wait for shares.
        STARVED.store(false, Ordering::Relaxed);
        None
    }
}

impl Idle {
    fn give(&self, job: Job) {
        *lock(&self.job, "the work of an idle worker") = Some(job);
        self.given.notify_one();
    }
}

/// The connection of a client has ended. Its workers leave, and the last one retires its values. Returns
/// whether all have left. To be called again until then, since the peer may change words without a wake-up.
pub(super) fn end(client: &Client) -> bool {
    let pool = pool();
    let served = share(client).end();
    if served.is_empty() {
        retire(pool, client.take_values());
        return true;
    }
    drop(pool);
    served.iter().for_each(|slot| client.segment().slot(*slot).words().rouse(&Kernel));
    false
}

/// Wakes the workers that have served no call since the last tick. They leave.
pub(super) fn tick(client: &Client) {
    let served = share(client).served().to_vec();
    for slot in served.into_iter().filter(|slot| client.desk(*slot).tick()) {
        client.segment().slot(slot).words().rouse(&Kernel);
    }
}

/// Whether workers of the client may become idle.
pub(super) fn needs_ticks(client: &Client) -> bool {
    let share = share(client);
    !share.served().is_empty() || share.has_waiting()
}

/// Drops the values of an ended client on a thread of their own (I4).
fn retire(mut pool: MutexGuard<'_, Pool>, values: Values) {
    if values.is_empty() {
        return;
    }
    let mut all = std::mem::take(&mut pool.retired);
    drop(pool);
    all.push(values);
    if let Err(all) = on_thread("squall-call-end", all, drop_each) {
        self::pool().retired.extend(all);
    }
}

/// Drops the values of ended clients. A panic of a drop ends that value alone.
fn drop_each(all: Vec<Values>) {
    all.into_iter().flatten().for_each(|value| end_panic(|| drop(value)));
}

/// The body of a worker.
fn work(first: Job) {
    let mut place = Place::default();
    let mut next = Some(first);
    let mut buffer = vec![0; BULK_BYTES].into_boxed_slice();
    while let Some(job) = next {
        place.go_to(job.vp);
        serve(&job, &mut buffer, false);
        next = after(job);
    }
}

/// The worker has left the slot of this job. Returns the next job, or `None` if the worker ends.
fn after(job: Job) -> Option<Job> {
    let mut pool = leave(&job);
    let retired = std::mem::take(&mut pool.retired);
    if !retired.is_empty() {
        drop(pool);
        drop_each(retired);
        pool = self::pool();
    }
    if let Some(next) = pool.next() {
        let more = !pool.waiting.is_empty();
        drop(pool);
        if more {
            // The share of one user depends on the workers of all.
            start_waiting();
        }
        return Some(next);
    }
    let idle = Arc::new(Idle { vp: job.vp, job: Mutex::new(None), given: Condvar::new() });
    pool.idle.push(idle.clone());
    drop(pool);
    drop(job);
    idle.wait()
}

impl Idle {
    /// Waits for work for a while. Returns `None` at the end of that time: then the worker counts no more.
    fn wait(self: Arc<Idle>) -> Option<Job> {
        let limit = Instant::now() + END;
        let mut given = lock(&self.job, "the work of an idle worker");
        loop {
            if let Some(job) = given.take() {
                return Some(job);
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            given = match self.given.wait_timeout(given, left) {
                Ok((given, _)) => given,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        drop(given);
        let mut pool = pool();
        match pool.idle.iter().position(|other| Arc::ptr_eq(other, &self)) {
            Some(at) => {
                pool.idle.swap_remove(at);
                pool.workers -= 1;
                None
            }
            // Work was given meanwhile.
            None => lock(&self.job, "the work of an idle worker").take(),
        }
    }
}

/// Takes the slot of a job from its client's share. The last worker of an ended client retires its values.
fn leave(job: &Job) -> MutexGuard<'static, Pool> {
    let mut pool_of = pool();
    let is_last = share(&job.client).leave(job.slot);
    pool_of.users.remove(&job.client.workers);
    if is_last {
        retire(pool_of, job.client.take_values());
        return pool();
    }
    pool_of
}

/// The body of the reserved worker: it serves single calls for which no thread can be started.
fn serve_as_reserve() {
    let mut buffer = vec![0; BULK_BYTES].into_boxed_slice();
    loop {
        let job = wait_as_reserve();
        // Slots that could begin do not wait for this call.
        start_waiting();
        if serve(&job, &mut buffer, true) {
            // The next call of this slot has come.
            refuse(&job);
        }
        drop(leave(&job));
        start_waiting();
    }
}

/// Waits for a job for which no thread can be started.
fn wait_as_reserve() -> Job {
    let mut pool = pool();
    loop {
        if let Some(job) = pool.for_reserve.take() {
            return job;
        }
        match pool.next() {
            Some(job) => {
                if let Some(job) = pool.start(job) {
                    pool.reserve_works = true;
                    return job;
                }
            }
            None => {
                pool.reserve_works = false;
                pool = RESERVE.wait(pool).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
    }
}

/// The place where a worker runs.
#[derive(Default)]
struct Place {
    vp: Option<Vp>,
    /// The processors for a job without a preferred VP.
    all: Option<Vec<usize>>,
}

impl Place {
    fn go_to(&mut self, vp: Option<Vp>) {
        if self.vp == vp {
            return;
        }
        if self.all.is_none() {
            self.all = affinity::allowed().ok();
        }
        let moved = match (vp, &self.all) {
            (Some(vp), _) => Vp::__move_current(vp),
            (None, Some(all)) => affinity::restrict_to(all).is_ok(),
            (None, None) => false,
        };
        // If that failed, the worker serves from where it is.
        if moved {
            self.vp = vp;
        }
    }
}

std::thread_local! {
    /// The client of the call that this thread serves.
    static CALLER: RefCell<Option<Arc<Client>>> = const { RefCell::new(None) };
}

/// Restores the client of the thread when it is dropped.
struct RestoreCaller(Option<Arc<Client>>);

impl Drop for RestoreCaller {
    fn drop(&mut self) {
        CALLER.set(self.0.take());
    }
}

/// The client whose call this thread serves.
pub(crate) fn caller() -> Option<Arc<Client>> {
    CALLER.with(|caller| caller.borrow().clone())
}

/// Serves the calls of a slot. Returns whether the slot still needs a worker, after one call if `once`.
fn serve(job: &Job, buffer: &mut [u8], once: bool) -> bool {
    squall_rcu::__hide_from_served(squall_rcu::__State::Caller, |f| {
        let _restore = RestoreCaller(CALLER.take());
        f();
    });
    CALLER.set(Some(job.client.clone()));
    let serving = Serving::begin();
    let slot = job.client.segment().slot(job.slot);
    let desk = job.client.desk(job.slot);
    let work = Work { client: &job.client, slot, desk, buffer: RefCell::new(buffer) };
    slot.set_worker_cpu(affinity::current_cpu());
    let stays = slot::serve(slot.words(), desk, &work, once);
    CALLER.set(None);
    drop(serving);
    stays
}

/// The service of one slot.
struct Work<'a> {
    client: &'a Client,
    slot: Slot<'a>,
    desk: &'a Desk,
    /// The private copy of the arguments.
    buffer: RefCell<&'a mut [u8]>,
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
            return (status::DISCONNECTED, 0);
        }
        if head.method >= u64::BITS || self.client.rights() >> head.method & 1 == 0 {
            return (status::DENIED, 0);
        }
        let mut buffer = self.buffer.borrow_mut();
        let Some(bytes) = self.slot.data(head.length, &mut buffer) else { return (status::MALFORMED, 0) };
        let mut sink = self.slot.sink();
        // A panic of the method ends this call alone. Unwind safety of its own state is up to the object.
        let served = catch_unwind(AssertUnwindSafe(|| {
            let served = exported.serve(head.method, &mut Reader::new(bytes), &mut Writer::new(&mut sink));
            served.map_err(|unserved| status::code_of(&unserved, exported.object))
        }));
        match served {
            Ok(Ok(())) => (status::DONE, sink.written()),
            Ok(Err(code)) => (code, 0),
            Err(payload) => {
                drop_payload(payload);
                (status::PANICKED, 0)
            }
        }
    }
}

impl Service for Work<'_> {
    fn run(&self) {
        let (code, length) = self.execute();
        self.slot.set_status(code, length);
        self.slot.set_worker_cpu(affinity::current_cpu());
    }

    fn next(&self) -> Next {
        if !self.client.is_connected() {
            Next::End
        } else if self.desk.is_idle()
            || self.client.wanted.load(Ordering::Relaxed) != 0
            || self.client.workers.wanted()
            || STARVED.load(Ordering::Relaxed)
        {
            Next::Leave
        } else {
            Next::Wait
        }
    }

    fn wait(&self, words: Words<'_>, seen: Seen) {
        let time = sleep::spin_for(self.slot.caller_cpu(), self.client.exported.settings.spin);
        if !sleep::spin(time, || words.look() != seen) {
            words.sleep_for_call(seen, &Kernel);
        }
    }

    fn sleep(&self) -> &impl Sleep {
        &Kernel
    }
}
