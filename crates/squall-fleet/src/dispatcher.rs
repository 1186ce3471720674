//! A dispatcher: one thread that serves the mailboxes and links of a server with cooperative tasks.
//!
//! - I1. Replies come before everything else. A task that waits for one is never held up by new requests.
//! - I2. While as many requests of a class have no reply yet as the limit allows, none of that class is
//!   received. Replies are.
//! - I3. A task runs until it waits. So it may change the state of the server without a lock, as long as it
//!   does not wait in between.
//! - I4. The dispatcher sleeps only after each of its mailboxes and ports, and the queue of tasks, was found
//!   empty and has its waker. Those of requests are left out while the limit is reached. The sleep ends at
//!   the first timer.
//! - I5. Replies for one mailbox or link are sent in order. While it is full, they wait in a list of bounded
//!   length and bytes, and hold up no request. If the list is too long, the one with most of it loses its
//!   oldest one. A reply that is sent again does not wait there.
//! - I6. A dispatcher that drains begins no request. It ends at a moment without a begun request, without a
//!   task of one, and without a reply that waits for room.
//!
//! Source: Wentzlaff 2012, §3.3 (FO-16 to FO-19).

use crate::blocking::Step;
use crate::call::{NO_FURTHER_SESSION, NO_REPLY, NO_RESULT, NO_SESSION, STOPPED};
use crate::capability::random;
use crate::context::{Context, Core};
use crate::envelope::{Envelope, Key};
use crate::inlet::{Arrived, Inlet, ReplyTo};
use crate::late::Late;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::links::Look;
use crate::methods::{Handlers, Methods};
use crate::once::Step::{Again, Forgotten, Ignore, Run, Unknown};
use crate::patience::Patience;
use crate::replies;
use crate::request::{Class, Request, send_once};
use crate::share::Shares;
use crate::stats::DispatcherStats;
use crate::tasks::{IdleWaker, New, Tasks, Wish, Work};
use crate::watch::{IDLE, Steps};
use squall_machine::park::time_left;
use squall_machine::unpark::{Unpark, park_for};
use squall_sys::panics::end_panic;
use squall_sys::sync::{StdArc, thread};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

/// Steps of a dispatcher's future before it lets other tasks of the runtime run.
const STEPS: usize = 64;
/// Attempts to sleep before a dispatcher yields its processor to a sender that is not through.
const ATTEMPTS: u32 = 64;
/// The most tasks that run before the dispatcher looks for a request, and the most replies before it runs a
/// task.
const TURNS: u32 = 32;

struct Source {
    inlet: Inlet,
    class: Class,
    handlers: Handlers,
    shares: Rc<Shares>,
}

/// Serves mailboxes and links: each request gets a task, which runs until it waits.
///
/// Replies come first, then tasks that can run, then requests by their [`Class`], then idle work. So a task
/// never waits for its reply behind new requests. A dispatcher belongs to one thread:
/// [`run`](Dispatcher::run) takes it, or an asynchronous program awaits [`run_async`](Dispatcher::run_async)
/// in a local task.
///
/// [`Caller`](crate::Caller) has an example.
///
/// Source: Wentzlaff 2012, §3.3 (FO-16 to FO-19).
pub struct Dispatcher {
    core: Rc<Core>,
    /// By class, the highest first.
    sources: Vec<Source>,
    tasks: Tasks,
    steps: Steps,
    limit: usize,
    idle: Option<Work>,
    /// Tasks that ran since the last look for requests.
    turns: u32,
    /// Replies since the last task.
    received: u32,
    /// Something happened since the idle work ran.
    was_busy: bool,
    requests_first: bool,
    /// The last look for a reply began with the links.
    links_first: bool,
}

impl Dispatcher {
    /// Makes a dispatcher without mailboxes, with a limit of 1,024 requests.
    ///
    /// # Panics
    /// If the system has no random bytes.
    #[expect(clippy::new_without_default, reason = "each dispatcher has a mailbox of its own")]
    pub fn new() -> Dispatcher {
        let core = Rc::new(Core::new());
        let tasks = Tasks::new(core.queue.clone(), core.counts.clone());
        let steps = Steps::new(core.watch.clone(), core.counts.clone());
        Dispatcher {
            core,
            sources: Vec::new(),
            tasks,
            steps,
            limit: 1024,
            idle: None,
            turns: 0,
            received: 0,
            was_busy: true,
            requests_first: false,
            links_first: false,
        }
    }

