//! Tests of the directory: rights, names, and the dealing out of shards.

use super::directory::{Change, Directory, Entry, Request, SHARDS_MAX, Shard};
use super::location::Location;
use super::name::{Name, NameCapability};
use super::{NodeId, Random, Refusal};
use std::collections::{BTreeMap, BTreeSet};

const ROOT: u128 = 7;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn root() -> NameCapability {
    capability(None, ROOT)
}

fn capability(text: Option<&str>, key: u128) -> NameCapability {
    NameCapability { name: text.map_or_else(Name::root, name), key }
}

/// A directory, with the numbers of the members' requests.
struct Group {
    directory: Directory,
    numbers: BTreeMap<NodeId, u64>,
    services: u64,
}

impl Group {
    fn new(nodes: u64) -> Group {
        let directory = Directory::new(ROOT, NodeId(1), "n/1".into(), Location::of_host(0));
        let mut group = Group { directory, numbers: BTreeMap::new(), services: 0 };
        (2..=nodes).for_each(|node| group.join(node));
        group
    }

    fn join(&mut self, node: u64) {
        let endpoint = format!("n/{node}");
        self.directory.apply(&Change::Join { node: NodeId(node), endpoint, location: Location::of_host(0) });
    }

    fn ask(&mut self, node: u64, request: Request) -> Result<(), Refusal> {
        let node = NodeId(node);
        let number = self.numbers.entry(node).or_default();
        *number += 1;
        let number = *number;
        self.directory.apply(&Change::Of { node, number, request });
        self.directory.members[&node].outcome
    }

    /// Registers a service with this key: with shards for several ones, or without for one alone.
    fn register(
        &mut self,
        node: u64,
        text: &str,
        shards: u32,
        key: u128,
        parent: NameCapability,
    ) -> Result<(), Refusal> {
        self.services += 1;
        let (service, several) = (self.services, shards > 0);
        let request = Request::Register {
            name: name(text),
            service,
            several,
            stateless: false,
            shards,
            roster: None,
            key,
            parent,
        };
        self.ask(node, request)
    }

    fn reserve(&mut self, node: u64, text: &str, key: u128, parent: NameCapability) -> Result<(), Refusal> {
        self.ask(node, Request::Reserve { name: name(text), several: false, key, parent })
    }

    fn entry(&self, text: &str) -> &Entry {
        self.directory.entry(name(text).alias()).expect("the name").1
    }

    fn has(&self, text: &str) -> bool {
        self.directory.entry(name(text).alias()).is_some()
    }

    /// Ends all moves, as if each target had the state at once. Returns their number.
    fn move_all(&mut self, text: &str) -> usize {
        let mut moves = 0;
        while let Some((shard, to, epoch)) = self.next_move(text) {
            let request = Request::Moved { name: name(text).alias(), shard, epoch };
            assert_eq!(self.ask(to.0, request), Ok(()));
            moves += 1;
        }
        moves
    }

    fn next_move(&self, text: &str) -> Option<(u32, NodeId, u64)> {
        let shards = (0u32..).zip(&self.entry(text).shards);
        shards.filter_map(|(number, shard)| Some((number, shard.target?, shard.epoch))).next()
    }

    fn loads(&self, text: &str) -> BTreeMap<NodeId, usize> {
        let mut loads = BTreeMap::new();
        for shard in &self.entry(text).shards {
            *loads.entry(shard.owner.expect("an owner")).or_default() += 1;
        }
        loads
    }
}

