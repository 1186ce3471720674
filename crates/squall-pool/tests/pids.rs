//! Fleets of process ids: an id has one user, and is reused late.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Group, LIMIT, Result, SHORT};
use squall_fleet::Name;
use squall_pool::pids::{Pid, PidClient, PidErrorKind, PidServer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

struct Fleet {
    group: Group,
    servers: Vec<PidServer>,
}

impl Fleet {
    fn new(count: usize, ids: u32) -> Result<Fleet> {
        let mut group = Group::new()?;
        let mut servers = vec![PidServer::found(&group.nodes[0], &name(), &group.root, ids)?];
        while servers.len() < count {
            let root = group.root.clone();
            servers.push(PidServer::join(group.join()?, &name(), &root, ids)?);
        }
        Ok(Fleet { group, servers })
    }

    fn client(&mut self) -> Result<PidClient> {
        let (node, _) = self.group.visit()?;
        Ok(PidClient::connect(Arc::new(node), &name(), LIMIT)?)
    }
}

fn name() -> Name {
    "/pids".parse().unwrap()
}

/// Allocates all ids that a client finds.
fn drain(client: &PidClient) -> Result<BTreeMap<u32, Pid>> {
    let mut found = BTreeMap::new();
    while let Some(pid) = client.alloc(LIMIT)? {
        let twice = found.insert(pid.id(), pid);
        assert_eq!(twice, None, "an id was given out twice");
    }
    Ok(found)
}

/// With one server: between two draws of an id, each id that was free at the first draw is drawn.
#[test]
fn dp_19_one_server_reuses_no_id_before_all_others() -> Result {
    const IDS: u32 = 9;
    let mut fleet = Fleet::new(1, IDS)?;
    let client = fleet.client()?;
    let mut used: Vec<Pid> = Vec::new();
    // For each id that was drawn: the ids that must come before it.
    let mut before: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut random = 7_u64;
    for _ in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draws = used.is_empty() || (used.len() < IDS as usize && (random >> 33).is_multiple_of(2));
        if draws {
            let pid = client.alloc(LIMIT)?.expect("an id is free");
            let waiting = before.remove(&pid.id()).unwrap_or_default();
            assert!(waiting.is_empty(), "{pid} comes before {waiting:?}");
            before.values_mut().for_each(|waiting| _ = waiting.remove(&pid.id()));
            let used_ids: BTreeSet<u32> = used.iter().map(Pid::id).collect();
            let free = (1..=IDS).filter(|id| *id != pid.id() && !used_ids.contains(id));
            before.insert(pid.id(), free.collect());
            used.push(pid);
        } else {
            let at = (random >> 40) as usize % used.len();
            client.free(used.swap_remove(at), LIMIT)?;
        }
    }
    assert!(fleet.servers[0].round() > 10, "the pools have exchanged their roles");
    Ok(())
}