    /// Sets the most requests of each class that have no reply yet. Further ones stay in their mailboxes and
    /// links. A link of a port with several links has at most an eighth of them, and at least one.
    ///
    /// Requests that wait for calls which come back to the same class can use up the limit, and then wait for
    /// ever. So serve the calls of other servers in a class of their own, or with a limit above the number of
    /// calls that can be under way.
    ///
    /// # Panics
    /// If the limit is 0.
    pub fn limit_requests(&mut self, limit: usize) {
        assert!(limit > 0, "a dispatcher with a limit of 0 requests would never handle one");
        self.limit = limit;
    }

    /// Sets the time above which a step of a task is long; the default is 100 ms.
    ///
    /// A step lasts from one wait of a task to the next. A task that does not wait holds up all others. A
    /// long step is counted when it ends, in [`DispatcherStats::long_steps`], and by the name of its task in
    /// [`Control::long_steps`](crate::Control::long_steps). While it lasts, another thread learns of it from
    /// [`Control::running`](crate::Control::running). A time is that of the clock, so it includes other
    /// threads on the processor.
    ///
    /// Source: Wentzlaff 2012, §3.3.2 (AD-11).
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Dispatcher;
    /// use std::time::Duration;
    ///
    /// let mut dispatcher = Dispatcher::new();
    /// dispatcher.watch_steps(Duration::from_millis(1));
    /// let (context, control) = (dispatcher.context(), dispatcher.context().control());
    /// dispatcher.context().spawn_named("the index", async move {
    ///     // A task waits with `Context::sleep`. This blocks the thread.
    ///     std::thread::sleep(Duration::from_millis(2));
    ///     context.stop();
    /// });
    /// dispatcher.run();
    /// let long = control.long_steps();
    /// assert_eq!((long[0].name.as_str(), long[0].count), ("the index", 1));
    /// assert!(long[0].longest >= Duration::from_millis(2));
    /// ```
    pub fn watch_steps(&mut self, limit: Duration) {
        self.steps.limit = limit;
    }

    /// Receives requests before replies, as a dispatcher without priorities may. Only to show the livelock of
    /// Wentzlaff 2012, §3.3.
    #[doc(hidden)]
    pub fn __requests_first(&mut self) {
        self.requests_first = true;
    }

    /// Returns the way of tasks to this dispatcher.
    pub fn context(&self) -> Context {
        Context(self.core.clone())
    }

    /// Serves a mailbox, a link, or a [port](crate::LinkPort) with any number of links. Each request gets a
    /// task with the future that `handler` returns.
    ///
    /// The watchdog names its tasks by the alias of the mailbox, or the name of the link or port.
    pub fn serve<F>(&mut self, from: impl Into<Inlet>, class: Class, handler: impl Fn(Request) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let from = from.into();
        let name = format!("requests of {from}");
        self.serve_named(&name, from, class, handler);
    }

    /// Serves an inlet like [`serve`](Dispatcher::serve), with a name for its tasks. The
    /// [watchdog](Dispatcher::watch_steps) reports them by it.
    pub fn serve_named<F>(
        &mut self,
        name: &str,
        from: impl Into<Inlet>,
        class: Class,
        handler: impl Fn(Request) -> F + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let handlers = Handlers::one(&self.core.watch, name, handler);
        self.add(from.into(), class, handlers);
    }

