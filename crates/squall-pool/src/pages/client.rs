//! A client of a page fleet.
//!
//! Problem: a reply may be lost, with the number of a page in it. Idea: the client then settles. It waits for
//! its other calls, begins a new epoch at any server, and asks which pages it has.
//!
//! - C1. The client settles between calls: all earlier ones have ended, and later ones wait. So each page of
//!   the answer is known, or is that of a lost reply.
//! - C2. A page of a lost reply is the result of the next allocation.

use super::wire::{BATCH_MAX, Caller, Fault, METHOD, Reply, Request};
use super::{PageError, PageErrorKind, PageNumber};
use crate::frames::{decode, encode};
use squall_fleet::__parts::block_for;
use squall_fleet::{Fate, Name, Node};
use squall_machine::park::time_left;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, StdArc as Arc, lock, thread};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

/// A client tries again after this time while its server leaves.
const RETRY: Duration = Duration::from_millis(2);

type Kind = PageErrorKind;

/// The limit of a call.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(limit))
    }

    /// Returns the time that is left, until it is over.
    fn left(self) -> Option<Duration> {
        // A limit beyond the clock's end never passes.
        let left = time_left(self.0).unwrap_or(Duration::from_secs(3600));
        (!left.is_zero()).then_some(left)
    }
}

struct State {
    caller: Caller,
    /// The pages of this client, as far as it knows.
    held: BTreeSet<u32>,
    /// Pages of lost replies, which the program does not have yet (C2).
    found: Vec<u32>,
    /// Pages whose free had no reply. True once the client knows that they are free.
    doubts: BTreeMap<u32, bool>,
    /// Calls on their way.
    calls: usize,
    /// A reply was lost.
    unsettled: bool,
    /// A thread settles.
    settles: bool,
    is_over: bool,
}

/// A client of a page fleet: allocates and frees pages.
///
/// Calls go to the nearest server. Each call runs at most once. If a reply is lost, for example because the
/// server was killed, the client asks another server which pages it has. So the call goes on with the truth,
/// and no page is lost.
///
/// Threads share a client. A client that is dropped keeps its pages: [`close`](PageClient::close) frees them,
/// or a server ends the client.
///
/// # Examples
#[cfg_attr(not(miri), doc = "```")]
#[cfg_attr(miri, doc = "```ignore")]
/// use squall::fleet::pool::pages::{PageClient, PageLedger, PageMemory, PageServer};
/// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(60);
/// // 64 pages, and the ledger of the servers.
/// let (memory, _file) = PageMemory::create(64)?;
/// let (ledger, ledger_file) = PageLedger::create(64)?;
///
/// // Two servers. Usually each one has a process, and opens the file of the ledger.
/// let (network, key) = (LocalNetwork::new(), GroupKey::random());
/// let (first, root) = NodeBuilder::new(key).found(network.bind("a")?, &[])?;
/// let second = NodeBuilder::new(key).join(network.bind("b")?, &["local/a"])?;
/// second.wait_joined(limit)?;
/// let name = "/pages".parse()?;
/// let server = PageServer::start(&first, &name, &root, ledger)?;
/// PageServer::start(&second, &name, &root, PageLedger::open(&ledger_file, 64)?)?;
///
/// let node = NodeBuilder::new(key).visit(network.bind("c")?, &["local/a"])?;
/// let client = PageClient::connect(Arc::new(node), &name, limit)?;
/// let page = client.alloc(limit)?.expect("64 pages are free");
/// memory.write(page, 0, b"mine");
/// assert_eq!(server.books().free, 63);
/// client.free(page, limit)?;
/// // A second free is an error, and does no harm.
/// assert!(client.free(page, limit).is_err());
/// client.close(limit)?;
/// assert_eq!(server.books().free, 64);
/// # Ok(())
/// # }
/// ```
pub struct PageClient {
    node: Arc<Node>,
    fleet: Name,
    key: u32,
    pages: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for PageClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageClient").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

/// Returns a random number that is neither 0 nor the largest one.
fn random_key() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    1 + (random % u64::from(u32::MAX - 1)) as u32
}

