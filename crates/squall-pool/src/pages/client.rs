//! A client of a page fleet.
//!
//! Problem: a reply may be lost, with the number of a page in it. Idea: the client then settles. It waits for
//! its other calls, begins a new epoch at any server, and asks which pages it has.
//!
//! - C1. The client settles between calls: all earlier ones have ended, and later ones wait. So each page of
//!   the answer is known, or is that of a lost reply.
//! - C2. A page of a lost reply is the result of the next allocation.
//! - C3. A page leaves `held` before its free is sent, and the reply does not touch `held`. So another thread
//!   may allocate the page before the reply comes.
//! - C4. The result of an allocation was free before. So it ends all doubts about an earlier free of it.
//!   That free is not repeated.

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
    /// The pages that the program has.
    held: BTreeSet<u32>,
    /// Pages that the program frees, and the number of the free. A page leaves once it is known to be free
    /// (C3).
    freeing: BTreeMap<u32, u64>,
    /// Pages of lost replies, which the program does not have yet (C2).
    found: BTreeSet<u32>,
    /// The number of the last free.
    frees: u64,
    /// Calls on their way.
    calls: usize,
    /// A reply was lost.
    unsettled: bool,
    /// A thread settles.
    settles: bool,
    is_over: bool,
}

/// Pages that one call frees.
struct Freeing {
    number: u64,
    pages: Vec<u32>,
}

/// The end of parallel calls that free pages.
#[derive(Default)]
struct Freed {
    /// Pages with a reply.
    freed: Vec<u32>,
    faults: Vec<(u32, Fault)>,
    /// Pages of calls without a reply.
    lost: Vec<u32>,
    is_lost: bool,
    end: Option<Kind>,
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
    /// [`PageErrorKind::TimedOut`]: a place without pages may stay in the [books](super::PageLedger::books).
    /// [`PageErrorKind::NoServer`], [`PageErrorKind::Full`], [`PageErrorKind::OtherService`].
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
        let (state, changed) = (Mutex::new(State::new(caller, BTreeSet::new())), Condvar::new());
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
        let state = self.state();
        let pages: BTreeSet<&u32> =
            state.held.iter().chain(&state.found).chain(state.freeing.keys()).collect();
        pages.into_iter().copied().map(PageNumber).collect()
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
                if let Some(page) = takes_found.then(|| state.found.pop_last()).flatten() {
                    state.held.insert(page);
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
                Ok((caller, pages)) => state.settled(caller, &pages),
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
                    page.into_iter().for_each(|page| state.allocated(page));
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
    /// [`PageErrorKind::TimedOut`]: the page may be free, or [held](PageClient::held) still. If it is free,
    /// another thread may allocate it: then a second free concerns that thread's page.
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
        let mut faults = Vec::new();
        let freed = self.free_until(pages, Deadline::after(limit), &mut faults);
        freed.map_err(|kind| self.error(kind))?;
        let kind = |(page, fault)| match fault {
            Fault::NotHeld => Kind::NotHeld(PageNumber(page)),
            Fault::OutOfRange => Kind::OutOfRange(PageNumber(page)),
        };
        Ok(faults.into_iter().map(|fault| self.error(kind(fault))).collect())
    }

    fn free_until(
        &self,
        pages: &[PageNumber],
        deadline: Deadline,
        faults: &mut Vec<(u32, Fault)>,
    ) -> Result<(), Kind> {
        let mut freeing: Option<Freeing> = None;
        loop {
            let caller = match self.enter(deadline, false) {
                Ok(caller) => caller,
                Err(end) => {
                    freeing.into_iter().for_each(|freeing| self.state().give_up(freeing));
                    return Err(end.err().unwrap_or(Kind::OtherService));
                }
            };
            let mut state = self.state();
            let mut left = match freeing.take() {
                None => state.begin_free(pages, self.pages, faults),
                Some(left) => state.in_doubt(left),
            };
            drop(state);
            let result = self.free_some(caller, &left.pages, deadline);
            let mut state = self.state();
            faults.extend(result.faults);
            state.freed(left.number, &result.freed);
            self.leave(&mut state, result.is_lost);
            let is_over = result.is_lost && deadline.left().is_none();
            if let Some(kind) = result.end.or(is_over.then_some(Kind::TimedOut)) {
                state.give_up(left);
                return Err(kind);
            }
            if !result.is_lost {
                return Ok(());
            }
            left.pages = result.lost;
            freeing = Some(left);
        }
    }

    /// Frees pages in parallel calls.
    fn free_some(&self, caller: Caller, pages: &[u32], deadline: Deadline) -> Freed {
        let left = deadline.left().unwrap_or_default();
        let calls: Vec<_> = pages
            .chunks(BATCH_MAX)
            .map(|chunk| {
                let request = encode(&Request::Free { caller, pages: chunk.to_vec() });
                (chunk, self.node.call_async(&self.fleet, METHOD, &request, left))
            })
            .collect();
        let mut result = Freed::default();
        for (chunk, future) in calls {
            let replied = block_for(future, None).map_or(Err(Fate::TimedOut), |it| it.map_err(|it| it.fate));
            match reply(replied) {
                Ok(Some(Reply::Freed(some))) => {
                    result.freed.extend_from_slice(chunk);
                    result.faults.extend(some);
                }
                Ok(None | Some(Reply::Outdated)) => {
                    result.is_lost = true;
                    result.lost.extend_from_slice(chunk);
                }
                Ok(Some(_)) => result.end = Some(Kind::OtherService),
                Err(kind) => result.end = Some(kind),
            }
        }
        result
    }

