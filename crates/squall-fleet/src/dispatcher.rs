//! A dispatcher: one thread that serves the mailboxes of a server with cooperative tasks.
//!
//! - I1. Replies come before everything else. A task that waits for one is never held up by new requests.
//! - I2. While as many requests of a class have no reply yet as the limit allows, none of that class is
//!   received. Replies are.
//! - I3. A task runs until it waits. So it may change the state of the server without a lock, as long as it
//!   does not wait in between.
//! - I4. The dispatcher sleeps only after each of its mailboxes, and the queue of tasks, was found empty and
//!   has its waker. Mailboxes of requests are left out while the limit is reached.
//!
//! - I5. Replies for one mailbox are sent in order. While it is full, they wait in a list of bounded length,
//!   and hold up no request. If the list is too long, the mailbox with most of them loses its oldest one.
//!
//! Source: Wentzlaff 2012, §3.3 (FO-16 to FO-19).

use crate::blocking::Step;
use crate::call::{CallFailed, ENDED, NO_METHOD, STOPPED};
use crate::envelope::{Address, Envelope};
use crate::replies::{self, Keys};
use crate::tasks::{Counts, IdleWaker, Queue, Tasks, Work};
use crate::waiters::wake;
use crate::{Mailbox, SendError, Sender};
use squall_machine::unpark::Unpark;
use squall_sys::panics::end_panic;
use squall_sys::sync::{Arc, hint, thread};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context as TaskContext, Poll, Waker};

/// The class of a mailbox: the order in which a dispatcher receives. A lower class waits for the higher ones.
///
/// Replies to the calls of its own tasks come before all classes.
/// Source: Wentzlaff 2012, §3.3 (FO-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Requests of clients.
    External,
    /// Requests of other members of the fleet.
    Fleet,
    /// Calls of other members of the fleet, which wait for the reply.
    FleetCall,
    /// Answers of other members of the fleet. They come before the tasks that can run.
    FleetReply,
}

/// The most replies that wait for room, over all mailboxes.
const LATE_MAX: usize = 1024;
/// The most senders that a dispatcher keeps for replies.
const SENDERS_MAX: usize = 1024;
/// Steps of a dispatcher's future before it lets other tasks of the runtime run.
const STEPS: usize = 64;
/// The most tasks that run before the dispatcher looks for a request, and the most replies before it runs a
/// task.
const TURNS: u32 = 32;

type Handler = Box<dyn Fn(Request) -> Work>;

struct Source {
    mailbox: Mailbox,
    class: Class,
    handler: Handler,
}

/// The state that a dispatcher shares with its tasks.
struct Core {
    queue: Arc<Queue>,
    /// Calls without a result yet, by their tokens.
    calls: RefCell<HashMap<u64, Pending>>,
    /// Tasks that were added by tasks.
    new: RefCell<VecDeque<Work>>,
    /// For replies.
    senders: RefCell<HashMap<Address, Rc<Sender>>>,
    /// Replies that wait for room (I5).
    late: RefCell<HashMap<Address, VecDeque<Vec<u8>>>>,
    replies: RefCell<Mailbox>,
    keys: RefCell<Keys>,
    token: Cell<u64>,
    stops: Cell<bool>,
    /// The dispatcher was dropped.
    has_ended: Cell<bool>,
    counts: Rc<Counts>,
}

/// The reply of a call, once it is there, or the task that waits for it.
enum Pending {
    /// With the label of the server's key.
    Waits(Option<Waker>, u64),
    Done(Result<Vec<u8>, u64>),
}

impl Core {
    fn sender(&self, address: Address) -> Result<Rc<Sender>, SendError> {
        if let Some(sender) = self.senders.borrow().get(&address) {
            return Ok(sender.clone());
        }
        let sender = Rc::new(Sender::new(address.0, address.1)?);
        let mut senders = self.senders.borrow_mut();
        if senders.len() >= SENDERS_MAX {
            senders.clear();
        }
        senders.insert(address, sender.clone());
        Ok(sender)
    }

    fn add(&self, work: Work) {
        if !self.has_ended.get() {
            self.new.borrow_mut().push_back(work);
            self.queue.wake();
        }
    }

