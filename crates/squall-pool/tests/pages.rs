//! Page fleets on nodes of one process: each page has one holder, and stays in the books.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Group, LIMIT, Result, SHORT};
use squall_fleet::Name;
use squall_pool::pages::{PageClient, PageErrorKind, PageLedger, PageMemory, PageNumber, PageServer};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

struct Fleet {
    group: Group,
    servers: Vec<PageServer>,
    ledger: OwnedFd,
    pages: u32,
}

impl Fleet {
    fn new(count: usize, pages: u32) -> Result<Fleet> {
        let group = Group::new()?;
        let (ledger, file) = PageLedger::create(pages)?;
        let servers = vec![PageServer::start(&group.nodes[0], &name(), &group.root, ledger)?];
        let mut fleet = Fleet { group, servers, ledger: file, pages };
        while fleet.servers.len() < count {
            fleet.grow()?;
        }
        Ok(fleet)
    }

    fn grow(&mut self) -> Result {
        let root = self.group.root.clone();
        let ledger = PageLedger::open(&self.ledger, self.pages)?;
        self.servers.push(PageServer::start(self.group.join()?, &name(), &root, ledger)?);
        Ok(())
    }

    fn client(&mut self) -> Result<PageClient> {
        let (node, _) = self.group.visit()?;
        Ok(PageClient::connect(Arc::new(node), &name(), LIMIT)?)
    }

    fn free_pages(&self) -> u32 {
        self.servers[0].books().free
    }
}

fn name() -> Name {
    "/pages".parse().unwrap()
}

/// Allocates all pages that a client finds.
fn drain(client: &PageClient) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    while let Some(page) = client.alloc(LIMIT)? {
        assert!(found.insert(page.0), "{page} was given out twice");
    }
    Ok(found)
}