    /// Serves an inlet with a handler for each method. A request for another method is
    /// [refused](Request::refuse).
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{CallFailed, Caller, Class, Dispatcher, Mailbox, Methods};
    ///
    /// let mailbox = Mailbox::new();
    /// let sender = mailbox.sender(mailbox.add_capability()?)?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| {
    ///         let mut dispatcher = Dispatcher::new();
    ///         let context = dispatcher.context();
    ///         let methods = Methods::named("letters")
    ///             .on_named(1, "count", |request| async move {
    ///                 let count = request.body().len() as u8;
    ///                 request.reply(&[count]);
    ///             })
    ///             .on_named(2, "end", move |request| {
    ///                 context.drain();
    ///                 async move { request.reply(b"") }
    ///             });
    ///         dispatcher.serve_methods(mailbox, Class::External, methods);
    ///         dispatcher.run();
    ///     });
    ///     let mut caller = Caller::new();
    ///     assert_eq!(caller.call(&sender, 1, b"abc").unwrap(), [3]);
    ///     let unknown = caller.call(&sender, 3, b"").unwrap_err();
    ///     assert_eq!(unknown, CallFailed::NoMethod { mailbox: sender.mailbox(), method: 3 });
    ///     caller.call(&sender, 2, b"").unwrap();
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_methods(&mut self, from: impl Into<Inlet>, class: Class, methods: Methods) {
        let from = from.into();
        let handlers = methods.into_handlers(&self.core.watch, &from);
        self.add(from, class, handlers);
    }

    fn add(&mut self, inlet: Inlet, class: Class, handlers: Handlers) {
        inlet.set_served_here();
        let place = self.sources.partition_point(|source| source.class >= class);
        self.sources.insert(place, Source { inlet, class, handlers, shares: Rc::default() });
    }

    /// Sets the idle work, in place of any earlier one. It runs up to its next wait when no task can run and
    /// no message is there: once after other work, and when it was woken. Idle work that always can run keeps
    /// the thread awake.
    pub fn idle(&mut self, work: impl Future<Output = ()> + 'static) {
        // The drop of the earlier work must not wait for a stub.
        let _step = Step::begin();
        self.drop_idle();
        self.idle = Some(Box::pin(work));
    }

    /// The drop is the program's code.
    fn drop_idle(&mut self) {
        let idle = self.idle.take();
        end_panic(move || drop(idle));
    }

    /// Returns the numbers of this dispatcher.
    pub fn stats(&self) -> DispatcherStats {
        self.context().stats()
    }

    /// Runs until it is [stopped](Context::stop) or has [drained](Context::drain). Blocks the thread, which
    /// sleeps while it has no work, at most until the next [timer](Context::sleep).
    ///
    /// # Panics
    /// In the child of a fork, if it would sleep.
    pub fn run(mut self) {
        let (waker, mut patience) = (Unpark::waker(), Patience::new());
        let (mut waits, mut attempts) = (false, 0);
        while !self.is_over() {
            if self.step() {
                patience.end();
                (waits, attempts) = (false, 0);
                continue;
            }
            if !std::mem::replace(&mut waits, true) {
                patience.begin();
            }
            if patience.looks_again() {
                continue;
            }
            if self.sleep(&waker) {
                time_left(self.core.timers.first()).map_or_else(thread::park, park_for);
                self.awake();
                continue;
            }
            attempts += 1;
            if attempts > ATTEMPTS {
                // A sender was stopped between its claim and its message.
                thread::yield_now();
            }
        }
    }