    /// Sends a reply, or keeps it until there is room (I5).
    fn send_reply(self: &Rc<Core>, address: Address, envelope: &Envelope<'_>) {
        let mut message = Vec::new();
        envelope.write(&mut message);
        // A caller that has gone, or whose key is forged, gets no reply.
        let Ok(sender) = self.sender(address) else { return };
        let is_late = self.late.borrow().contains_key(&address);
        let sent = if is_late { Err(SendError::Retry { mailbox: address.0 }) } else { sender.send(&message) };
        match sent {
            Ok(()) => {}
            Err(SendError::Retry { .. }) => self.send_later(address, sender, message, is_late),
            Err(SendError::NoSpace { .. }) => {
                if let Envelope::Reply { token, .. } = envelope {
                    self.send_reply(address, &replies::too_large(*token));
                }
            }
            Err(_) => _ = self.senders.borrow_mut().remove(&address),
        }
    }

    fn send_later(self: &Rc<Core>, address: Address, sender: Rc<Sender>, message: Vec<u8>, is_late: bool) {
        let mut late = self.late.borrow_mut();
        late.entry(address).or_default().push_back(message);
        if late.values().map(VecDeque::len).sum::<usize>() > LATE_MAX {
            let longest = late.values_mut().max_by_key(|queue| queue.len());
            longest.map(VecDeque::pop_front);
            self.counts.unsent.set(self.counts.unsent.get() + 1);
        }
        drop(late);
        if is_late {
            return;
        }
        let core = Rc::downgrade(self);
        self.add(Box::pin(async move {
            loop {
                let Some(core) = core.upgrade() else { return };
                let next = core.late.borrow_mut().get_mut(&address).and_then(VecDeque::pop_front);
                let Some(message) = next else {
                    core.late.borrow_mut().remove(&address);
                    return;
                };
                drop(core);
                // A caller that has gone needs no reply.
                let _ = sender.wait_to_send(&message).await;
            }
        }));
    }

    fn note_malformed(&self) {
        self.counts.malformed.set(self.counts.malformed.get() + 1);
    }

    /// Keeps the result of a call, and wakes its task. A token without a call is that of a call that was
    /// given up. A server with another label than that of the call does not end it.
    fn end_call(&self, token: u64, label: u64, result: Result<&[u8], u64>) {
        let mut calls = self.calls.borrow_mut();
        let Some(pending) = calls.get_mut(&token) else { return };
        if !matches!(pending, Pending::Waits(_, of) if *of == label) {
            return;
        }
        let before = std::mem::replace(pending, Pending::Done(result.map(<[u8]>::to_vec)));
        drop(calls);
        if let Pending::Waits(Some(waker), _) = before {
            wake(waker);
        }
    }

    /// Ends all calls that have no result yet.
    fn end_calls(&self) {
        let tokens: Vec<(u64, u64)> = self
            .calls
            .borrow()
            .iter()
            .filter_map(|(token, pending)| match pending {
                Pending::Waits(_, label) => Some((*token, *label)),
                Pending::Done(_) => None,
            })
            .collect();
        tokens.into_iter().for_each(|(token, label)| self.end_call(token, label, Err(ENDED)));
    }
}

/// A request, in the task that handles it.
///
/// Dropping it without a reply tells the caller [`CallFailed::NoReply`].
pub struct Request {
    core: Weak<Core>,
    method: u64,
    token: u64,
    reply_to: Option<Address>,
    label: u64,
    body: Vec<u8>,
    class: Class,
    counts: Rc<Counts>,
}

impl Request {
    /// Returns the number of the method.
    pub fn method(&self) -> u64 {
        self.method
    }

    /// Returns the label of the capability that the request was sent with.
    pub fn label(&self) -> u64 {
        self.label
    }

