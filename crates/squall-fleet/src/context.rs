//! The way of tasks to their dispatcher, and the state that they share.

#[cfg(all(target_os = "linux", not(miri)))]
use crate::call::LINK_ENDED;
use crate::call::{CallFailed, ENDED};
use crate::control::Control;
use crate::envelope::{Address, Destination, Envelope, HEAD};
use crate::inlet::{Outlet, ReplyTo, Told, Way};
use crate::late::Late;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::link_call::Replies as LinkReplies;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::links::Links;
use crate::once::Once;
use crate::replies::{self, Keys};
use crate::stats::{Counts, DispatcherStats, count};
use crate::tasks::{New, Queue, Wish, Work};
use crate::timers::{Key, Timers};
use crate::waiters::wake;
use crate::watch::{LATE, Label, SPAWNED, Watch};
use crate::{Mailbox, SendError, Sender};
use squall_sys::sync::StdArc;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

/// The most senders that a dispatcher keeps for replies.
const SENDERS_MAX: usize = 1024;

/// The state that a dispatcher shares with its tasks.
pub(crate) struct Core {
    pub(crate) queue: StdArc<Queue>,
    pub(crate) watch: StdArc<Watch>,
    pub(crate) timers: Timers,
    /// Calls without a result yet, by their tokens.
    calls: RefCell<HashMap<u64, Pending>>,
    /// Tasks that were added by tasks.
    pub(crate) new: RefCell<VecDeque<New>>,
    /// For replies.
    senders: RefCell<HashMap<Address, Rc<Sender>>>,
    /// Replies that wait for room (dispatcher/I5).
    pub(crate) late: RefCell<Late<Way>>,
    /// Calls that may be sent again.
    pub(crate) once: RefCell<Once<ReplyTo, Way>>,
    pub(crate) replies: RefCell<Mailbox>,
    /// The links by which replies to tasks come.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) servers: RefCell<Links<LinkReplies>>,
    keys: RefCell<Keys>,
    token: Cell<u64>,
    /// The dispatcher sleeps.
    pub(crate) sleeps: Cell<bool>,
    /// The dispatcher was dropped.
    pub(crate) has_ended: Cell<bool>,
    pub(crate) counts: Rc<Counts>,
}

/// The reply of a call, once it is there, or the task that waits for it.
enum Pending {
    /// With the label of the server's key.
    Waits(Option<Waker>, u64),
    Done(Result<Vec<u8>, u64>),
}

impl Core {
    pub(crate) fn new() -> Core {
        let replies = Mailbox::new();
        Core {
            queue: StdArc::new(Queue::new()),
            watch: StdArc::new(Watch::new()),
            timers: Timers::default(),
            calls: RefCell::default(),
            new: RefCell::default(),
            senders: RefCell::default(),
            late: RefCell::new(Late::new()),
            once: RefCell::new(Once::new()),
            #[cfg(all(target_os = "linux", not(miri)))]
            servers: RefCell::new(Links::new()),
            keys: RefCell::new(Keys::new(&replies)),
            replies: RefCell::new(replies),
            token: Cell::new(0),
            sleeps: Cell::new(false),
            has_ended: Cell::new(false),
            counts: Rc::default(),
        }
    }

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

    fn add(&self, label: Label, work: Work) {
        if !self.has_ended.get() {
            self.new.borrow_mut().push_back(New { work, label, class: None });
            self.queue.wake();
        }
    }

    /// Returns the sender for a reply, unless the caller has gone or its key is forged.
    fn outlet(&self, to: &ReplyTo) -> Option<Outlet> {
        match to {
            ReplyTo::Mailbox(address) => Some(Outlet::Mailbox(self.sender(*address).ok()?)),
            #[cfg(all(target_os = "linux", not(miri)))]
            ReplyTo::Link(sender) => Some(Outlet::Link(sender.clone())),
        }
    }

    /// Sends a reply, or keeps it until there is room (dispatcher/I5).
    pub(crate) fn send_reply(self: &Rc<Core>, to: &ReplyTo, envelope: &Envelope<'_>) {
        let Some(outlet) = self.outlet(to) else { return };
        let mut message = Vec::new();
        match envelope {
            // Looked at before the wait for room: the caller never has room for it.
            Envelope::Reply { token, body } if HEAD + body.len() > outlet.largest() => {
                replies::too_large(*token).write(&mut message);
            }
            _ => envelope.write(&mut message),
        }
        self.send_message(to, outlet, message);
    }

    /// Sends a reply again, as it was kept. A reply that is too large for this way is sent as a failure.
    ///
    /// No copy waits for room. The caller asks again.
    pub(crate) fn send_again(self: &Rc<Core>, to: &ReplyTo, message: &[u8]) {
        if self.late.borrow().contains(&to.way()) {
            return;
        }
        if let Some(envelope) = Envelope::read(message) {
            self.send_reply(to, &envelope);
        }
    }