#[test]
fn each_page_has_one_holder() -> Result {
    let mut fleet = Fleet::new(3, 24)?;
    let (memory, file) = PageMemory::create(24)?;
    let clients: Vec<PageClient> = (0..4).map(|_| fleet.client()).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        for (at, client) in (0_u32..).zip(&clients) {
            // Each client maps the pages for itself.
            let memory = PageMemory::open(&file, 24).unwrap();
            scope.spawn(move || {
                let mut mine = Vec::new();
                for round in 0..40_u32 {
                    let stamp = (at << 16 | round).to_le_bytes();
                    if let Some(page) = client.alloc(LIMIT).unwrap() {
                        memory.write(page, 4092, &stamp);
                        mine.push((page, stamp));
                    }
                    if mine.len() > 7 || round == 39 {
                        for (page, stamp) in mine.drain(..) {
                            let mut read = [0; 4];
                            memory.read(page, 4092, &mut read);
                            assert_eq!(read, stamp, "another client wrote to {page}");
                            client.free(page, LIMIT).unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(fleet.free_pages(), 24);
    assert_eq!(drain(&clients[3])?, (0..24).collect());
    assert_eq!(clients[0].alloc(LIMIT)?, None);
    memory.zero(PageNumber(0));
    Ok(())
}

#[test]
fn misuse_has_its_error_and_harms_no_other() -> Result {
    let mut fleet = Fleet::new(2, 16)?;
    let (client, other) = (fleet.client()?, fleet.client()?);
    let page = client.alloc(LIMIT)?.expect("a page");
    let kind = |result: Result<(), squall_pool::pages::PageError>| result.unwrap_err().kind;
    // Another client's page, a free page, and no page at all.
    assert_eq!(kind(other.free(page, LIMIT)), PageErrorKind::NotHeld(page));
    let free = PageNumber((page.0 + 1) % 16);
    assert_eq!(kind(client.free(free, LIMIT)), PageErrorKind::NotHeld(free));
    let none = PageNumber(16);
    let error = client.free(none, LIMIT).unwrap_err();
    assert_eq!(error.kind, PageErrorKind::OutOfRange(none));
    assert!(error.to_string().starts_with("page fleet /pages: page 16 does not exist"), "{error}");
    assert_eq!(client.held(), [page]);
    client.free(page, LIMIT)?;
    assert_eq!(kind(client.free(page, LIMIT)), PageErrorKind::NotHeld(page));
    // The second free added no second number: all pages are distinct.
    assert_eq!(drain(&other)?, (0..16).collect());
    assert_eq!(kind(client.free(page, LIMIT)), PageErrorKind::NotHeld(page));
    // A batch frees the good ones.
    let batch: Vec<PageNumber> = [3, 3, 99, 5].map(PageNumber).into();
    let kinds: Vec<_> = other.free_batch(&batch, LIMIT)?.into_iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [PageErrorKind::NotHeld(PageNumber(3)), PageErrorKind::OutOfRange(PageNumber(99))]);
    assert_eq!(fleet.free_pages(), 2);
    // A frame that is no request.
    let node = &fleet.group.nodes[0];
    assert!(node.call(&name(), 1, b"\xFF\xFF", LIMIT).is_err());
    assert!(node.call(&name(), 7, b"", LIMIT).is_err());
    Ok(())
}

#[test]
fn a_large_batch_is_freed_in_parallel_calls() -> Result {
    let mut fleet = Fleet::new(2, 5000)?;
    let client = fleet.client()?;
    let pages: Vec<PageNumber> = drain(&client)?.into_iter().map(PageNumber).collect();
    assert_eq!((pages.len(), fleet.free_pages()), (5000, 0));
    assert_eq!(client.free_batch(&pages, LIMIT)?, []);
    assert_eq!((client.held(), fleet.free_pages()), (vec![], 5000));
    Ok(())
}

#[test]
fn a_killed_server_loses_no_page() -> Result {
    let mut fleet = Fleet::new(3, 60)?;
    let clients: Vec<PageClient> = (0..3).map(|_| fleet.client()).collect::<Result<_>>()?;
    let held: Vec<PageNumber> =
        clients.iter().map(|client| Ok(client.alloc(LIMIT)?.expect("a page"))).collect::<Result<_>>()?;
    // The first server filled the pool, so it has most of the numbers.
    drop(fleet.group.nodes.remove(0));
    fleet.servers.remove(0);
    let found = drain(&clients[1])?;
    assert_eq!(found.len(), 57);
    assert!(held.iter().all(|page| !found.contains(&page.0)));
    assert_eq!(fleet.free_pages(), 0);
    for (client, page) in clients.iter().zip(&held) {
        client.free(*page, LIMIT)?;
    }
    assert_eq!(fleet.free_pages(), 3);
    Ok(())
}

#[test]
fn pages_outlive_all_servers() -> Result {
    let mut fleet = Fleet::new(2, 20)?;
    let client = fleet.client()?;
    let page = client.alloc(LIMIT)?.expect("a page");
    for at in 0..2 {
        fleet.servers[at].shutdown(&fleet.group.nodes[at], LIMIT)?;
    }
    let lost = client.alloc(SHORT).unwrap_err();
    assert!(matches!(lost.kind, PageErrorKind::NoServer(_) | PageErrorKind::TimedOut), "{lost}");
    fleet.grow()?;
    let mut found = drain(&client)?;
    assert!(found.insert(page.0));
    assert_eq!(found, (0..20).collect());
    client.close(LIMIT)?;
    assert_eq!(fleet.free_pages(), 20);
    assert_eq!(client.alloc(LIMIT).unwrap_err().kind, PageErrorKind::Ended);
    Ok(())
}

#[test]
fn a_lost_reply_loses_no_page() -> Result {
    let mut fleet = Fleet::new(1, 8)?;
    let (node, endpoint) = fleet.group.visit()?;
    let client = PageClient::connect(Arc::new(node), &name(), LIMIT)?;
    // Calls come to the server, and no reply comes back.
    let cut = |is_cut: bool| fleet.group.cut(is_cut.then_some(&endpoint));
    cut(true);
    while fleet.free_pages() == 8 {
        let lost = client.alloc(SHORT).unwrap_err();
        assert!(matches!(lost.kind, PageErrorKind::TimedOut | PageErrorKind::NoServer(_)), "{lost}");
    }
    assert_eq!(client.held(), []);
    cut(false);
    // The lost page is among the next ones.
    assert_eq!(drain(&client)?, (0..8).collect());
    assert_eq!(client.held().len(), 8);
    // The same with a free that times out.
    cut(true);
    let page = PageNumber(3);
    while fleet.free_pages() == 0 {
        assert!(client.free(page, SHORT).is_err());
    }
    cut(false);
    assert_eq!(client.alloc(LIMIT)?, Some(page));
    // And with a free that goes on until it knows.
    cut(true);
    std::thread::scope(|scope| {
        let freed = scope.spawn(|| client.free(PageNumber(5), Duration::from_secs(10)));
        while fleet.free_pages() == 0 && !freed.is_finished() {
            std::thread::yield_now();
        }
        cut(false);
        freed.join().unwrap()
    })?;
    assert_eq!((client.held().len(), fleet.free_pages()), (7, 1));
    Ok(())
}

#[test]
fn the_pages_of_a_dead_client_are_named_and_freed() -> Result {
    let mut fleet = Fleet::new(2, 10)?;
    let (client, other) = (fleet.client()?, fleet.client()?);
    for _ in 0..4 {
        client.alloc(LIMIT)?.expect("a page");
    }
    other.alloc(LIMIT)?.expect("a page");
    let (place, key) = client.identity();
    let books = fleet.servers[1].books();
    assert_eq!((books.pages, books.free, books.clients.len()), (10, 5, 2));
    let dead = books.clients.iter().find(|client| client.key == key).expect("the books name the client");
    assert_eq!((dead.place, dead.pages), (place, 4));
    assert_eq!(fleet.servers[1].end_client(place, key)?, 4);
    let again = fleet.servers[0].end_client(place, key).unwrap_err();
    assert_eq!(again.kind, PageErrorKind::Ended);
    // It was not dead: its calls fail, and harm no other client.
    assert_eq!(client.alloc(LIMIT).unwrap_err().kind, PageErrorKind::Ended);
    assert_eq!(drain(&other)?.len(), 9);
    assert_eq!(fleet.servers[0].books().clients.len(), 1);
    Ok(())
}

/// The server has taken a page for a call, and dies before the reply. The numbers of all other pages are in
/// its hands then.
#[test]
fn a_server_that_dies_before_its_reply_loses_no_page() -> Result {
    let mut fleet = Fleet::new(1, 8)?;
    // The client knows all nodes. Only the first one has a server.
    fleet.group.join()?;
    fleet.group.join()?;
    let (node, endpoint) = fleet.group.visit()?;
    let client = PageClient::connect(Arc::new(node), &name(), LIMIT)?;
    fleet.group.cut(Some(&endpoint));
    while fleet.free_pages() == 8 {
        assert!(client.alloc(SHORT).is_err());
    }
    let taken = 8 - fleet.free_pages();
    let pool = fleet.servers[0].pool().clone();
    let numbers = std::iter::from_fn(|| pool.get(LIMIT).transpose()).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(numbers.len() as u32 + taken, 8);
    for node in &fleet.group.nodes[1..] {
        let ledger = PageLedger::open(&fleet.ledger, 8)?;
        fleet.servers.push(PageServer::start(node, &name(), &fleet.group.root, ledger)?);
    }
    drop(fleet.group.nodes.remove(0));
    fleet.servers.remove(0);
    let held = fleet.servers[0].books().clients[0].pages;
    assert_eq!(held, taken, "the books name the client of a page without a reply");
    fleet.group.cut(None);
    assert_eq!(drain(&client)?, (0..8).collect());
    assert_eq!((client.held().len(), fleet.free_pages()), (8, 0));
    Ok(())
}

#[test]
fn another_ledger_is_refused_and_its_clients_are_new_ones() -> Result {
    let mut fleet = Fleet::new(2, 6)?;
    let client = fleet.client()?;
    let page = client.alloc(LIMIT)?.expect("a page");
    let (node, root) = (&fleet.group.nodes[1], &fleet.group.root);
    let (ledger, _) = PageLedger::create(6)?;
    let refused = PageServer::start(node, &name(), root, ledger).unwrap_err();
    assert_eq!(refused.kind, PageErrorKind::OtherLedger);
    assert!(refused.to_string().contains("open the file of theirs"), "{refused}");
    // A new fleet under the old name. Its books do not have the earlier client.
    for (server, node) in fleet.servers.iter().zip(&fleet.group.nodes) {
        server.shutdown(node, LIMIT)?;
    }
    let (ledger, _) = PageLedger::create(6)?;
    let server = PageServer::start(node, &name(), root, ledger)?;
    assert_eq!(client.free(page, LIMIT).unwrap_err().kind, PageErrorKind::Ended);
    assert_eq!(client.alloc(LIMIT).unwrap_err().kind, PageErrorKind::Ended);
    assert_eq!((server.books().free, server.books().clients.len()), (6, 0));
    let other = fleet.client()?;
    assert_eq!(drain(&other)?, (0..6).collect());
    Ok(())
}