    /// Returns the arguments.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes the arguments out.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Returns whether the sender waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.reply_to.is_some()
    }

    /// Sends the result to the caller. Does not wait: while the caller's mailbox is full, the reply is kept.
    /// The oldest one of 1,024 replies that are kept is dropped, of the mailbox with most of them.
    pub fn reply(mut self, body: &[u8]) {
        let token = self.token;
        self.answer(&Envelope::Reply { token, body });
    }

    /// Tells the caller that there is no such method.
    pub fn refuse(mut self) {
        let token = self.token;
        self.answer(&Envelope::Failure { token, reason: NO_METHOD });
    }

    fn answer(&mut self, answer: &Envelope<'_>) {
        let Some(address) = self.reply_to.take() else { return };
        match self.core.upgrade() {
            Some(core) => core.send_reply(address, answer),
            // The request has outlived its dispatcher.
            None => send_once(address, answer),
        }
    }
}

/// Sends a reply without a dispatcher. It is lost if the mailbox is full.
fn send_once((alias, capability): Address, envelope: &Envelope<'_>) {
    if let Ok(sender) = Sender::new(alias, capability) {
        let mut message = Vec::new();
        envelope.write(&mut message);
        let _ = sender.send(&message);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answer(&replies::dropped(self.token));
        let requests = &self.counts.requests[self.class as usize];
        requests.set(requests.get() - 1);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut request = f.debug_struct("Request");
        request
            .field("method", &self.method)
            .field("label", &self.label)
            .field("bytes", &self.body.len())
            .finish()
    }
}

/// A task's way to its dispatcher: calls, further tasks, and the end. Belongs to the dispatcher's thread.
#[derive(Clone)]
pub struct Context(Rc<Core>);

impl Context {
    /// Calls a method of another server. The task waits for the result, and other tasks run meanwhile.
    ///
    /// Dropping the future gives the call up. Its reply is ignored.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn call(&self, to: &Sender, method: u64, body: &[u8]) -> Result<Vec<u8>, CallFailed> {
        let core = &*self.0;
        let mailbox = to.mailbox();
        if core.has_ended.get() {
            return Err(CallFailed::NotSent(SendError::InvalidAlias {
                mailbox: core.replies.borrow().alias(),
            }));
        }
        let token = core.token.get() + 1;
        core.token.set(token);
        let (label, address) = core.keys.borrow_mut().get_or_add(mailbox, &core.replies.borrow());
        let mut message = Vec::with_capacity(56 + body.len());
        Envelope::Request { method, token, reply_to: Some(address), body }.write(&mut message);
        core.calls.borrow_mut().insert(token, Pending::Waits(None, label));
        let reply = Reply { core: self.0.clone(), token };
        to.wait_to_send(&message).await?;
        drop(message);
        reply.await.map_err(|reason| CallFailed::of(reason, mailbox, method))
    }

    /// Sends a request without a reply. The task waits while the mailbox is full.
    ///
    /// # Errors
    /// [`SendError`], but never [`Retry`](SendError::Retry).
    pub async fn post(&self, to: &Sender, method: u64, body: &[u8]) -> Result<(), SendError> {
        let mut message = Vec::with_capacity(24 + body.len());
        Envelope::Request { method, token: 0, reply_to: None, body }.write(&mut message);
        to.wait_to_send(&message).await
    }

    /// Adds a task. It handles no request, so the limit does not count it.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.0.add(Box::pin(work));
    }

    /// Lets the replies go first, and the tasks that can run already.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|task| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            task.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns the numbers of the dispatcher.
    pub fn stats(&self) -> DispatcherStats {
        let Core { counts, calls, .. } = &*self.0;
        DispatcherStats {
            requests: counts.requests.iter().map(Cell::get).sum(),
            tasks: counts.tasks.get(),
            calls: calls.borrow().len(),
            panics: counts.panics.get(),
            malformed: counts.malformed.get(),
            unsent: counts.unsent.get(),
        }
    }

    /// Ends the dispatcher after the present step. Requests that are being handled are dropped, and their
    /// callers told, unless their mailboxes are full. Calls of tasks end with [`CallFailed::Ended`].
    pub fn stop(&self) {
        self.0.stops.set(true);
        self.0.queue.wake();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("calls", &self.0.calls.borrow().len()).finish_non_exhaustive()
    }
}

/// Waits for the reply of a call.
struct Reply {
    core: Rc<Core>,
    token: u64,
}