#[test]
fn fo_09_only_a_capability_of_a_shorter_path_gives_a_name() {
    let mut group = Group::new(2);
    assert_eq!(group.register(1, "/a", 0, 10, root()), Ok(()));
    // Its capability is for longer names, by any member.
    assert_eq!(group.register(2, "/a/b", 0, 11, capability(Some("/a"), 10)), Ok(()));
    assert_eq!(group.register(2, "/a/b/c", 0, 12, capability(Some("/a"), 10)), Ok(()));
    for (text, parent, refusal) in [
        ("/x", capability(None, ROOT + 1), Refusal::Forbidden),
        ("/a/x", capability(Some("/a"), 11), Refusal::Forbidden),
        ("/z/x", capability(Some("/z"), 10), Refusal::Forbidden),
        ("/a", capability(Some("/a"), 10), Refusal::NotBelow),
        ("/ab", capability(Some("/a"), 10), Refusal::NotBelow),
        ("/x", capability(Some("/a"), 10), Refusal::NotBelow),
        ("/a", capability(Some("/a/b"), 11), Refusal::NotBelow),
        ("/a", root(), Refusal::NameClash),
    ] {
        assert_eq!(group.register(2, text, 0, 13, parent), Err(refusal), "{text}");
    }
    assert!(!group.has("/x") && !group.has("/a/x") && !group.has("/ab"));
}

#[test]
fn fo_09_a_name_is_removed_by_its_own_capability() {
    let mut group = Group::new(2);
    assert_eq!(group.register(1, "/a", 0, 10, root()), Ok(()));
    let remove = |key, text| Request::Unregister { capability: capability(Some(text), key) };
    assert_eq!(group.ask(2, remove(11, "/a")), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, remove(ROOT, "/a")), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, remove(10, "/b")), Err(Refusal::NoSuchName));
    assert!(group.has("/a"));
    // Any member may, with the capability.
    assert_eq!(group.ask(2, remove(10, "/a")), Ok(()));
    assert!(!group.has("/a"));
    // The capability has ended with the name.
    assert_eq!(group.register(1, "/a/b", 0, 11, capability(Some("/a"), 10)), Err(Refusal::Forbidden));
    assert_eq!(group.register(2, "/a", 0, 12, root()), Ok(()));
}

#[test]
fn fo_09_several_services_have_a_name_only_with_equal_flags() {
    let mut group = Group::new(3);
    let request = |service, several, stateless, shards| Request::Register {
        name: name("/a"),
        service,
        several,
        stateless,
        shards,
        roster: None,
        key: u128::from(service),
        parent: root(),
    };
    assert_eq!(group.ask(1, request(1, true, true, 0)), Ok(()));
    assert_eq!(group.ask(2, request(2, true, true, 0)), Ok(()));
    assert_eq!(group.ask(2, request(3, true, false, 0)), Err(Refusal::NameClash));
    assert_eq!(group.ask(2, request(4, false, true, 0)), Err(Refusal::NameClash));
    assert_eq!(group.ask(2, request(5, true, true, 1)), Err(Refusal::NameClash));
    // Two of one node, too.
    assert_eq!(group.ask(2, request(6, true, true, 0)), Ok(()));
    assert_eq!(group.entry("/a").places.len(), 3);
    // A node has one member of a fleet with shards.
    assert_eq!(group.register(1, "/f", 2, 20, root()), Ok(()));
    assert_eq!(group.register(1, "/f", 2, 21, root()), Err(Refusal::NameClash));
    // A fleet with shards is for several services, and has a bound.
    assert_eq!(group.ask(1, request(9, false, true, 1)), Err(Refusal::TooManyShards));
    assert_eq!(group.ask(1, request(9, true, true, SHARDS_MAX + 1)), Err(Refusal::TooManyShards));
    assert_eq!(group.ask(1, request(9, true, true, u32::MAX)), Err(Refusal::TooManyShards));
}