    /// Runs until it is [stopped](Context::stop) or has [drained](Context::drain), as a task of an
    /// asynchronous program. The future belongs to its thread.
    ///
    /// The crate depends on no runtime, and has no thread for timers. So while a task
    /// [sleeps](Context::sleep), or makes a call with a limit, this form has itself polled again and again,
    /// which keeps the processor busy. Use [`run_async_with`](Dispatcher::run_async_with) then.
    pub async fn run_async(self) {
        // Wakes itself at each poll, and never ends.
        let busy = |_| {
            std::future::poll_fn(|cx: &mut TaskContext<'_>| {
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        };
        self.run_async_with(busy).await;
    }

    /// Runs like [`run_async`](Dispatcher::run_async), and sleeps until its timers by a future of the
    /// program's runtime. `sleep_until` makes a future that ends at the given time.
    ///
    /// With Tokio, `sleep_until` is `|at| tokio::time::sleep_until(at.into())`.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Dispatcher;
    /// use std::time::Duration;
    ///
    /// let dispatcher = Dispatcher::new();
    /// let context = dispatcher.context();
    /// dispatcher.context().spawn(async move {
    ///     context.sleep(Duration::from_millis(2)).await;
    ///     context.stop();
    /// });
    /// let run = dispatcher.run_async_with(|at| tokio::time::sleep_until(at.into()));
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// runtime.block_on(run);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn run_async_with<S>(mut self, mut sleep_until: impl FnMut(Instant) -> S)
    where
        S: Future<Output = ()>,
    {
        let mut alarm: Option<(Instant, Pin<Box<S>>)> = None;
        std::future::poll_fn(move |cx| {
            self.awake();
            // Other tasks of the runtime ran since the last step.
            self.steps.pause();
            for _ in 0..STEPS {
                if self.is_over() {
                    return Poll::Ready(());
                }
                if self.step() {
                    continue;
                }
                let first = self.core.timers.first();
                if alarm.as_ref().map(|(at, _)| *at) != first {
                    alarm = first.map(|at| (at, Box::pin(sleep_until(at))));
                }
                if let Some((_, sleep)) = &mut alarm
                    && sleep.as_mut().poll(cx).is_ready()
                {
                    // The next look finds the timer due. If it is not, the runtime's clock was early.
                    alarm = None;
                } else if self.sleep(cx.waker()) {
                    return Poll::Pending;
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns whether the dispatcher ends now.
    fn is_over(&self) -> bool {
        match self.core.queue.wish() {
            Wish::Serve => false,
            Wish::Drain => {
                let counts = &self.core.counts;
                let is_done = |class: Class| {
                    counts.requests[class as usize].get() == 0 && counts.handlers[class as usize].get() == 0
                };
                [Class::External, Class::Fleet, Class::FleetCall].into_iter().all(is_done)
                    && self.core.late.borrow().is_empty()
            }
            Wish::Stop => true,
        }
    }

    /// Does one thing: the most urgent one. Returns false if there is no work.
    fn step(&mut self) -> bool {
        let _step = Step::begin();
        let is_busy = self.step_busy();
        self.was_busy |= is_busy;
        let is_busy = is_busy || self.run_idle();
        if is_busy {
            self.steps.end_turn();
        } else {
            self.steps.pause();
        }
        is_busy
    }

    fn step_busy(&mut self) -> bool {
        loop {
            let new = self.core.new.borrow_mut().pop_front();
            let Some(new) = new else { break };
            self.tasks.add(new);
        }
        if let Some(first) = self.core.timers.first()
            && self.steps.now() >= first
        {
            self.core.timers.wake_due(self.steps.now());
        }
        if self.requests_first && self.receive_request() {
            return true;
        }
        // A flood of replies holds up tasks, but not for ever.
        if self.received < TURNS
            && (self.receive_reply() || self.receive(Class::FleetReply, Class::FleetReply))
        {
            self.received += 1;
            return true;
        }
        self.received = 0;
        // Tasks that always can run hold up requests, but not for ever.
        if self.turns < TURNS && self.run_task() {
            self.turns += 1;
            return true;
        }
        self.turns = 0;
        self.receive_request() || self.run_task() || self.receive_reply()
    }

    /// Runs a task up to its next wait. Returns false if no task can run.
    fn run_task(&mut self) -> bool {
        let Some((slot, label)) = self.tasks.next() else { return false };
        self.steps.run(label, || self.tasks.run(slot));
        true
    }

    /// Receives a reply of a call (I1). Mailboxes and links take turns.
    fn receive_reply(&mut self) -> bool {
        self.links_first = !self.links_first;
        match self.links_first {
            true => self.receive_reply_of_link() || self.receive_reply_of_mailbox(),
            false => self.receive_reply_of_mailbox() || self.receive_reply_of_link(),
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn receive_reply_of_link(&mut self) -> bool {
        false
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn receive_reply_of_link(&mut self) -> bool {
        let mut servers = self.core.servers.borrow_mut();
        match servers.look() {
            Look::Nothing => false,
            Look::Message(number) => {
                let Some(link) = servers.get(number) else { return false };
                let (label, message) = (link.label, link.receiver.last().to_vec());
                drop(servers);
                self.end_call(label, &message);
                true
            }
            Look::Ended(link, _) => {
                drop(servers);
                let label = link.label;
                link.has_ended.set(true);
                drop(link);
                self.core.end_calls_of(label);
                true
            }
        }
    }

    fn receive_reply_of_mailbox(&mut self) -> bool {
        let mut mailbox = self.core.replies.borrow_mut();
        let Some(message) = mailbox.receive() else { return false };
        let label = message.label();
        // Only the body of a reply is copied.
        let message = message.to_vec();
        drop(mailbox);
        self.end_call(label, &message);
        true
    }

    /// Ends the call of a reply from a server with this label.
    fn end_call(&mut self, label: u64, message: &[u8]) {
        self.steps.received(message.len());
        match replies::read(message) {
            Some((token, result)) => self.core.end_call(token, label, result),
            None => self.core.note_malformed(),
        }
    }

    /// Returns whether requests are received now (I2). Those that are refused need no room.
    fn may_receive(&self, class: Class) -> bool {
        self.refuses(class) || self.core.counts.requests[class as usize].get() < self.limit
    }

    /// Returns whether requests are refused, since the dispatcher is to end (I6).
    fn refuses(&self, class: Class) -> bool {
        class < Class::FleetReply && self.core.queue.wish() != Wish::Serve
    }

    /// Receives the next request.
    fn receive_request(&mut self) -> bool {
        self.receive(Class::External, Class::FleetCall)
    }

    /// Receives the next message of the classes from `lowest` to `highest`, and makes its task.
    fn receive(&mut self, lowest: Class, highest: Class) -> bool {
        for place in 0..self.sources.len() {
            let class = self.sources[place].class;
            if class < lowest || class > highest || !self.may_receive(class) {
                continue;
            }
            if self.receive_from(place) {
                // The other inlets of this class come before it, also after a message that made no task.
                let last = self.sources.partition_point(|source| source.class >= class);
                self.sources[place..last].rotate_left(1);
                return true;
            }
        }
        false
    }

    /// Receives the next message of one inlet. Returns false if there is none.
    fn receive_from(&mut self, place: usize) -> bool {
        let class = self.sources[place].class;
        let refuses = self.refuses(class);
        let source = &mut self.sources[place];
        source.shares.released().into_iter().for_each(|peer| source.inlet.release(peer));
        let Some(message) = source.inlet.receive() else { return false };
        let Some(Asked { reply_to, method, token, key, body }) = request_of(&message) else {
            self.core.note_malformed();
            return true;
        };
        if let (Some(key), Some(to)) = (key, &reply_to)
            && !begins(&self.core, key, token, to, !refuses)
        {
            return true;
        }
        if refuses {
            if let Some(to) = reply_to {
                self.core.send_reply(&to, &Envelope::Failure { token, reason: STOPPED });
            }
            return true;
        }
        let (core, label, body) = (Rc::downgrade(&self.core), message.label, body.to_vec());
        let share = message.peer.map(|peer| (peer, source.shares.begin(peer, self.limit)));
        if let Some((peer, share)) = &share
            && source.inlet.has_links()
            && share.hold_if_full()
        {
            source.inlet.hold(*peer);
        }
        let share = share.map(|(_, share)| share);
        self.steps.received(body.len());
        let counts = self.core.counts.clone();
        counts.requests[class as usize].set(counts.requests[class as usize].get() + 1);
        let request = Request { core, method, token, reply_to, key, label, body, class, counts, share };
        match source.handlers.get(method) {
            None => request.refuse(),
            Some((label, handler)) => {
                let begin = || catch_unwind(AssertUnwindSafe(|| handler(request)));
                match self.steps.run(label, begin) {
                    Ok(work) => self.tasks.add(New { work, label, class: Some(class as usize) }),
                    Err(payload) => self.tasks.panicked(payload),
                }
            }
        }
        true
    }

    /// Runs the idle work, if it was woken or something else happened.
    fn run_idle(&mut self) -> bool {
        // Cleared before the poll: a wake-up from now on counts.
        let was_woken = self.core.queue.take_idle();
        let Some(work) = &mut self.idle else { return false };
        if !std::mem::take(&mut self.was_busy) && !was_woken {
            return false;
        }
        let waker = Waker::from(StdArc::new(IdleWaker(self.core.queue.clone())));
        let poll =
            || catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut TaskContext::from_waker(&waker))));
        let polled = self.steps.run(IDLE, poll);
        if !matches!(polled, Ok(Poll::Pending)) {
            self.drop_idle();
        }
        if let Err(payload) = polled {
            self.tasks.panicked(payload);
        }
        true
    }

    /// Announces a sleep (I4). Returns false if there is work.
    fn sleep(&mut self, waker: &Waker) -> bool {
        let wish = self.core.queue.wish();
        let sleeps = self.core.replies.borrow_mut().sleep(waker)
            && self.sleep_for_links(waker)
            && (0..self.sources.len()).all(|place| {
                !self.may_receive(self.sources[place].class) || self.sources[place].inlet.sleep(waker)
            })
            && self.core.new.borrow().is_empty()
            && !self.is_over()
            && self.core.queue.sleep(waker, wish);
        self.core.sleeps.set(sleeps);
        if !sleeps {
            self.awake();
        }
        sleeps
    }

    /// Announces a sleep to the links by which replies come.
    fn sleep_for_links(&self, _waker: &Waker) -> bool {
        #[cfg(all(target_os = "linux", not(miri)))]
        return self.core.servers.borrow_mut().sleep(_waker);
        #[cfg(not(all(target_os = "linux", not(miri))))]
        true
    }

    fn awake(&self) {
        self.core.sleeps.set(false);
        self.core.queue.awake();
        #[cfg(all(target_os = "linux", not(miri)))]
        self.core.servers.borrow().awake();
        self.core.replies.borrow().awake();
        self.sources.iter().for_each(|source| source.inlet.awake());
    }
}

/// A request, taken apart.
struct Asked<'a> {
    reply_to: Option<ReplyTo>,
    method: u64,
    token: u64,
    key: Option<Key>,
    body: &'a [u8],
}

fn request_of<'a>(message: &Arrived<'a>) -> Option<Asked<'a>> {
    match Envelope::read(message.bytes)? {
        Envelope::Request { method, token, reply_to, key, body } => {
            Some(Asked { reply_to: message.reply_to(reply_to)?, method, token, key, body })
        }
        _ => None,
    }
}

/// Looks a call with a key up (`once.rs`). Returns whether it is one that has not begun, which begins now if
/// `may_run`. Otherwise the caller has got its answer, or gets it later.
fn begins(core: &Rc<Core>, key: Key, token: u64, to: &ReplyTo, may_run: bool) -> bool {
    let failed = |reason| core.send_reply(to, &Envelope::Failure { token, reason });
    let now = Instant::now();
    if key.session == 0 {
        if !may_run {
            return true;
        }
        let opened = core.once.borrow_mut().open(now, to.way(), key.number, || random() as u64);
        match opened {
            Some(session) => core.send_reply(to, &Envelope::Reply { token, body: &session.to_le_bytes() }),
            None => failed(NO_FURTHER_SESSION),
        }
        return false;
    }
    let step = core.once.borrow_mut().arrive(now, key, Some(to.clone()), may_run);
    match step {
        Run => return true,
        Again(reply) => core.send_again(to, &reply),
        Ignore => {}
        Forgotten => failed(NO_RESULT),
        Unknown => failed(NO_SESSION),
    }
    false
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // Drops of tasks must not wait for a stub: this thread serves it, or serves a task that it waits for.
        let _step = Step::begin();
        let core = self.core.clone();
        core.has_ended.set(true);
        // The requests that are dropped tell their callers.
        self.drop_idle();
        self.tasks.clear();
        for new in core.new.take() {
            end_panic(move || drop(new));
        }
        // Tasks of other dispatchers may wait for calls of this one's context.
        core.end_calls();
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            // Their peers learn of the end, also while a task of another dispatcher keeps the context.
            let servers = core.servers.borrow_mut().end();
            drop(servers);
        }
        core.timers.wake_all();
        core.late.replace(Late::new());
        for Source { inlet, handlers, .. } in self.sources.drain(..) {
            end_panic(move || drop(handlers));
            inlet.end(|message| {
                let Some(Asked { reply_to: Some(to), token, key, .. }) = request_of(&message) else { return };
                let mut once = core.once.borrow_mut();
                let reason = match key.map(|key| once.arrive(Instant::now(), key, None, false)) {
                    None | Some(Run) => STOPPED,
                    // A copy of this call ran.
                    Some(Again(_) | Ignore | Forgotten) => NO_REPLY,
                    Some(Unknown) => NO_SESSION,
                };
                drop(once);
                send_once(&to, &Envelope::Failure { token, reason });
            });
        }
    }
}