    /// Ends the client, and frees its pages.
    ///
    /// # Errors
    /// [`PageErrorKind::TimedOut`], [`PageErrorKind::NoServer`]: call it again, or leave it to a server.
    pub fn close(&self, limit: Duration) -> Result<(), PageError> {
        let deadline = Deadline::after(limit);
        let caller = {
            let mut state = self.state();
            state.is_over = true;
            state.caller
        };
        // A second call finds that the client has ended.
        match self
            .ask(&Request::End { place: caller.place, key: self.key }, deadline)
            .map_err(|it| self.error(it))?
        {
            Reply::Ended { .. } | Reply::NoClient => {
                let mut state = self.state();
                state.settled(caller, &BTreeSet::new());
                Ok(())
            }
            _ => Err(self.error(Kind::OtherService)),
        }
    }
}

impl State {
    fn new(caller: Caller, held: BTreeSet<u32>) -> State {
        State {
            caller,
            held,
            freeing: BTreeMap::new(),
            found: BTreeSet::new(),
            frees: 0,
            calls: 0,
            unsettled: false,
            settles: false,
            is_over: false,
        }
    }

    /// Notes the result of an allocation (C4).
    fn allocated(&mut self, page: u32) {
        self.freeing.remove(&page);
        self.held.insert(page);
    }

    /// Begins to free pages. Those that the program does not have are faults at once.
    fn begin_free(&mut self, pages: &[PageNumber], count: u32, faults: &mut Vec<(u32, Fault)>) -> Freeing {
        self.frees += 1;
        let mut freeing = Freeing { number: self.frees, pages: Vec::new() };
        for PageNumber(page) in pages.iter().copied() {
            if self.held.remove(&page) {
                self.freeing.insert(page, freeing.number);
                freeing.pages.push(page);
            } else {
                faults.push((page, if page < count { Fault::NotHeld } else { Fault::OutOfRange }));
            }
        }
        freeing
    }

    /// Drops the pages that are known to be free.
    fn in_doubt(&self, mut freeing: Freeing) -> Freeing {
        freeing.pages.retain(|page| self.freeing.get(page) == Some(&freeing.number));
        freeing
    }

    /// Notes that pages of a free are free, or were never held.
    fn freed(&mut self, number: u64, pages: &[u32]) {
        for page in pages {
            if self.freeing.get(page) == Some(&number) {
                self.freeing.remove(page);
            }
        }
    }

    /// Ends a free without a result. The next settle finds out which of its pages are free.
    fn give_up(&mut self, freeing: Freeing) {
        for page in self.in_doubt(freeing).pages {
            self.freeing.remove(&page);
            self.held.insert(page);
        }
    }

    /// Notes the pages of a new epoch (C1).
    fn settled(&mut self, caller: Caller, pages: &BTreeSet<u32>) {
        self.caller = caller;
        self.unsettled = false;
        self.held.retain(|page| pages.contains(page));
        self.freeing.retain(|page, _| pages.contains(page));
        let is_found = |page: &&u32| !self.held.contains(page) && !self.freeing.contains_key(page);
        self.found = pages.iter().filter(is_found).copied().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Holder, Take};
    use super::*;
    use crate::pages::PageLedger;
    use squall_fleet::{GroupKey, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};
    use squall_sys::sync::atomic::AtomicBool;
    use squall_sys::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc::channel;

    const CALLER: Caller = Caller { ledger: 1, place: 1, epoch: 1 };

    fn state(held: &[u32]) -> State {
        State::new(CALLER, held.iter().copied().collect())
    }

    /// Begins to free pages that the program has.
    fn begin(state: &mut State, pages: &[u32]) -> Freeing {
        let pages: Vec<PageNumber> = pages.iter().copied().map(PageNumber).collect();
        let mut faults = Vec::new();
        let freeing = state.begin_free(&pages, 9, &mut faults);
        assert_eq!(faults, []);
        freeing
    }

    fn settle(state: &mut State, pages: &[u32]) {
        state.settled(CALLER, &pages.iter().copied().collect());
    }

    #[test]
    fn a_page_allocated_before_the_reply_of_its_free_stays_held() {
        let mut state = state(&[3]);
        let free = begin(&mut state, &[3]);
        // The server has freed the page, and another thread gets it. Then the reply of the free comes.
        state.allocated(3);
        state.freed(free.number, &[3]);
        settle(&mut state, &[3]);
        assert_eq!((state.held, state.found), (BTreeSet::from([3]), BTreeSet::new()));
    }