#[test]
fn fo_10_a_reservation_claims_all_longer_names() {
    let mut group = Group::new(2);
    assert_eq!(group.reserve(1, "/sys", 10, root()), Ok(()));
    // Not even the root's holder names services there. The name itself is free.
    assert_eq!(group.register(1, "/sys/fs", 0, 11, root()), Err(Refusal::Forbidden));
    assert_eq!(group.register(1, "/sys/a/b", 0, 11, root()), Err(Refusal::Forbidden));
    assert_eq!(group.reserve(1, "/sys/fs", 11, root()), Err(Refusal::Forbidden));
    assert_eq!(group.register(1, "/system", 0, 12, root()), Ok(()));
    assert_eq!(group.register(1, "/sys", 0, 13, root()), Ok(()));
    // The service at the name has a capability for longer names, but the reservation claims them.
    let sys = capability(Some("/sys"), 10);
    assert_eq!(group.register(2, "/sys/fs", 0, 14, sys.clone()), Ok(()));
    // A part is handed on, and is then its holder's alone.
    assert_eq!(group.reserve(1, "/sys/net", 15, sys.clone()), Ok(()));
    assert_eq!(group.register(2, "/sys/net/tcp", 0, 16, sys), Err(Refusal::Forbidden));
    assert_eq!(group.register(2, "/sys/net/tcp", 0, 16, capability(Some("/sys/net"), 15)), Ok(()));
}

#[test]
fn fo_10_a_reservation_is_asked_for_again_and_ended_by_its_key_only() {
    let mut group = Group::new(2);
    assert_eq!(group.reserve(1, "/sys", 10, root()), Ok(()));
    assert_eq!(group.reserve(2, "/sys", 10, root()), Ok(()));
    assert_eq!(group.reserve(2, "/sys", 11, root()), Err(Refusal::NameClash));
    let end = |key, text| Request::Unreserve { capability: capability(Some(text), key), if_unused: false };
    assert_eq!(group.ask(2, end(11, "/sys")), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, end(10, "/other")), Err(Refusal::NoSuchName));
    assert_eq!(group.register(1, "/sys/fs", 0, 12, root()), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, end(10, "/sys")), Ok(()));
    assert_eq!(group.register(1, "/sys/fs", 0, 12, root()), Ok(()));
    assert_eq!(
        group.register(1, "/sys/x", 0, 13, capability(Some("/sys"), 10)),
        Err(Refusal::Forbidden),
        "the capability has ended"
    );
}