/// Calls a server. `Ok(None)` if the call may have run, without a reply.
fn call(node: &Node, fleet: &Name, request: &Request, left: Duration) -> Result<Option<Reply>, Kind> {
    reply(node.call(fleet, METHOD, &encode(request), left).map_err(|lost| lost.fate))
}

fn reply(result: Result<Vec<u8>, Fate>) -> Result<Option<Reply>, Kind> {
    match result {
        Ok(bytes) => decode(&bytes).map(Some).ok_or(Kind::OtherService),
        Err(Fate::Dropped) => Err(Kind::OtherService),
        Err(fate) if fate.may_have_run() => Ok(None),
        Err(fate) => Err(Kind::NoServer(fate)),
    }
}

impl PageClient {
    /// Makes a client of the fleet of a name.
    ///
    /// # Errors
    /// [`PageErrorKind::NoServer`], [`PageErrorKind::Full`], [`PageErrorKind::TimedOut`],
    /// [`PageErrorKind::OtherService`].
    pub fn connect(node: Arc<Node>, name: &Name, limit: Duration) -> Result<PageClient, PageError> {
        let deadline = Deadline::after(limit);
        let key = random_key();
        let error = |kind| PageError { fleet: name.clone(), kind };
        let (caller, pages) = loop {
            let left = deadline.left().ok_or_else(|| error(Kind::TimedOut))?;
            // A second call with the same key finds the place of the first one.
            match call(&node, name, &Request::Register { key }, left).map_err(error)? {
                Some(Reply::Place { caller, pages }) => break (caller, pages),
                Some(Reply::Full) => return Err(error(Kind::Full)),
                Some(_) => return Err(error(Kind::OtherService)),
                None => {}
            }
        };
        let state = State {
            caller,
            held: BTreeSet::new(),
            found: Vec::new(),
            doubts: BTreeMap::new(),
            calls: 0,
            unsettled: false,
            settles: false,
            is_over: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(PageClient { node, fleet: name.clone(), key, pages, state, changed })
    }

    /// Returns the number of pages of the fleet.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the place and the key of this client in the books of the fleet.
    pub fn identity(&self) -> (u32, u32) {
        (self.state().caller.place, self.key)
    }

    /// Returns the pages of this client. While a call is on its way, or after one that timed out, a page more
    /// or less is possible.
    pub fn held(&self) -> Vec<PageNumber> {
        self.state().held.iter().copied().map(PageNumber).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "a page client")
    }

    fn error(&self, kind: Kind) -> PageError {
        PageError { fleet: self.fleet.clone(), kind }
    }