    #[test]
    fn a_lost_free_of_a_page_allocated_again_is_not_repeated() {
        let mut state = state(&[3, 4]);
        let free = begin(&mut state, &[3, 4]);
        state.allocated(3);
        settle(&mut state, &[3, 4]);
        let free = state.in_doubt(free);
        assert_eq!(free.pages, [4], "the free of page 4 has not run, and that of page 3 has");
        assert_eq!((&state.held, &state.found), (&BTreeSet::from([3]), &BTreeSet::new()));
        // The thread that has page 3 frees it: the first free does not touch the second one.
        let other = begin(&mut state, &[3]);
        state.freed(free.number, &[3, 4]);
        assert_eq!(state.in_doubt(other).pages, [3]);
    }

    #[test]
    fn a_free_that_was_given_up_is_decided_by_the_next_settle() {
        let mut state = state(&[3, 4]);
        let free = begin(&mut state, &[3, 4]);
        state.give_up(free);
        settle(&mut state, &[4, 5]);
        assert_eq!((&state.held, &state.found), (&BTreeSet::from([4]), &BTreeSet::from([5])));
        // The settle came first, and another thread has one of the pages.
        let free = begin(&mut state, &[4]);
        settle(&mut state, &[5]);
        state.allocated(4);
        let other = begin(&mut state, &[4]);
        state.give_up(free);
        assert_eq!((&state.held, state.in_doubt(other).pages), (&BTreeSet::new(), vec![4]));
    }

    #[test]
    fn pages_that_the_program_does_not_have_are_not_freed() {
        let mut state = state(&[3]);
        settle(&mut state, &[3, 5]);
        let (mut faults, pages) = (Vec::new(), [3, 3, 5, 9].map(PageNumber));
        let freeing = state.begin_free(&pages, 9, &mut faults);
        assert_eq!(freeing.pages, [3]);
        assert_eq!(faults, [(3, Fault::NotHeld), (5, Fault::NotHeld), (9, Fault::OutOfRange)]);
        assert_eq!(state.found, BTreeSet::from([5]), "page 5 is the result of the next allocation");
    }
    /// Another thread allocates a page between its free at the server and the reply, which is lost perhaps.
    fn allocated_before_the_reply_of_a_free(is_lost: bool) {
        let limit = Duration::from_secs(60);
        let (node, root) =
            NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap();
        let name: Name = "/pages".parse().unwrap();
        let (ledger, _) = PageLedger::create(2).unwrap();
        let ((freed, is_freed), (go, gate)) = (channel(), channel::<()>());
        let first = Mutex::new(Some((freed, gate)));
        let (settles, of_calls) = (Arc::new(AtomicBool::new(false)), ledger.0);
        let must_settle = settles.clone();
        let service = move |call: ServiceCall<'_>| {
            let place = |Holder { place, epoch }| Reply::Place {
                caller: Caller { ledger: of_calls.identity(), place, epoch },
                pages: 2,
            };
            Some(encode(&match decode(call.body)? {
                Request::Register { key } => place(of_calls.register(key)?),
                Request::Settle { place: at, key } => place(of_calls.settle(at, key).ok()?),
                Request::List { caller, from } => Reply::Pages(of_calls.list(caller.into(), from, 2)?),
                Request::Alloc { .. } if must_settle.swap(false, Relaxed) => Reply::Outdated,
                Request::Alloc { caller, .. } => {
                    let page = (0..2).find(|page| of_calls.is_free(*page));
                    page.into_iter()
                        .for_each(|page| assert_eq!(of_calls.take(page, caller.into()), Take::Held));
                    Reply::Page(page)
                }
                Request::Free { caller, pages } => {
                    pages.iter().for_each(|page| _ = of_calls.free(*page, caller.into()));
                    let first = first.lock().unwrap().take();
                    let is_first = first.is_some();
                    first.into_iter().for_each(|(freed, gate)| {
                        freed.send(()).unwrap();
                        _ = gate.recv();
                    });
                    if is_first && is_lost { Reply::Outdated } else { Reply::Freed(Vec::new()) }
                }
                Request::End { .. } => return None,
            }))
        };
        node.serve(&name, &root, NameOptions::new().stateless(), service).unwrap();
        let client = PageClient::connect(Arc::new(node), &name, limit).unwrap();
        let page = client.alloc(limit).unwrap().expect("two pages are free");
        std::thread::scope(|scope| {
            let free = scope.spawn(|| client.free(page, limit));
            is_freed.recv().unwrap();
            assert_eq!(client.alloc(limit).unwrap(), Some(page));
            drop(go);
            free.join().unwrap().unwrap();
        });
        settles.store(true, Relaxed);
        let other = client.alloc(limit).unwrap().expect("a page is free");
        assert_ne!(other, page, "two threads have one page");
        assert_eq!(client.alloc(limit).unwrap(), None, "a page that a thread has was freed");
        assert_eq!(client.held(), [page, other]);
    }

    #[test]
    fn a_late_reply_of_a_free_takes_the_page_from_no_thread() {
        allocated_before_the_reply_of_a_free(false);
    }

    #[test]
    fn a_lost_reply_of_a_free_takes_the_page_from_no_thread() {
        allocated_before_the_reply_of_a_free(true);
    }
}