    fn send_message(self: &Rc<Core>, to: &ReplyTo, outlet: Outlet, message: Vec<u8>) {
        let way = to.way();
        let is_late = self.late.borrow().contains(&way);
        let told = if is_late { Told::Full } else { outlet.send(&message) };
        match (told, to) {
            (Told::Full, _) => self.send_later(way, outlet, message, is_late),
            (Told::Gone, ReplyTo::Mailbox(address)) => _ = self.senders.borrow_mut().remove(address),
            _ => {}
        }
    }

    fn send_later(self: &Rc<Core>, way: Way, outlet: Outlet, message: Vec<u8>, is_late: bool) {
        let lost = self.late.borrow_mut().push(way, message);
        (0..lost).for_each(|_| count(&self.counts.unsent));
        if is_late {
            return;
        }
        let core = Rc::downgrade(self);
        self.add(
            LATE,
            Box::pin(async move {
                loop {
                    let Some(core) = core.upgrade() else { return };
                    let next = core.late.borrow_mut().next(&way);
                    let Some(message) = next else { return };
                    drop(core);
                    outlet.send_later(&message).await;
                }
            }),
        );
    }

    pub(crate) fn note_malformed(&self) {
        count(&self.counts.malformed);
    }

    /// Keeps the result of a call, and wakes its task. A token without a call is that of a call that was
    /// given up. A server with another label than that of the call does not end it.
    pub(crate) fn end_call(&self, token: u64, label: u64, result: Result<&[u8], u64>) {
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
    pub(crate) fn end_calls(&self) {
        self.end_calls_if(|_| true, ENDED);
    }

    /// Ends all calls with this label: their link has ended.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn end_calls_of(&self, label: u64) {
        self.end_calls_if(|of| of == label, LINK_ENDED);
    }

    fn end_calls_if(&self, ends: impl Fn(u64) -> bool, reason: u64) {
        let tokens: Vec<(u64, u64)> = self
            .calls
            .borrow()
            .iter()
            .filter_map(|(token, pending)| match pending {
                Pending::Waits(_, label) if ends(*label) => Some((*token, *label)),
                _ => None,
            })
            .collect();
        tokens.into_iter().for_each(|(token, label)| self.end_call(token, label, Err(reason)));
    }
}

/// A task's way to its dispatcher: calls, further tasks, and the end. Belongs to the dispatcher's thread.
#[derive(Clone)]
pub struct Context(pub(crate) Rc<Core>);

