//! A server of a page fleet: a member of the pool of free pages that answers its clients.

use super::ledger::{Free, Holder, Take};
use super::memory::PageLedger;
use super::wire::{BATCH_MAX, Caller, Fault, METHOD, Reply, Request};
use super::{PageBooks, PageError, PageErrorKind};
use crate::frames::{decode, encode};
use crate::{Attributes, DistributedPool, PoolEnd, PoolError, PoolErrorKind};
use squall_fleet::{Name, NameCapability, NameOptions, Node, Refusal, RequestError, ServiceCall};
use squall_machine::park::time_left;
use squall_sys::sync::{Mutex, StdArc as Arc};
use std::time::{Duration, Instant};

/// The time that the pool has to take all pages of a call back. A page that it did not take is found again
/// later.
const ADD: Duration = Duration::from_secs(5);
/// The most pages that an allocation adds to the pool again.
const RESCUE_MAX: usize = 1024;
/// The longest time that an allocation waits in the pool. Then the server looks into the ledger.
const GET_MAX: Duration = Duration::from_secs(1);

impl From<Caller> for Holder {
    fn from(caller: Caller) -> Holder {
        Holder { place: caller.place, epoch: caller.epoch }
    }
}

#[derive(Debug)]
struct Inner {
    pool: DistributedPool,
    ledger: PageLedger,
    /// The right to look for pages that the pool has lost: one allocation at a time does so.
    rescue: Mutex<()>,
}

impl Inner {
    /// Adds free pages to the pool, until one add fails or the time is over. `alloc` finds the other pages
    /// once the pool is empty.
    fn add(&self, pages: &[u32]) {
        let deadline = Instant::now() + ADD;
        let _ =
            add_until(&self.pool, pages.iter().copied(), || time_left(Some(deadline)).unwrap_or_default());
    }

    fn answer(&self, request: Request) -> Reply {
        let ledger = &self.ledger.0;
        // A client of an earlier ledger settles, and learns that it was ended.
        let is_other = |caller: Caller| caller.ledger != ledger.identity();
        match request {
            Request::Alloc { caller, .. } | Request::Free { caller, .. } | Request::List { caller, .. }
                if is_other(caller) =>
            {
                Reply::Outdated
            }
            Request::Register { key: 0 | u32::MAX } => Reply::Full,
            Request::Register { key } => ledger.register(key).map_or(Reply::Full, |it| self.place(it)),
            Request::Alloc { caller, limit_ms } => {
                self.alloc(caller.into(), Duration::from_millis(limit_ms.into()))
            }
            Request::Free { pages, .. } if pages.len() > BATCH_MAX => Reply::TooMany,
            Request::Free { caller, pages } => self.free(caller.into(), &pages),
            Request::Settle { place, key } => {
                ledger.settle(place, key).map_or(Reply::NoClient, |it| self.place(it))
            }
            Request::List { caller, from } => {
                ledger.list(caller.into(), from, BATCH_MAX).map_or(Reply::Outdated, Reply::Pages)
            }
            Request::End { place, key } => match ledger.end(place, key) {
                Ok(freed) => {
                    self.add(&freed);
                    Reply::Ended { freed: freed.len() as u32 }
                }
                Err(_) => Reply::NoClient,
            },
        }
    }

    fn place(&self, Holder { place, epoch }: Holder) -> Reply {
        Reply::Place {
            caller: Caller { ledger: self.ledger.0.identity(), place, epoch },
            pages: self.ledger.pages(),
        }
    }