#[test]
fn fo_10_several_holders_have_keys_of_their_own_that_end_one_by_one() {
    let mut group = Group::new(2);
    let reserve = |text, several, key, parent| Request::Reserve { name: name(text), several, key, parent };
    let end = |key| Request::Unreserve { capability: capability(Some("/sys"), key), if_unused: false };
    let sys = |key| capability(Some("/sys"), key);
    assert_eq!(group.ask(1, reserve("/sys", true, 10, root())), Ok(()));
    assert_eq!(group.ask(2, reserve("/sys", true, 11, root())), Ok(()));
    // A holder cannot make further holders, and the flag of a claim stays.
    assert_eq!(group.ask(2, reserve("/sys", true, 12, sys(10))), Err(Refusal::NotBelow));
    assert_eq!(group.ask(2, reserve("/sys", false, 12, root())), Err(Refusal::NameClash));
    assert_eq!(group.ask(2, reserve("/sys", true, 11, root())), Ok(()), "asked again");
    assert_eq!(group.reserve(1, "/one", 20, root()), Ok(()));
    assert_eq!(group.ask(1, reserve("/one", true, 21, root())), Err(Refusal::NameClash));
    // Each of them may use the names below, and no other one.
    assert_eq!(group.register(1, "/sys/a", 0, 30, sys(10)), Ok(()));
    assert_eq!(group.register(2, "/sys/b", 0, 31, sys(11)), Ok(()));
    assert_eq!(group.register(2, "/sys/c", 0, 32, root()), Err(Refusal::Forbidden));
    // One key ends. The other holder goes on, and so do the names.
    assert_eq!(group.ask(1, end(12)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(1, end(10)), Ok(()));
    assert_eq!(group.register(1, "/sys/d", 0, 33, sys(10)), Err(Refusal::Forbidden));
    assert_eq!(group.register(2, "/sys/d", 0, 33, sys(11)), Ok(()));
    assert_eq!(group.register(2, "/sys/c", 0, 32, root()), Err(Refusal::Forbidden));
    assert!(group.has("/sys/a"));
    // The claim ends with the last key.
    assert_eq!(group.ask(1, end(11)), Ok(()));
    assert_eq!(group.ask(1, end(11)), Err(Refusal::NoSuchName));
    assert_eq!(group.register(2, "/sys/c", 0, 32, root()), Ok(()));
}

#[test]
fn fo_10_a_claim_in_use_ends_only_if_its_holder_says_so() {
    let mut group = Group::new(2);
    let reserve = |key| Request::Reserve { name: name("/sys"), several: true, key, parent: root() };
    let end = |key, if_unused| Request::Unreserve { capability: capability(Some("/sys"), key), if_unused };
    assert_eq!(group.ask(1, reserve(10)), Ok(()));
    assert_eq!(group.ask(2, reserve(11)), Ok(()));
    assert_eq!(group.register(1, "/sys/a", 0, 30, capability(Some("/sys"), 10)), Ok(()));
    // Another holder keeps the claim.
    assert_eq!(group.ask(1, end(10, true)), Ok(()));
    assert_eq!(group.ask(2, end(12, true)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, end(11, true)), Err(Refusal::InUse));
    // So its key goes on, and keeps others out.
    assert_eq!(group.reserve(2, "/sys/b", 31, capability(Some("/sys"), 11)), Ok(()));
    assert_eq!(group.register(2, "/sys/c", 0, 32, root()), Err(Refusal::Forbidden));
    let unregister = Request::Unregister { capability: capability(Some("/sys/a"), 30) };
    assert_eq!(group.ask(1, unregister), Ok(()));
    assert_eq!(group.ask(2, end(11, true)), Err(Refusal::InUse), "a claim below it");
    let below = Request::Unreserve { capability: capability(Some("/sys/b"), 31), if_unused: true };
    assert_eq!(group.ask(2, below), Ok(()));
    // A name that only begins alike is not below it, nor is its own.
    assert_eq!(group.register(1, "/system/a", 0, 33, root()), Ok(()));
    assert_eq!(group.register(1, "/sys", 0, 34, root()), Ok(()));
    assert_eq!(group.ask(2, end(11, true)), Ok(()));
    assert_eq!(group.register(2, "/sys/c", 0, 35, root()), Ok(()));
}

#[test]
fn the_holders_of_a_claim_leave_room_in_the_frame() {
    let mut group = Group::new(1);
    let reserve = |key| Request::Reserve { name: name("/sys"), several: true, key, parent: root() };
    let holders = (0..100_000).take_while(|key| group.ask(1, reserve(u128::MAX - key)).is_ok()).count();
    assert!((10_000..30_000).contains(&holders), "{holders}");
    assert!(postcard::to_allocvec(&group.directory).unwrap().len() < 1 << 20);
}

#[test]
fn fo_08_a_name_with_the_alias_of_another_one_is_refused() {
    let mut group = Group::new(1);
    group.directory.claim_alias(name("/b").alias(), name("/a"));
    assert_eq!(group.register(1, "/a", 0, 10, root()), Ok(()));
    assert_eq!(group.register(1, "/b", 0, 11, root()), Err(Refusal::NameClash));
    assert_eq!(group.register(1, "/c", 0, 12, root()), Ok(()));
}

#[test]
fn a_copy_of_a_request_changes_nothing() {
    let mut group = Group::new(1);
    assert_eq!(group.register(1, "/a", 0, 10, root()), Ok(()));
    let remove = Request::Unregister { capability: capability(Some("/a"), 10) };
    assert_eq!(group.ask(1, remove.clone()), Ok(()));
    assert_eq!(group.register(1, "/a", 0, 10, root()), Ok(()));
    let before = group.directory.clone();
    for number in 0..=3 {
        group.directory.apply(&Change::Of { node: NodeId(1), number, request: remove.clone() });
    }
    assert_eq!(group.directory, before);
    // A node outside of the group changes no directory.
    group.directory.apply(&Change::Of { node: NodeId(9), number: 1, request: remove });
    group.directory.apply(&Change::Promote { node: NodeId(9) });
    group.directory.apply(&Change::Remove { node: NodeId(9) });
    assert_eq!(group.directory, before);
}

#[test]
fn shares_are_even_and_a_new_member_takes_only_its_share() {
    for shards in [1, 2, 7, 12, 64] {
        let mut group = Group::new(0);
        for node in 1..=9 {
            group.join(node);
            assert_eq!(group.register(node, "/f", shards, u128::from(node), root()), Ok(()));
            let moves = group.move_all("/f");
            // The first one begins with all of them. Each other one takes its share, rounded down.
            let share = if node == 1 { 0 } else { shards as usize / node as usize };
            assert_eq!(moves, share, "{shards} shards, member {node}");
            let loads = group.loads("/f");
            let (most, all) = (loads.values().max().unwrap(), loads.values().sum::<usize>());
            assert_eq!(all, shards as usize);
            assert_eq!(*most, (shards as usize).div_ceil(node as usize), "{loads:?}");
        }
    }
}

#[test]
fn a_death_gives_new_owners_to_its_shards_alone() {
    let mut group = Group::new(4);
    for node in 1..=4 {
        assert_eq!(group.register(node, "/f", 12, u128::from(node), root()), Ok(()));
        group.move_all("/f");
    }
    let before = group.entry("/f").shards.clone();
    group.directory.apply(&Change::Remove { node: NodeId(3) });
    for (old, new) in before.iter().zip(&group.entry("/f").shards) {
        if old.owner == Some(NodeId(3)) {
            assert_ne!(new.owner, old.owner);
            assert!(new.owner.is_some() && new.target.is_none(), "{new:?}");
            assert_eq!(new.born, new.epoch, "its state begins anew");
            assert!(new.epoch > old.epoch);
        } else {
            assert_eq!(new, old);
        }
    }
    assert!(group.loads("/f").values().all(|load| *load == 4));
}

#[test]
fn a_leaver_keeps_its_shards_until_others_have_them() {
    let mut group = Group::new(3);
    for node in 1..=3 {
        assert_eq!(group.register(node, "/f", 6, u128::from(node), root()), Ok(()));
        group.move_all("/f");
    }
    assert_eq!(group.ask(2, Request::Leave), Ok(()));
    assert!(group.directory.has_places(NodeId(2)));
    let entry = group.entry("/f");
    let leaving = entry.shards.iter().filter(|shard| shard.owner == Some(NodeId(2)));
    assert!(leaving.clone().count() == 2 && leaving.clone().all(|shard| shard.target.is_some()));
    let births: Vec<u64> = entry.shards.iter().map(|shard| shard.born).collect();
    assert_eq!(group.move_all("/f"), 2);
    assert!(!group.directory.has_places(NodeId(2)));
    let entry = group.entry("/f");
    assert_eq!(entry.shards.iter().map(|shard| shard.born).collect::<Vec<_>>(), births, "no state is lost");
    assert!(group.loads("/f").values().all(|load| *load == 3));
}

#[test]
fn a_target_that_dies_or_leaves_gives_the_move_up() {
    for leave in [false, true] {
        let mut group = Group::new(2);
        assert_eq!(group.register(1, "/f", 2, 1, root()), Ok(()));
        assert_eq!(group.register(2, "/f", 2, 2, root()), Ok(()));
        let (shard, to, epoch) = group.next_move("/f").expect("a move");
        assert_eq!(to, NodeId(2));
        if leave {
            assert_eq!(group.ask(2, Request::Leave), Ok(()));
            let late = Request::Moved { name: name("/f").alias(), shard, epoch };
            assert_eq!(group.ask(2, late), Err(Refusal::Forbidden), "the epoch has ended");
        } else {
            group.directory.apply(&Change::Remove { node: NodeId(2) });
        }
        assert_eq!(group.next_move("/f"), None);
        let kept = group.entry("/f").shards[shard as usize];
        assert!(kept.owner == Some(NodeId(1)) && kept.epoch > epoch && kept.born < kept.epoch);
    }
}

#[test]
fn a_leaver_that_gives_a_move_up_gets_another_one() {
    let mut group = Group::new(2);
    assert_eq!(group.register(1, "/f", 1, 1, root()), Ok(()));
    assert_eq!(group.register(2, "/f", 1, 2, root()), Ok(()));
    let keep = |epoch| Request::Keep { name: name("/f").alias(), shard: 0, epoch };
    assert_eq!(group.ask(1, Request::Leave), Ok(()));
    let (shard, to, epoch) = group.next_move("/f").expect("a move");
    assert_eq!(group.ask(2, keep(epoch)), Err(Refusal::Forbidden), "only the owner may");
    assert_eq!(group.ask(1, keep(epoch)), Ok(()));
    let (again, _, later) = group.next_move("/f").expect("another move");
    assert!((again, to) == (shard, NodeId(2)) && later > epoch);
    assert_eq!(group.move_all("/f"), 1);
    assert!(!group.directory.has_places(NodeId(1)));
}

#[test]
fn only_the_target_moves_a_shard_in_the_epoch_of_the_move() {
    let mut group = Group::new(3);
    assert_eq!(group.register(1, "/f", 2, 1, root()), Ok(()));
    assert_eq!(group.register(2, "/f", 2, 2, root()), Ok(()));
    let (shard, _, epoch) = group.next_move("/f").expect("a move");
    let alias = name("/f").alias();
    let moved = |shard, epoch| Request::Moved { name: alias, shard, epoch };
    assert_eq!(group.ask(1, moved(shard, epoch)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(3, moved(shard, epoch)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, moved(shard, epoch - 1)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, moved(shard, u64::MAX)), Err(Refusal::Forbidden));
    assert_eq!(group.ask(2, moved(u32::MAX, epoch)), Err(Refusal::NoSuchName));
    let unknown = Request::Moved { name: name("/x").alias(), shard, epoch };
    assert_eq!(group.ask(2, unknown), Err(Refusal::NoSuchName));
    assert_eq!(group.ask(2, moved(shard, epoch)), Ok(()));
    assert_eq!(group.ask(2, moved(shard, epoch)), Err(Refusal::Forbidden));
}

#[test]
fn the_last_member_gives_its_shards_up_and_the_name_ends() {
    let mut group = Group::new(1);
    assert_eq!(group.register(1, "/f", 2, 1, root()), Ok(()));
    assert_eq!(group.ask(1, Request::Leave), Ok(()));
    assert!(group.entry("/f").is_last(NodeId(1)));
    let alias = name("/f").alias();
    for shard in 0..2 {
        let Shard { epoch, .. } = group.entry("/f").shards[shard as usize];
        let abandon = |epoch| Request::Abandon { name: alias, shard, epoch };
        assert_eq!(group.ask(1, abandon(epoch + 1)), Err(Refusal::Forbidden));
        assert_eq!(group.ask(1, abandon(epoch)), Ok(()));
    }
    assert!(!group.has("/f") && !group.directory.has_places(NodeId(1)));
}

#[test]
fn an_abandoned_shard_begins_anew_on_a_member_that_comes() {
    let mut group = Group::new(2);
    assert_eq!(group.register(1, "/f", 1, 1, root()), Ok(()));
    assert_eq!(group.ask(1, Request::Leave), Ok(()));
    let before = group.entry("/f").shards[0];
    assert_eq!(group.register(2, "/f", 1, 2, root()), Ok(()));
    // Now there is a target, and the owner must hand the state over.
    let abandon = Request::Abandon { name: name("/f").alias(), shard: 0, epoch: before.epoch };
    assert_eq!(group.ask(1, abandon), Err(Refusal::Forbidden));
    assert_eq!(group.move_all("/f"), 1);
    assert_eq!(group.entry("/f").shards[0].born, before.born);
}

#[test]
fn no_epoch_ever_comes_back() {
    let mut random = Random::new(1);
    let mut group = Group::new(1);
    let mut seen: BTreeSet<u64> = BTreeSet::from([0]);
    let mut before: Vec<Shard> = Vec::new();
    let mut lives = 1;
    for step in 0..3_000u64 {
        let members: Vec<u64> = group.directory.members.keys().map(|node| node.0).collect();
        let node = members[random.below(members.len() as u64) as usize];
        match random.below(6) {
            0 if members.len() < 9 => {
                lives += 1;
                group.join(lives);
            }
            1 if members.len() > 1 => group.directory.apply(&Change::Remove { node: NodeId(node) }),
            2 if random.below(4) == 0 && members.len() > 1 => _ = group.ask(node, Request::Leave),
            3 if group.has("/f") => {
                if let Some((shard, to, epoch)) = group.next_move("/f") {
                    let request = Request::Moved { name: name("/f").alias(), shard, epoch };
                    assert_eq!(group.ask(to.0, request), Ok(()));
                }
            }
            _ => _ = group.register(node, "/f", 5, u128::from(step) + 1, root()),
        }
        let after = match group.has("/f") {
            true => group.entry("/f").shards.clone(),
            false => Vec::new(),
        };
        for (number, shard) in after.iter().enumerate() {
            assert!(shard.owner.is_some() || shard.target.is_none(), "{shard:?}");
            assert!(shard.born <= shard.epoch && shard.owner != shard.target, "{shard:?}");
            if before.get(number) != Some(shard) {
                assert!(seen.insert(shard.epoch), "step {step}: {shard:?} has an epoch of before");
            }
        }
        before = after;
    }
    assert!(seen.len() > 1_000, "{}", seen.len());
}

#[test]
fn a_directory_keeps_no_more_than_a_frame_holds() {
    let mut group = Group::new(1);
    let long = "x".repeat(240);
    let mut refused = 0;
    for number in 0..3_000u32 {
        match group.register(1, &format!("/{long}/{number}"), 0, u128::from(number) + 1, root()) {
            Ok(()) => assert_eq!(refused, 0, "a later one fits"),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::DirectoryFull);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    assert!(postcard::to_allocvec(&group.directory).unwrap().len() < 1 << 20);
    // A fleet of the most shards does not fit, either, and leaves the directory as it was.
    let before = group.directory.names().count();
    assert_eq!(group.register(1, "/f", SHARDS_MAX, 9_999, root()), Err(Refusal::DirectoryFull));
    assert_eq!(group.directory.names().count(), before);
}

#[test]
fn a_roster_gives_fresh_numbers_and_its_members_leave_by_their_own_decision() {
    let mut group = Group::new(3);
    let join = |service: u64, tag| Request::Register {
        name: name("/r"),
        service,
        several: true,
        stateless: false,
        shards: 0,
        roster: Some(tag),
        key: u128::from(service),
        parent: root(),
    };
    let vacate = |number, if_epoch| Request::Vacate { name: name("/r").alias(), number, if_epoch };
    let numbers = |group: &Group| group.entry("/r").places.iter().map(|p| p.since).collect::<Vec<_>>();
    let epoch = |group: &Group| group.entry("/r").roster.unwrap().epoch;
    assert_eq!(group.ask(1, join(11, 7)), Ok(()));
    assert_eq!(group.ask(2, join(12, 7)), Ok(()));
    assert_eq!(group.ask(3, join(13, 8)), Err(Refusal::NameClash), "another tag");
    assert_eq!(group.ask(1, join(14, 7)), Ok(()), "two of one node");
    let first = numbers(&group);
    assert!(first.is_sorted() && first[0] > 0 && epoch(&group) == first[2], "{first:?}");
    // Its capability asks it to leave. It stays until it goes by itself.
    let capability = NameCapability { name: name("/r"), key: 12 };
    assert_eq!(group.ask(3, Request::Unregister { capability }), Ok(()));
    assert_eq!(numbers(&group), first);
    assert!(group.entry("/r").places[1].leaving);
    assert_eq!(group.ask(1, vacate(first[1], None)), Err(Refusal::NoSuchName), "of another node");
    let old = epoch(&group) - 1;
    assert_eq!(group.ask(2, vacate(first[1], Some(old))), Err(Refusal::RosterChanged));
    let current = epoch(&group);
    assert_eq!(group.ask(2, vacate(first[1], Some(current))), Ok(()));
    assert_eq!(numbers(&group), [first[0], first[2]]);
    assert!(epoch(&group) > current);
    // A node that leaves keeps its members until they go. One that is removed does not.
    assert_eq!(group.ask(1, Request::Leave), Ok(()));
    assert_eq!(group.entry("/r").places.iter().filter(|place| place.leaving).count(), 2);
    assert_eq!(group.ask(3, join(15, 7)), Ok(()));
    let before = epoch(&group);
    group.directory.apply(&Change::Remove { node: NodeId(1) });
    assert_eq!(numbers(&group).len(), 1);
    assert!(numbers(&group)[0] > first[2] && epoch(&group) > before);
}

#[test]
fn a_removed_member_of_a_roster_stays_with_its_heir() {
    let mut group = Group::new(4);
    let join = |service: u64| Request::Register {
        name: name("/r"),
        service,
        several: true,
        stateless: false,
        shards: 0,
        roster: Some(7),
        key: u128::from(service),
        parent: root(),
    };
    let alias = name("/r").alias();
    let set_heir = |number, heir| Request::SetHeir { name: alias, number, heir };
    let vacate = |number| Request::Vacate { name: alias, number, if_epoch: None };
    for node in [1, 2, 3] {
        assert_eq!(group.ask(node, join(10 + node)), Ok(()));
    }
    assert_eq!(group.ask(1, join(21)), Ok(()), "two of one node");
    let places = |group: &Group| group.entry("/r").places.clone();
    let [a, b, c, d] = places(&group).iter().map(|place| place.since).collect::<Vec<_>>()[..] else {
        panic!()
    };
    assert_eq!(group.ask(1, set_heir(a, d)), Err(Refusal::RosterChanged), "of the same node");
    assert_eq!(group.ask(1, set_heir(a, 999)), Err(Refusal::RosterChanged), "no member");
    assert_eq!(group.ask(2, set_heir(a, c)), Err(Refusal::NoSuchName), "of another node");
    assert_eq!(group.ask(1, set_heir(a, c)), Ok(()));
    assert_eq!(group.ask(1, set_heir(a, b)), Ok(()), "a later heir replaces an earlier one");
    assert_eq!(group.ask(3, set_heir(c, a)), Ok(()));
    group.directory.apply(&Change::Remove { node: NodeId(1) });
    // The first member is at its heir. The other member of its node had none.
    let seats = |group: &Group| -> Vec<_> {
        places(group).iter().map(|place| (place.since, place.node.0, place.inherited)).collect()
    };
    assert_eq!(seats(&group), [(a, 2, true), (b, 2, false), (c, 3, false)]);
    assert!(places(&group).iter().all(|place| place.heir.is_none()), "an inherited member is no heir");
    assert_eq!(group.ask(3, set_heir(c, a)), Err(Refusal::RosterChanged));
    // The right to end the dead member, and names below it, has ended.
    let capability = NameCapability { name: name("/r"), key: 11 };
    assert_eq!(group.ask(3, Request::Unregister { capability }), Err(Refusal::Forbidden));
    // The heir leaves after it, and may have an heir for it.
    assert_eq!(group.ask(2, vacate(b)), Err(Refusal::RosterChanged));
    assert_eq!(group.ask(2, set_heir(a, c)), Ok(()));
    assert_eq!(group.ask(2, set_heir(b, c)), Ok(()));
    group.directory.apply(&Change::Remove { node: NodeId(2) });
    assert_eq!(seats(&group), [(a, 3, true), (b, 3, true), (c, 3, false)]);
    assert_eq!(group.ask(3, vacate(a)), Ok(()));
    assert_eq!(group.ask(3, vacate(c)), Err(Refusal::RosterChanged));
    assert_eq!(group.ask(3, vacate(b)), Ok(()));
    assert_eq!(group.ask(3, vacate(c)), Ok(()));
    assert_eq!(group.directory.names().count(), 0);
}