impl Future for Reply {
    type Output = Result<Vec<u8>, u64>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Result<Vec<u8>, u64>> {
        // A waker may be the program's code, so it is cloned and dropped outside the borrow.
        let waker = cx.waker().clone();
        let mut calls = self.core.calls.borrow_mut();
        if let Some(Pending::Waits(kept, _)) = calls.get_mut(&self.token) {
            let before = kept.replace(waker);
            drop(calls);
            drop(before);
            return Poll::Pending;
        }
        let done = calls.remove(&self.token);
        drop(calls);
        match done {
            Some(Pending::Done(result)) => Poll::Ready(result),
            _ => panic!("a reply was polled after it was there"),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let given_up = self.core.calls.borrow_mut().remove(&self.token);
        drop(given_up);
    }
}

/// Numbers of a dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatcherStats {
    /// Requests that have no reply yet.
    pub requests: usize,
    /// Tasks, with those of the requests.
    pub tasks: usize,
    /// Calls of tasks that wait for their results.
    pub calls: usize,
    /// Tasks that ended by a panic.
    pub panics: u64,
    /// Messages that were dropped since they were not well formed.
    pub malformed: u64,
    /// Replies that were dropped since the mailboxes of their callers stayed full.
    pub unsent: u64,
}

/// Serves mailboxes: each request gets a task, which runs until it waits.
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
    limit: usize,
    idle: Option<Work>,
    /// Tasks that ran since the last look for requests.
    turns: u32,
    /// Replies since the last task.
    received: u32,
    /// Something happened since the idle work ran.
    was_busy: bool,
    requests_first: bool,
}

impl Dispatcher {
    /// Makes a dispatcher without mailboxes, with a limit of 1,024 requests.
    ///
    /// # Panics
    /// If the system has no random bytes.
    #[expect(clippy::new_without_default, reason = "each dispatcher has a mailbox of its own")]
    pub fn new() -> Dispatcher {
        let replies = Mailbox::new();
        let (queue, counts) = (Arc::new(Queue::new()), Rc::new(Counts::default()));
        let core = Rc::new(Core {
            queue: queue.clone(),
            calls: RefCell::default(),
            new: RefCell::default(),
            senders: RefCell::default(),
            late: RefCell::default(),
            keys: RefCell::new(Keys::new(&replies)),
            replies: RefCell::new(replies),
            token: Cell::new(0),
            stops: Cell::new(false),
            has_ended: Cell::new(false),
            counts: counts.clone(),
        });
        let tasks = Tasks::new(queue, counts);
        let sources = Vec::new();
        Dispatcher {
            core,
            sources,
            tasks,
            limit: 1024,
            idle: None,
            turns: 0,
            received: 0,
            was_busy: true,
            requests_first: false,
        }
    }

    /// Sets the most requests of each class that have no reply yet. Further ones stay in their mailboxes.
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

    /// Serves a mailbox. Each request gets a task with the future that `handler` returns.
    pub fn serve<F>(&mut self, mailbox: Mailbox, class: Class, handler: impl Fn(Request) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        mailbox.set_served_here();
        let handler: Handler = Box::new(move |request| Box::pin(handler(request)));
        let place = self.sources.partition_point(|source| source.class >= class);
        self.sources.insert(place, Source { mailbox, class, handler });
    }