    /// Begins a call, after other threads have settled. A page that was found ends it: `Err(Ok(page))`.
    fn enter(&self, deadline: Deadline, takes_found: bool) -> Result<Caller, Result<u32, Kind>> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return Err(Err(Kind::Ended));
            }
            if !state.unsettled && !state.settles {
                if let Some(page) = state.found.pop_if(|_| takes_found) {
                    return Err(Ok(page));
                }
                state.calls += 1;
                return Ok(state.caller);
            }
            let left = deadline.left().ok_or(Err(Kind::TimedOut))?;
            if state.settles || state.calls > 0 {
                state = match self.changed.wait_timeout(state, left) {
                    Ok((state, _)) => state,
                    Err(poisoned) => poisoned.into_inner().0,
                };
                continue;
            }
            state.settles = true;
            let place = state.caller.place;
            drop(state);
            let settled = self.settle(place, deadline);
            state = self.state();
            state.settles = false;
            self.changed.notify_all();
            match settled {
                Ok((caller, pages)) => state.settled(caller, pages),
                Err(kind) => {
                    state.is_over |= kind == Kind::Ended;
                    return Err(Err(kind));
                }
            }
        }
    }

    /// Begins a new epoch, and asks for all pages (C1).
    fn settle(&self, place: u32, deadline: Deadline) -> Result<(Caller, BTreeSet<u32>), Kind> {
        'epochs: loop {
            let request = Request::Settle { place, key: self.key };
            let caller = match self.ask(&request, deadline)? {
                Reply::Place { caller, .. } => caller,
                Reply::NoClient => return Err(Kind::Ended),
                _ => return Err(Kind::OtherService),
            };
            let (mut pages, mut from) = (BTreeSet::new(), 0);
            loop {
                match self.ask(&Request::List { caller, from }, deadline)? {
                    Reply::Pages(some) => {
                        let is_last = some.len() < BATCH_MAX;
                        from = some.last().map_or(from, |last| last.saturating_add(1));
                        pages.extend(some);
                        if is_last {
                            return Ok((caller, pages));
                        }
                    }
                    // A late copy of an earlier request has begun another epoch.
                    Reply::Outdated => continue 'epochs,
                    _ => return Err(Kind::OtherService),
                }
            }
        }
    }

    /// Makes a call that may run twice, until it has a reply.
    fn ask(&self, request: &Request, deadline: Deadline) -> Result<Reply, Kind> {
        loop {
            let left = deadline.left().ok_or(Kind::TimedOut)?;
            if let Some(reply) = call(&self.node, &self.fleet, request, left)? {
                return Ok(reply);
            }
        }
    }

    /// Ends a call, perhaps without a reply.
    fn leave(&self, state: &mut State, unsettled: bool) {
        state.calls -= 1;
        state.unsettled |= unsettled;
        self.changed.notify_all();
    }

    /// Allocates a page. `None` if at one moment of the call no page was free, except those that other calls
    /// were about to take or had just freed.
    ///
    /// The page has the bytes of its last holder, or zeros.
    ///
    /// # Errors
    /// [`PageErrorKind::TimedOut`]: a page that was allocated is the result of the next call.
    /// [`PageErrorKind::NoServer`], [`PageErrorKind::Ended`], [`PageErrorKind::OtherService`].
    /// # Cost
    /// A call of the nearest server.
    pub fn alloc(&self, limit: Duration) -> Result<Option<PageNumber>, PageError> {
        self.alloc_until(Deadline::after(limit)).map(|page| page.map(PageNumber)).map_err(|it| self.error(it))
    }

    fn alloc_until(&self, deadline: Deadline) -> Result<Option<u32>, Kind> {
        loop {
            let caller = match self.enter(deadline, true) {
                Ok(caller) => caller,
                Err(Ok(page)) => return Ok(Some(page)),
                Err(Err(kind)) => return Err(kind),
            };
            let left = deadline.left().unwrap_or_default();
            // The server gives up first, so that its reply comes in time.
            let limit_ms = u32::try_from((left / 2).as_millis()).unwrap_or(u32::MAX);
            let reply = call(&self.node, &self.fleet, &Request::Alloc { caller, limit_ms }, left);
            let mut state = self.state();
            let is_lost = matches!(reply, Ok(None | Some(Reply::Outdated)));
            self.leave(&mut state, is_lost);
            match reply? {
                Some(Reply::Page(page)) => {
                    state.held.extend(page);
                    return Ok(page);
                }
                Some(Reply::Busy) => {
                    drop(state);
                    thread::sleep(RETRY);
                }
                Some(Reply::Outdated) | None => {}
                Some(_) => return Err(Kind::OtherService),
            }
            deadline.left().ok_or(Kind::TimedOut)?;
        }
    }

    /// Frees a page.
    ///
    /// # Errors
    /// [`PageErrorKind::NotHeld`], [`PageErrorKind::OutOfRange`]: the page is as before.
    /// [`PageErrorKind::TimedOut`]: the page may be free, or [held](PageClient::held) still.
    /// [`PageErrorKind::NoServer`], [`PageErrorKind::Ended`], [`PageErrorKind::OtherService`].
    /// # Cost
    /// A call of the nearest server.
    pub fn free(&self, page: PageNumber, limit: Duration) -> Result<(), PageError> {
        match self.free_batch(&[page], limit)?.pop() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Frees pages, and returns an error for each page that was not freed.
    ///
    /// # Errors
    /// Errors of [`free`](PageClient::free) that concern the whole call. Then each page is free or held.
    /// # Cost
    /// Calls of the nearest servers, all at the same time, for 1024 pages each.
    pub fn free_batch(&self, pages: &[PageNumber], limit: Duration) -> Result<Vec<PageError>, PageError> {
        let deadline = Deadline::after(limit);
        let mut left: Vec<u32> = pages.iter().map(|page| page.0).collect();
        let mut faults = Vec::new();
        while !left.is_empty() {
            match self.free_some(&left, deadline, &mut faults) {
                Ok(again) => left = again,
                Err(kind) => {
                    // The doubts of this call end with it.
                    let mut state = self.state();
                    left.iter().for_each(|page| _ = state.doubts.remove(page));
                    return Err(self.error(kind));
                }
            }
        }
        let kind = |(page, fault)| match fault {
            Fault::NotHeld => Kind::NotHeld(PageNumber(page)),
            Fault::OutOfRange => Kind::OutOfRange(PageNumber(page)),
        };
        Ok(faults.into_iter().map(|fault| self.error(kind(fault))).collect())
    }

    /// Frees pages in parallel calls. Returns those of calls without a reply.
    fn free_some(
        &self,
        pages: &[u32],
        deadline: Deadline,
        faults: &mut Vec<(u32, Fault)>,
    ) -> Result<Vec<u32>, Kind> {
        let caller = match self.enter(deadline, false) {
            Ok(caller) => caller,
            Err(end) => return Err(end.err().unwrap_or(Kind::OtherService)),
        };
        let mut state = self.state();
        // The settle before this call has decided on the doubts.
        let still = |page: &u32| state.doubts.remove(page) != Some(true);
        let pages: Vec<u32> = pages.iter().copied().filter(still).collect();
        drop(state);
        let left = deadline.left().unwrap_or_default();
        let calls: Vec<_> = pages
            .chunks(BATCH_MAX)
            .map(|chunk| {
                let request = encode(&Request::Free { caller, pages: chunk.to_vec() });
                (chunk, self.node.call_async(&self.fleet, METHOD, &request, left))
            })
            .collect();
        let (mut again, mut end, mut freed) = (Vec::new(), None, Vec::new());
        let mut is_lost = false;
        for (chunk, future) in calls {
            let result = block_for(future, None).map_or(Err(Fate::TimedOut), |it| it.map_err(|it| it.fate));
            match reply(result) {
                Ok(Some(Reply::Freed(some))) => {
                    freed.extend(chunk.iter().copied());
                    faults.extend(some);
                }
                Ok(None | Some(Reply::Outdated)) => {
                    is_lost = true;
                    again.extend_from_slice(chunk);
                }
                Ok(Some(_)) => end = Some(Kind::OtherService),
                Err(kind) => end = Some(kind),
            }
        }
        let mut state = self.state();
        freed.iter().for_each(|page| _ = state.held.remove(page));
        if is_lost {
            state.doubts.extend(again.iter().map(|page| (*page, false)));
        }
        self.leave(&mut state, is_lost);
        match end {
            Some(kind) => Err(kind),
            None if again.is_empty() => Ok(again),
            None => deadline.left().map(|_| again).ok_or(Kind::TimedOut),
        }
    }

    /// Ends the client, and frees its pages.
    ///
    /// # Errors
    /// [`PageErrorKind::TimedOut`], [`PageErrorKind::NoServer`]: call it again, or leave it to a server.
    pub fn close(&self, limit: Duration) -> Result<(), PageError> {
        let deadline = Deadline::after(limit);
        let place = {
            let mut state = self.state();
            state.is_over = true;
            state.caller.place
        };
        // A second call finds that the client has ended.
        match self.ask(&Request::End { place, key: self.key }, deadline).map_err(|it| self.error(it))? {
            Reply::Ended { .. } | Reply::NoClient => {
                let mut state = self.state();
                (state.held, state.found) = (BTreeSet::new(), Vec::new());
                Ok(())
            }
            _ => Err(self.error(Kind::OtherService)),
        }
    }
}

impl State {
    /// Notes the pages of a new epoch (C1).
    fn settled(&mut self, caller: Caller, pages: BTreeSet<u32>) {
        self.caller = caller;
        self.unsettled = false;
        self.found.retain(|page| pages.contains(page));
        self.found.extend(pages.difference(&self.held));
        self.doubts.iter_mut().for_each(|(page, is_free)| *is_free = !pages.contains(page));
        self.held = pages;
    }
}