    /// Finds a page for a client.
    ///
    /// If the pool is empty, pages may be free all the same: a server died with their numbers, or has them in
    /// its hands. A page that was free before and after a vain get is added again. If that was wrong, the
    /// pool has a number twice, and the ledger refuses the second one. One allocation does so for at most
    /// 1024 pages at a time. The others take a free page from the ledger meanwhile.
    ///
    /// A get may wait for a member that is silent. Then the server takes a free page from the ledger. The
    /// number of the page stays in the pool, and is refused like a second one.
    fn alloc(&self, holder: Holder, limit: Duration) -> Reply {
        let ledger = &self.ledger.0;
        let deadline = Instant::now().checked_add(limit);
        let mut rescue = None;
        let mut unseen: Option<Vec<u32>> = None;
        loop {
            if ledger.is_outdated(holder) {
                return Reply::Outdated;
            }
            let left = time_left(deadline).unwrap_or(limit);
            match self.pool.get(left.min(GET_MAX)) {
                Err(PoolError { kind: PoolErrorKind::TimedOut { .. }, .. }) => {
                    return self.alloc_without_pool(holder);
                }
                Err(_) => return Reply::Busy,
                Ok(Some(element)) => {
                    // Only servers add elements, and all are such numbers.
                    let Ok(bytes) = <[u8; 4]>::try_from(&element[..]) else { continue };
                    if let Some(reply) = self.take(u32::from_le_bytes(bytes), holder) {
                        return reply;
                    }
                }
                Ok(None) => {
                    if rescue.is_none() {
                        rescue = self.rescue.try_lock().ok();
                    }
                    if rescue.is_none() {
                        return self.alloc_without_pool(holder);
                    }
                    let Some(mut lost) = unseen.take() else {
                        let free: Vec<u32> = ledger.free_pages().take(RESCUE_MAX).collect();
                        if free.is_empty() {
                            return Reply::Page(None);
                        }
                        unseen = Some(free);
                        continue;
                    };
                    let is_all = lost.len() < RESCUE_MAX;
                    lost.retain(|page| ledger.is_free(*page));
                    if lost.is_empty() && is_all {
                        return Reply::Page(None);
                    }
                    self.add(&lost);
                }
            }
        }
    }

    /// Takes a page from the ledger. `None` if the page is not free.
    fn take(&self, page: u32, holder: Holder) -> Option<Reply> {
        match self.ledger.0.take(page, holder) {
            Take::Held => Some(Reply::Page(Some(page))),
            Take::NotFree => None,
            Take::Outdated { is_free } => {
                if is_free {
                    self.add(&[page]);
                }
                Some(Reply::Outdated)
            }
        }
    }

    /// Takes the first page that is free in the ledger.
    fn alloc_without_pool(&self, holder: Holder) -> Reply {
        let mut free = self.ledger.0.free_pages();
        free.find_map(|page| self.take(page, holder)).unwrap_or(Reply::Page(None))
    }

    fn free(&self, holder: Holder, pages: &[u32]) -> Reply {
        let (mut faults, mut freed, mut is_outdated) = (Vec::new(), Vec::new(), false);
        for page in pages {
            match self.ledger.0.free(*page, holder) {
                Free::Done => freed.push(*page),
                Free::NotHeld => faults.push((*page, Fault::NotHeld)),
                Free::OutOfRange => faults.push((*page, Fault::OutOfRange)),
                // The client settles, and learns which of its pages are free.
                Free::Outdated => {
                    is_outdated = true;
                    break;
                }
            }
        }
        self.add(&freed);
        if is_outdated { Reply::Outdated } else { Reply::Freed(faults) }
    }
}

/// Adds pages to the pool, each within the time of `left`. The first failure ends it. Returns the number of
/// pages that were added.
fn add_until(pool: &DistributedPool, pages: impl Iterator<Item = u32>, left: impl Fn() -> Duration) -> usize {
    let adds = pages.map(|page| pool.add(&page.to_le_bytes(), left()));
    adds.take_while(Result::is_ok).count()
}

/// A server of a page fleet.
///
/// The servers of a fleet serve one name, and share the free pages by a pool of their numbers. A client talks
/// to the nearest server. If that one has no page at hand, it finds one at another server, by messages.
///
/// All servers have one [`PageLedger`], which names the holder of each page. So a server that is killed loses
/// no page: its free pages are found again once the others run dry.
///
/// Without a handle the server goes on, until its node leaves the group.
///
/// # Cost
/// The cost of a [`DistributedPool`], and a locked instruction or two for each page.
///
/// Source: Wentzlaff, *fos*, 2012, §5.1 (DP-18), §3.2.4 (FO-14).
#[derive(Debug)]
pub struct PageServer {
    inner: Arc<Inner>,
    fleet: Name,
    capability: NameCapability,
}