    /// Sets the idle work, in place of any earlier one. It runs up to its next wait when no task can run and
    /// no message is there: once after other work, and when it was woken. Idle work that always can run keeps
    /// the thread awake.
    pub fn idle(&mut self, work: impl Future<Output = ()> + 'static) {
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

    /// Runs until a task [stops](Context::stop) it. Blocks the thread, which sleeps while it has no work.
    ///
    /// # Panics
    /// In the child of a fork, if it would sleep.
    pub fn run(mut self) {
        let waker = Unpark::waker();
        let mut vain = 0;
        while !self.core.stops.get() {
            if self.step() {
                vain = 0;
            } else if vain < 64 {
                vain += 1;
                hint::spin_loop();
            } else if self.sleep(&waker) {
                thread::park();
                self.awake();
                vain = 0;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Runs until a task [stops](Context::stop) it, as a task of an asynchronous program. The future belongs
    /// to its thread.
    pub async fn run_async(mut self) {
        std::future::poll_fn(move |cx| {
            self.awake();
            for _ in 0..STEPS {
                if self.core.stops.get() {
                    return Poll::Ready(());
                }
                if !self.step() && self.sleep(cx.waker()) {
                    return Poll::Pending;
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Does one thing: the most urgent one. Returns false if there is no work.
    fn step(&mut self) -> bool {
        let _step = Step::begin();
        let is_busy = self.step_busy();
        self.was_busy |= is_busy;
        is_busy || self.run_idle()
    }

    fn step_busy(&mut self) -> bool {
        loop {
            let new = self.core.new.borrow_mut().pop_front();
            let Some(work) = new else { break };
            self.tasks.add(work);
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
        if self.turns < TURNS && self.tasks.run_next() {
            self.turns += 1;
            return true;
        }
        self.turns = 0;
        self.receive_request() || self.tasks.run_next() || self.receive_reply()
    }

    /// Receives a reply of a call (I1).
    fn receive_reply(&mut self) -> bool {
        let mut mailbox = self.core.replies.borrow_mut();
        let Some(message) = mailbox.receive() else { return false };
        let label = message.label();
        // Only the body of a reply is copied.
        let message = message.to_vec();
        drop(mailbox);
        match replies::read(&message) {
            Some((token, result)) => self.core.end_call(token, label, result),
            None => self.core.note_malformed(),
        }
        true
    }

    /// Returns whether requests are received now (I2).
    fn may_receive(&self, class: Class) -> bool {
        self.core.counts.requests[class as usize].get() < self.limit
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
            let source = &mut self.sources[place];
            let Some(message) = source.mailbox.receive() else { continue };
            let Some(Envelope::Request { method, token, reply_to, body }) = Envelope::read(&message) else {
                self.core.note_malformed();
                return true;
            };
            let (core, label, body) = (Rc::downgrade(&self.core), message.label(), body.to_vec());
            let counts = self.core.counts.clone();
            counts.requests[class as usize].set(counts.requests[class as usize].get() + 1);
            let request = Request { core, method, token, reply_to, label, body, class, counts };
            let handler = &source.handler;
            match catch_unwind(AssertUnwindSafe(|| handler(request))) {
                Ok(work) => self.tasks.add(work),
                Err(payload) => self.tasks.panicked(payload),
            }
            // The other mailboxes of this class come before it.
            let last = self.sources.partition_point(|source| source.class >= class);
            self.sources[place..last].rotate_left(1);
            return true;
        }
        false
    }

    /// Runs the idle work, if it was woken or something else happened.
    fn run_idle(&mut self) -> bool {
        let Some(work) = &mut self.idle else { return false };
        // Cleared before the poll: a wake-up from now on counts.
        let was_woken = self.core.queue.take_idle();
        if !std::mem::take(&mut self.was_busy) && !was_woken {
            return false;
        }
        let waker = Waker::from(Arc::new(IdleWaker(self.core.queue.clone())));
        let polled =
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut TaskContext::from_waker(&waker))));
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
        let sleeps = self.core.replies.borrow_mut().sleep(waker)
            && (0..self.sources.len()).all(|place| {
                !self.may_receive(self.sources[place].class) || self.sources[place].mailbox.sleep(waker)
            })
            && self.core.new.borrow().is_empty()
            && !self.core.stops.get()
            && self.core.queue.sleep(waker);
        if !sleeps {
            self.awake();
        }
        sleeps
    }

    fn awake(&self) {
        self.core.queue.awake();
        self.core.replies.borrow().awake();
        self.sources.iter().for_each(|source| source.mailbox.awake());
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let core = self.core.clone();
        core.has_ended.set(true);
        // The requests that are dropped tell their callers.
        self.drop_idle();
        self.tasks.clear();
        for work in core.new.take() {
            end_panic(move || drop(work));
        }
        // Tasks of other dispatchers may wait for calls of this one's context.
        core.end_calls();
        core.late.take();
        for Source { mailbox, handler, .. } in self.sources.drain(..) {
            end_panic(move || drop(handler));
            for (_, message) in mailbox.end() {
                if let Some(Envelope::Request { token, reply_to: Some(address), .. }) =
                    Envelope::read(&message)
                {
                    send_once(address, &Envelope::Failure { token, reason: STOPPED });
                }
            }
        }
    }
}
