//! A server of a page fleet: a member of the pool of free pages that answers its clients.

use super::ledger::{Free, Holder, Take};
use super::memory::PageLedger;
use super::wire::{BATCH_MAX, Caller, Fault, METHOD, Reply, Request};
use super::{PageBooks, PageError, PageErrorKind};
use crate::frames::{decode, encode};
use crate::{Attributes, DistributedPool, PoolEnd, PoolError, PoolErrorKind};
use squall_fleet::{Name, NameCapability, NameOptions, Node, Refusal, RequestError, ServiceCall};
use squall_machine::park::time_left;
use squall_sys::sync::StdArc as Arc;
use std::time::{Duration, Instant};

/// The time that the pool has to take a page back. A page that it did not take is found again later.
const ADD: Duration = Duration::from_secs(5);
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
}

impl Inner {
    /// Adds a free page to the pool. If it fails, `alloc` finds the page once the pool is empty.
    fn add(&self, page: u32) {
        let _ = self.pool.add(&page.to_le_bytes(), ADD);
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
                    freed.iter().for_each(|page| self.add(*page));
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
    /// its hands. A page that was free before and after a vain get is added again. If that was
    /// wrong, the pool has a number twice, and the ledger refuses the second one.
    ///
    /// A get may wait for a member that is silent. Then the server takes a free page from the ledger. The
    /// number of the page stays in the pool, and is refused like a second one.
    fn alloc(&self, holder: Holder, limit: Duration) -> Reply {
        let ledger = &self.ledger.0;
        let deadline = Instant::now().checked_add(limit);
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
                    let page = u32::from_le_bytes(bytes);
                    match ledger.take(page, holder) {
                        Take::Held => return Reply::Page(Some(page)),
                        Take::NotFree => {}
                        Take::Outdated { is_free } => {
                            if is_free {
                                self.add(page);
                            }
                            return Reply::Outdated;
                        }
                    }
                }
                Ok(None) => {
                    let Some(before) = unseen.take() else {
                        let free = ledger.free_pages();
                        if free.is_empty() {
                            return Reply::Page(None);
                        }
                        unseen = Some(free);
                        continue;
                    };
                    let lost: Vec<u32> = before.into_iter().filter(|page| ledger.is_free(*page)).collect();
                    if lost.is_empty() {
                        return Reply::Page(None);
                    }
                    lost.iter().for_each(|page| self.add(*page));
                }
            }
        }
    }

    /// Takes the first page that is free in the ledger.
    fn alloc_without_pool(&self, holder: Holder) -> Reply {
        let ledger = &self.ledger.0;
        for page in ledger.free_pages() {
            match ledger.take(page, holder) {
                Take::Held => return Reply::Page(Some(page)),
                Take::NotFree => {}
                Take::Outdated { is_free } => {
                    if is_free {
                        self.add(page);
                    }
                    return Reply::Outdated;
                }
            }
        }
        Reply::Page(None)
    }

    fn free(&self, holder: Holder, pages: &[u32]) -> Reply {
        let mut faults = Vec::new();
        for page in pages {
            match self.ledger.0.free(*page, holder) {
                Free::Done => self.add(*page),
                Free::NotHeld => faults.push((*page, Fault::NotHeld)),
                Free::OutOfRange => faults.push((*page, Fault::OutOfRange)),
                // The client settles, and learns which of its pages are free.
                Free::Outdated => return Reply::Outdated,
            }
        }
        Reply::Freed(faults)
    }
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
        let inner = Arc::new(Inner { pool, ledger });
        if inner.ledger.0.fills() {
            (0..inner.ledger.pages()).for_each(|page| inner.add(page));
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
}