#[test]
fn dp_19_no_id_has_two_users_and_rounds_grow() -> Result {
    const IDS: u32 = 16;
    let mut fleet = Fleet::new(3, IDS)?;
    let clients: Vec<PidClient> = (0..4).map(|_| fleet.client()).collect::<Result<_>>()?;
    // The round of each id's last draw, and whether it is in use.
    let books = Mutex::new(BTreeMap::<u32, (u64, bool)>::new());
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let mut mine = Vec::new();
                for step in 0..60 {
                    if let Some(pid) = client.alloc(LIMIT).unwrap() {
                        let last = books.lock().unwrap().insert(pid.id(), (pid.round(), true));
                        let fits = last.is_none_or(|(round, in_use)| round < pid.round() && !in_use);
                        assert!(fits, "{pid} of round {} was drawn before: {last:?}", pid.round());
                        mine.push(pid);
                    }
                    if mine.len() > 3 || step == 59 {
                        for pid in mine.drain(..) {
                            books.lock().unwrap().insert(pid.id(), (pid.round(), false));
                            client.free(pid, LIMIT).unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(fleet.servers[0].free_ids(LIMIT)?, u64::from(IDS));
    let all = drain(&clients[2])?;
    assert_eq!(all.into_keys().collect::<Vec<_>>(), (1..=IDS).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_leaver_loses_no_id_and_a_killed_server_only_free_ones() -> Result {
    let mut fleet = Fleet::new(3, 30)?;
    let client = fleet.client()?;
    let held: Vec<Pid> = (0..5).map(|_| Ok(client.alloc(LIMIT)?.expect("an id"))).collect::<Result<_>>()?;
    fleet.servers[0].shutdown(&fleet.group.nodes[0], LIMIT)?;
    let other = fleet.client()?;
    let mut free = drain(&other)?;
    assert_eq!(free.len(), 25);
    assert!(held.iter().all(|pid| !free.contains_key(&pid.id())));
    for (_, pid) in std::mem::take(&mut free) {
        other.free(pid, LIMIT)?;
    }
    drop(fleet.group.nodes.remove(1));
    fleet.servers.remove(1);
    // Calls go to the last server. A free is not repeated if its server was lost.
    let mut unsure = 0;
    for pid in held {
        match client.free(pid, LIMIT) {
            Ok(()) => {}
            Err(lost) => {
                assert_eq!((lost.pid, &lost.error.kind), (None, &PidErrorKind::ServerLost), "{}", lost.error);
                unsure += 1;
            }
        }
    }
    assert!(unsure <= 1, "the client finds the other server once");
    let rest = drain(&client)?;
    assert!(rest.len() >= 5 - unsure && rest.len() <= 30, "{}", rest.len());
    assert!(rest.keys().all(|id| (1..=30).contains(id)));
    Ok(())
}

#[test]
fn a_lost_reply_loses_no_id() -> Result {
    let mut fleet = Fleet::new(1, 6)?;
    let (node, endpoint) = fleet.group.visit()?;
    let client = PidClient::connect(Arc::new(node), &name(), LIMIT)?;
    let server = &fleet.servers[0];
    let cut = |is_cut: bool| fleet.group.cut(is_cut.then_some(&endpoint));
    // Calls come to the server, and no reply comes back.
    cut(true);
    while server.free_ids(LIMIT)? == 6 {
        let lost = client.alloc(SHORT).unwrap_err();
        assert!(matches!(lost.kind, PidErrorKind::TimedOut | PidErrorKind::NoServer(_)), "{lost}");
    }
    cut(false);
    let mut all = drain(&client)?;
    assert_eq!(all.len(), 6);
    // The same with a free: it is finished before the next call, and runs once.
    cut(true);
    let mut pid = all.remove(&3);
    while let Some(again) = pid.take() {
        pid = client.free(again, SHORT).unwrap_err().pid;
    }
    cut(false);
    assert_eq!(client.alloc(LIMIT)?.map(|pid| pid.id()), Some(3));
    assert_eq!(client.alloc(LIMIT)?, None);
    Ok(())
}

#[test]
fn misuse_of_ids_has_its_error() -> Result {
    let mut fleet = Fleet::new(1, 2)?;
    let client = fleet.client()?;
    let (node, root) = (&fleet.group.nodes[0], &fleet.group.root);
    let again = PidServer::found(node, &name(), root, 2).unwrap_err();
    assert_eq!(again.kind, PidErrorKind::NotFirst);
    assert!(again.to_string().starts_with("fleet /pids of process ids: the fleet exists"), "{again}");
    let none = PidServer::found(node, &"/none".parse()?, root, 0).unwrap_err();
    assert_eq!(none.kind, PidErrorKind::BadCount);
    let count = PidServer::join(node, &name(), root, 5).unwrap_err();
    assert_eq!(count.kind, PidErrorKind::BadCount);
    // An id of another fleet comes back to its caller.
    let larger: Name = "/larger".parse()?;
    PidServer::found(node, &larger, root, 3)?;
    let (visitor, _) = fleet.group.visit()?;
    let stranger = PidClient::connect(Arc::new(visitor), &larger, LIMIT)?;
    let pid = drain(&stranger)?.remove(&3).expect("the third id");
    let refused = client.free(pid, LIMIT).unwrap_err();
    assert_eq!(refused.error.kind, PidErrorKind::OtherFleet);
    assert!(refused.error.to_string().contains("forget the id"), "{}", refused.error);
    stranger.free(refused.pid.expect("the call had no effect"), LIMIT)?;
    assert!(fleet.group.nodes[0].call(&name(), 1, b"\xFF", LIMIT).is_err());
    client.close(LIMIT)?;
    client.close(LIMIT)?;
    assert_eq!(client.alloc(LIMIT).unwrap_err().kind, PidErrorKind::Closed);
    Ok(())
}

/// The free of one client runs, and its reply is lost. Another client begins the next round with this id.
#[test]
fn a_free_on_its_way_over_an_exchange_runs_once() -> Result {
    let mut fleet = Fleet::new(1, 3)?;
    let (node, endpoint) = fleet.group.visit()?;
    let client = PidClient::connect(Arc::new(node), &name(), LIMIT)?;
    let other = fleet.client()?;
    let mut mine: Vec<Pid> = drain(&client)?.into_values().collect();
    let rest = mine.split_off(1);
    let id = mine[0].id();
    fleet.group.cut(Some(&endpoint));
    let mut pid = mine.pop();
    while let Some(again) = pid.take() {
        pid = client.free(again, SHORT).unwrap_err().pid;
    }
    while fleet.servers[0].free_ids(LIMIT)? == 0 {
        assert!(client.alloc(SHORT).is_err());
    }
    let again = other.alloc(LIMIT)?.expect("the id that was freed");
    assert_eq!((again.id(), again.round()), (id, 1));
    assert_eq!(fleet.servers[0].round(), 1);
    fleet.group.cut(None);
    // The client asks for the fate of its free first. A second free would make the id free here.
    assert_eq!(client.alloc(LIMIT)?, None);
    for pid in rest {
        assert_eq!(pid.round(), 0);
        client.free(pid, LIMIT)?;
    }
    let drawn = drain(&client)?;
    assert_eq!(drawn.len(), 2);
    assert!(drawn.values().all(|pid| pid.id() != id && pid.round() == 2), "{drawn:?}");
    Ok(())
}

#[test]
fn a_server_that_dies_between_draw_and_answer_loses_that_id_alone() -> Result {
    let mut fleet = Fleet::new(1, 6)?;
    // The clients know all nodes. Only the first one has a server.
    fleet.group.join()?;
    fleet.group.join()?;
    let (node, endpoint) = fleet.group.visit()?;
    let client = PidClient::connect(Arc::new(node), &name(), LIMIT)?;
    let other = fleet.client()?;
    fleet.group.cut(Some(&endpoint));
    while fleet.servers[0].free_ids(LIMIT)? == 6 {
        assert!(client.alloc(SHORT).is_err());
    }
    let rest = drain(&other)?;
    assert_eq!(rest.len(), 5);
    let ids: BTreeSet<u32> = rest.keys().copied().collect();
    for node in &fleet.group.nodes[1..] {
        fleet.servers.push(PidServer::join(node, &name(), &fleet.group.root, 6)?);
    }
    drop(fleet.group.nodes.remove(0));
    fleet.servers.remove(0);
    fleet.group.cut(None);
    // Both clients find another server. The id without an answer is lost, and all others are in use.
    assert_eq!(other.alloc(LIMIT)?, None);
    assert_eq!(client.alloc(LIMIT)?, None);
    for pid in rest.into_values() {
        other.free(pid, LIMIT)?;
    }
    let again = drain(&client)?;
    assert_eq!(again.keys().copied().collect::<BTreeSet<u32>>(), ids);
    assert!(again.values().all(|pid| pid.round() > 0));
    Ok(())
}