impl PageServer {
    /// Begins to serve the name of a fleet, and joins the pool `NAME/free` of its free pages. The first
    /// server over all processes fills the pool. Returns once clients can call.
    ///
    /// All servers open the ledger of the first one. Once no server is left, one with a new ledger may begin
    /// another fleet under the name. Its clients are new ones: calls of earlier clients end with
    /// [`PageErrorKind::Ended`].
    ///
    /// # Errors
    /// [`PageErrorKind::OtherLedger`], [`PageErrorKind::Pool`], [`PageErrorKind::NotServed`],
    /// [`PageErrorKind::LongName`].
    /// # Cost
    /// The first server adds each page to the pool.
    pub fn start(
        node: &Node,
        name: &Name,
        parent: &NameCapability,
        ledger: PageLedger,
    ) -> Result<PageServer, PageError> {
        let error = |kind| PageError { fleet: name.clone(), kind };
        let pool: Name = format!("{name}/free").parse().map_err(|_| error(PageErrorKind::LongName))?;
        // Servers with two ledgers would give a page out twice. The directory refuses the second one.
        let identity = ledger.0.identity();
        let pool = DistributedPool::join_apart(node, &pool, parent, Attributes::default(), identity);
        let pool = pool.map_err(|why| match why.kind {
            PoolErrorKind::NotJoined(RequestError::Refused(Refusal::NameClash)) => {
                error(PageErrorKind::OtherLedger)
            }
            _ => error(PageErrorKind::Pool(why)),
        })?;
        let inner = Arc::new(Inner { pool, ledger, rescue: Mutex::new(()) });
        if inner.ledger.0.fills() {
            // Allocations find the pages that the pool did not take.
            let _ = add_until(&inner.pool, 0..inner.ledger.pages(), || ADD);
        }
        let of_calls = inner.clone();
        let service = move |call: ServiceCall<'_>| {
            // Another version, or a stranger: the client learns that the call was dropped.
            let request = (call.method == METHOD).then(|| decode(call.body)).flatten()?;
            Some(encode(&of_calls.answer(request)))
        };
        match node.serve(name, parent, NameOptions::new().stateless(), service) {
            Ok(capability) => Ok(PageServer { inner, fleet: name.clone(), capability }),
            Err(why) => {
                let _ = inner.pool.shutdown(ADD);
                Err(error(PageErrorKind::NotServed(why)))
            }
        }
    }

    /// Returns the name of the fleet.
    pub fn fleet(&self) -> &Name {
        &self.fleet
    }

    /// Returns the account of all pages, like [`PageLedger::books`].
    pub fn books(&self) -> PageBooks {
        self.inner.ledger.books()
    }

    /// Returns the pool of free pages, for its counts and places. A page that is taken from it is found
    /// again.
    pub fn pool(&self) -> &DistributedPool {
        &self.inner.pool
    }

    /// Ends a client of the [`books`](PageServer::books), for example of a process that died, and frees its
    /// pages. Its calls fail from now on. Returns the number of pages.
    ///
    /// # Errors
    /// [`PageErrorKind::Ended`], if the client has ended.
    /// # Cost
    /// A read of each page's word, and an add to the pool for each page.
    pub fn end_client(&self, place: u32, key: u32) -> Result<u32, PageError> {
        match self.inner.answer(Request::End { place, key }) {
            Reply::Ended { freed } => Ok(freed),
            _ => Err(PageError { fleet: self.fleet.clone(), kind: PageErrorKind::Ended }),
        }
    }

    /// Leaves the fleet: takes no more calls, and gives the free pages at this server to the others. Free
    /// pages of the last server stay in the ledger, and a later server finds them.
    ///
    /// # Errors
    /// [`PageErrorKind::NotServed`]. [`PageErrorKind::Pool`]: the member of the pool goes on leaving.
    pub fn shutdown(&self, node: &Node, limit: Duration) -> Result<(), PageError> {
        let error = |kind| PageError { fleet: self.fleet.clone(), kind };
        let ended = node.end_service(&self.capability);
        ended.map_err(|why| error(PageErrorKind::NotServed(why)))?;
        let (PoolEnd::Left | PoolEnd::LastLeft { .. }) =
            self.inner.pool.shutdown(limit).map_err(|why| error(PageErrorKind::Pool(why)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_fleet::{GroupKey, LocalNetwork, NodeBuilder};

    #[test]
    fn a_silent_pool_delays_no_page_and_its_old_numbers_are_refused() {
        let network = LocalNetwork::new();
        let (node, root) =
            NodeBuilder::new(GroupKey::random()).found(network.bind("a").unwrap(), &[]).unwrap();
        let (ledger, _) = PageLedger::create(3).unwrap();
        let server = PageServer::start(&node, &"/pages".parse().unwrap(), &root, ledger).unwrap();
        let inner = &server.inner;
        let holder = inner.ledger.0.register(7).expect("a place");
        let pages = (0..3).map(|_| inner.alloc_without_pool(holder));
        assert_eq!(pages.collect::<Vec<_>>(), [0, 1, 2].map(|page| Reply::Page(Some(page))));
        assert_eq!(inner.alloc_without_pool(holder), Reply::Page(None));
        // The pool has all three numbers still.
        let limit = Duration::from_secs(60);
        assert_eq!(inner.alloc(holder, limit), Reply::Page(None));
        // The number of a page that becomes free comes into the pool again.
        assert_eq!(inner.free(holder, &[1]), Reply::Freed(Vec::new()));
        assert_eq!(inner.alloc(holder, limit), Reply::Page(Some(1)));
        assert_eq!(inner.alloc(holder, limit), Reply::Page(None));
        assert_eq!(server.books().clients[0].pages, 3);
        let later = inner.ledger.0.settle(holder.place, 7).expect("the client is known");
        assert_eq!(inner.alloc_without_pool(holder), Reply::Page(None));
        assert_eq!(inner.free(later, &[2]), Reply::Freed(Vec::new()));
        assert_eq!(inner.alloc_without_pool(holder), Reply::Outdated);
        assert!(inner.ledger.0.is_free(2));
    }
    fn alone(pages: u32) -> (Node, PageServer, Holder) {
        let (node, root) =
            NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap();
        let (ledger, _) = PageLedger::create(pages).unwrap();
        let server = PageServer::start(&node, &"/pages".parse().unwrap(), &root, ledger).unwrap();
        let holder = server.inner.ledger.0.register(7).expect("a place");
        (node, server, holder)
    }

    #[test]
    fn pages_that_the_pool_lost_are_added_again_by_one_allocation_and_in_parts() {
        let limit = Duration::from_secs(60);
        let count = RESCUE_MAX as u32 + 500;
        let (_node, server, holder) = alone(count);
        let inner = &server.inner;
        while inner.pool.get(limit).unwrap().is_some() {}
        // Another allocation adds pages.
        let other = inner.rescue.lock().unwrap();
        assert_eq!(inner.alloc(holder, limit), Reply::Page(Some(0)));
        assert_eq!(inner.pool.size(limit).unwrap(), 0);
        drop(other);
        assert!(matches!(inner.alloc(holder, limit), Reply::Page(Some(_))));
        assert_eq!(inner.pool.size(limit).unwrap(), RESCUE_MAX as u64 - 1);
        let rest = std::iter::from_fn(|| match inner.alloc(holder, limit) {
            Reply::Page(page) => page,
            other => panic!("{other:?}"),
        });
        assert_eq!(rest.count() as u32, count - 2);
    }

    #[test]
    fn a_pool_that_takes_no_page_is_asked_once() {
        let limit = Duration::from_secs(60);
        let (_node, server, holder) = alone(3);
        let inner = &server.inner;
        let taken = (0..3).map(|_| inner.alloc_without_pool(holder)).filter(|it| *it != Reply::Page(None));
        assert_eq!(taken.count(), 3);
        let (PoolEnd::Left | PoolEnd::LastLeft { .. }) = inner.pool.shutdown(limit).unwrap();
        let asked = std::cell::Cell::new(0);
        let left = || {
            asked.set(asked.get() + 1);
            limit
        };
        assert_eq!((add_until(&inner.pool, 0..3, left), asked.get()), (0, 1));
        // The ledger has the pages.
        assert_eq!(
            inner.free(holder, &[0, 1, 1, 3]),
            Reply::Freed(vec![(1, Fault::NotHeld), (3, Fault::OutOfRange)])
        );
        assert_eq!(server.books().free, 2);
    }
}