impl Context {
    /// Calls a method of another server. The task waits for the result, and other tasks run meanwhile.
    ///
    /// Dropping the future gives the call up. Its reply is ignored.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn call(&self, to: &Sender, method: u64, body: &[u8]) -> Result<Vec<u8>, CallFailed> {
        self.call_noting(to, method, body, &Cell::new(false)).await
    }

    /// Calls a method of another server, like [`call`](Context::call), for at most `limit`.
    ///
    /// # Errors
    /// [`CallFailed`]. [`TimedOut`](CallFailed::TimedOut) means that the request was sent, and no reply came
    /// in time. If the mailbox had no room in time, the request was not sent:
    /// [`NotSent`](CallFailed::NotSent) with [`Retry`](SendError::Retry).
    pub async fn call_for(
        &self,
        to: &Sender,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, CallFailed> {
        let mailbox = to.mailbox();
        let is_sent = Cell::new(false);
        let called = self.within(limit, self.call_noting(to, method, body, &is_sent)).await;
        called.unwrap_or_else(|| {
            Err(match is_sent.get() {
                true => CallFailed::TimedOut { mailbox },
                false => CallFailed::NotSent(SendError::Retry { mailbox }),
            })
        })
    }

    /// Waits for the result of a call for at most `limit`.
    pub(crate) async fn within<R>(&self, limit: Duration, call: impl Future<Output = R>) -> Option<R> {
        let mut sleep = pin!(self.sleep(limit));
        let mut call = pin!(call);
        std::future::poll_fn(|task| match call.as_mut().poll(task) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => sleep.as_mut().poll(task).map(|()| None),
        })
        .await
    }

    /// Calls a method, and notes when the request is sent.
    async fn call_noting(
        &self,
        to: &Sender,
        method: u64,
        body: &[u8],
        is_sent: &Cell<bool>,
    ) -> Result<Vec<u8>, CallFailed> {
        let core = &*self.0;
        let mailbox = to.mailbox();
        if core.has_ended.get() {
            return Err(CallFailed::NotSent(SendError::InvalidAlias {
                mailbox: core.replies.borrow().alias(),
            }));
        }
        let (label, address) = core.keys.borrow_mut().get_or_add(mailbox, &core.replies.borrow());
        let (token, reply) = self.await_reply(label);
        let mut message = Vec::with_capacity(56 + body.len());
        Envelope::Request { method, token, reply_to: Some(Destination::Mailbox(address)), key: None, body }
            .write(&mut message);
        to.wait_to_send(&message).await?;
        is_sent.set(true);
        drop(message);
        reply.await.map_err(|reason| CallFailed::of(reason, mailbox, method))
    }

    /// Begins to wait for the reply of a server with this label. Returns the token of the call.
    pub(crate) fn await_reply(&self, label: u64) -> (u64, Reply) {
        let token = self.0.token.get() + 1;
        self.0.token.set(token);
        self.0.calls.borrow_mut().insert(token, Pending::Waits(None, label));
        (token, Reply { core: self.0.clone(), token })
    }

    /// Sends a request without a reply. The task waits while the mailbox is full.
    ///
    /// # Errors
    /// [`SendError`], but never [`Retry`](SendError::Retry).
    pub async fn post(&self, to: &Sender, method: u64, body: &[u8]) -> Result<(), SendError> {
        let mut message = Vec::with_capacity(24 + body.len());
        Envelope::Request { method, token: 0, reply_to: None, key: None, body }.write(&mut message);
        to.wait_to_send(&message).await
    }

    /// Adds a task. It handles no request, so the limit does not count it.
    ///
    /// A dispatcher that [drains](Context::drain) does not wait for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.0.add(SPAWNED, Box::pin(work));
    }

    /// Adds a task with a name, by which [`Control::running`] and [`Control::long_steps`] report it. A
    /// dispatcher keeps 1,020 names of mailboxes, methods and tasks.
    pub fn spawn_named(&self, name: &str, work: impl Future<Output = ()> + 'static) {
        self.0.add(self.0.watch.label(name), Box::pin(work));
    }

    /// Waits for this time. The task sleeps, and other tasks run meanwhile.
    ///
    /// The wait takes longer if other tasks run when it ends. If the dispatcher ends before, the wait ends
    /// early. It belongs to the tasks of this dispatcher, and to the idle work. A time beyond the clock's end
    /// never passes.
    ///
    /// # Cost
    /// An entry of a tree, and two readings of the clock.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Dispatcher;
    /// use std::time::{Duration, Instant};
    ///
    /// let dispatcher = Dispatcher::new();
    /// let context = dispatcher.context();
    /// let start = Instant::now();
    /// dispatcher.context().spawn(async move {
    ///     context.sleep(Duration::from_millis(2)).await;
    ///     context.stop();
    /// });
    /// dispatcher.run();
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// ```
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep { core: self.0.clone(), at: Instant::now().checked_add(time), key: None }
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
            long_steps: counts.long_steps.get(),
        }
    }

    /// Ends the dispatcher after the present step. Requests that are being handled are dropped, and their
    /// callers told, unless their mailboxes are full. Calls of tasks end with [`CallFailed::Ended`].
    pub fn stop(&self) {
        self.0.queue.ask(Wish::Stop);
    }

    /// Ends the dispatcher when the requests that it has begun are done.
    ///
    /// From now on it begins no request: the callers get [`CallFailed::Stopped`], which says that the method
    /// did not run. Messages of [`Class::FleetReply`](crate::Class::FleetReply) are received until the end,
    /// since requests may wait for them. The dispatcher waits for the tasks of the begun requests, and for
    /// their replies that wait for room. It does not wait for tasks of [`spawn`](Context::spawn), for idle
    /// work, and for messages of that class.
    ///
    /// A client that takes no replies can hold the end up, and so can a request that waits for ever. So limit
    /// the time:
    /// ```
    /// # use squall::fleet::Dispatcher;
    /// # use std::time::Duration;
    /// let dispatcher = Dispatcher::new();
    /// let context = dispatcher.context();
    /// context.drain();
    /// context.clone().spawn(async move {
    ///     context.sleep(Duration::from_secs(5)).await;
    ///     context.stop();
    /// });
    /// dispatcher.run();
    /// ```
    pub fn drain(&self) {
        self.0.queue.ask(Wish::Drain);
    }

    /// Returns the control of the dispatcher, for other threads.
    pub fn control(&self) -> Control {
        Control::new(self.0.queue.clone(), self.0.watch.clone())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("calls", &self.0.calls.borrow().len()).finish_non_exhaustive()
    }
}

/// Waits for the reply of a call.
pub(crate) struct Reply {
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

/// A wait for a time: see [`Context::sleep`]. Dropping it cancels it.
#[must_use = "a wait does nothing until it is awaited"]
pub struct Sleep {
    core: Rc<Core>,
    /// `None` is beyond the clock's end.
    at: Option<Instant>,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let sleep = self.get_mut();
        if sleep.core.has_ended.get() {
            return Poll::Ready(());
        }
        let Some(at) = sleep.at else { return Poll::Pending };
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        let timers = &sleep.core.timers;
        timers.set(*sleep.key.get_or_insert_with(|| timers.key(at)), cx.waker());
        // Another dispatcher's task may poll it while this one sleeps until a later time.
        if sleep.core.sleeps.get() {
            sleep.core.queue.wake();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.key.into_iter().for_each(|key| self.core.timers.remove(key));
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish_non_exhaustive()
    }
}
