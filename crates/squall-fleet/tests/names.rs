//! Mailboxes under the names of a group.

mod common;

use common::{Group, LONG, name};
use squall_fleet::{
    Capability, Fate, GroupKey, LocalNetwork, Location, Mailbox, Name, NameCapability, NameOptions,
    NamedSendError, NamedSending, NodeBuilder, ServiceCall,
};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

fn serve(group: &Group, node: usize, at: &Name, options: NameOptions, mailbox: &Mailbox) -> NameCapability {
    group.nodes[node].serve_mailbox(at, &group.root, options, &mailbox.capabilities()).unwrap()
}

fn received(mailbox: &mut Mailbox) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| mailbox.receive().map(|message| message.to_vec())).collect()
}

#[test]
fn each_node_sends_to_a_mailbox_by_its_name_in_order() {
    let group = Group::new(3);
    let (at, mut mailbox) = (name("/log"), Mailbox::new());
    serve(&group, 1, &at, NameOptions::new(), &mailbox);
    let visitor = group.visitor("visitor");
    for (label, node) in group.nodes.iter().chain([&visitor]).enumerate() {
        let capability = mailbox.add_labelled(label as u64).unwrap();
        let mut sender = node.sender(&at, capability);
        for n in 0..50_u64 {
            sender.try_send(&n.to_le_bytes(), LONG).unwrap();
        }
        for n in 0..50_u64 {
            let message = mailbox.receive().unwrap();
            assert_eq!((message.label(), &*message), (label as u64, &n.to_le_bytes()[..]));
        }
    }
    assert!(mailbox.receive().is_none());
}

#[test]
fn each_failure_of_a_message_has_its_error() {
    let group = Group::new(2);
    let at = name("/log");
    let mailbox = Mailbox::builder().lane_bytes(64).build();
    let key = mailbox.add_capability().unwrap();
    let once = mailbox.add_single_use(0).unwrap();
    let served = serve(&group, 0, &at, NameOptions::new(), &mailbox);
    group.nodes[0]
        .serve(&name("/echo"), &group.root, NameOptions::new(), |call: ServiceCall<'_>| {
            Some(call.body.to_vec())
        })
        .unwrap();
    // The first node has the straight way, the second one sends frames.
    for node in &group.nodes {
        let error = |sender: &mut squall_fleet::NamedSender, message: &[u8]| {
            let error = sender.try_send(message, LONG).unwrap_err();
            assert!(!error.may_have_arrived(), "{error}");
            error
        };
        let forged = Capability::from_bytes([7; 16]);
        let mut forger = node.sender(&at, forged);
        assert_eq!(error(&mut forger, b"x"), NamedSendError::Permissions { name: at.clone() });
        let mut sender = node.sender(&at, key);
        let largest = mailbox.largest_message();
        let too_large = NamedSendError::NoSpace { name: at.clone(), largest };
        assert_eq!(error(&mut sender, &vec![0; largest + 1]), too_large);
        let mut echo = node.sender(&name("/echo"), key);
        assert_eq!(error(&mut echo, b"x"), NamedSendError::NoMailbox { name: name("/echo") });
        let missing = name("/missing");
        let not_found = node.sender(&missing, key).try_send(b"x", SHORT).unwrap_err();
        assert_eq!(not_found, NamedSendError::NotFound { name: missing });
        assert!(not_found.is_passing());
    }
    // A frame has less room than the messages that a sender may try.
    let huge = vec![0; 2 << 20];
    let refused = group.nodes[1].sender(&at, key).try_send(&huge, LONG).unwrap_err();
    assert!(matches!(refused, NamedSendError::NoSpace { largest, .. } if largest < 1 << 20), "{refused}");
    // A capability for one message, by any node.
    group.nodes[1].sender(&at, once).try_send(b"x", LONG).unwrap();
    for node in &group.nodes {
        let again = node.sender(&at, once).try_send(b"x", LONG).unwrap_err();
        assert_eq!(again, NamedSendError::Permissions { name: at.clone() });
    }
    // Revoked while a sender uses it.
    let mut senders: Vec<_> = group.nodes.iter().map(|node| node.sender(&at, key)).collect();
    senders.iter_mut().for_each(|sender| sender.try_send(b"x", LONG).unwrap());
    assert!(mailbox.remove_capability(key));
    for sender in &mut senders {
        let revoked = sender.try_send(b"x", LONG).unwrap_err();
        assert_eq!(revoked, NamedSendError::Permissions { name: at.clone() });
    }
    // The name ends, by the capability of the service.
    group.nodes[1].end_service(&served).unwrap();
    let not_found = group.nodes[1].sender(&at, key).try_send(b"x", SHORT).unwrap_err();
    assert_eq!(not_found, NamedSendError::NotFound { name: at });
}

#[test]
fn many_messages_of_a_sender_are_on_their_way_in_their_order() {
    let group = Group::new(2);
    let at = name("/log");
    let mut mailbox = Mailbox::builder().lane_bytes(1 << 20).build();
    let key = mailbox.add_capability().unwrap();
    serve(&group, 0, &at, NameOptions::new(), &mailbox);
    for node in &group.nodes {
        let mut sender = node.sender(&at, key);
        let mut sendings: VecDeque<NamedSending> = VecDeque::new();
        for n in 0..2_000_u32 {
            let sending = loop {
                match sender.start_send(&n.to_le_bytes(), LONG) {
                    Ok(sending) => break sending,
                    Err(NamedSendError::WindowFull { .. }) => sendings.pop_front().unwrap().wait().unwrap(),
                    Err(error) => panic!("{error}"),
                }
            };
            sendings.push_back(sending);
        }
        for sending in sendings {
            sending.wait().unwrap();
        }
        let received = std::iter::from_fn(|| mailbox.receive().map(|m| m[..].try_into().unwrap()));
        assert!(received.map(u32::from_le_bytes).eq(0..2_000));
    }
}

#[test]
fn a_full_mailbox_says_retry_and_keeps_its_order() {
    let group = Group::new(2);
    let at = name("/log");
    let mut mailbox = Mailbox::builder().lane_bytes(128).build();
    let key = mailbox.add_capability().unwrap();
    serve(&group, 0, &at, NameOptions::new(), &mailbox);
    for node in &group.nodes {
        let mut sender = node.sender(&at, key);
        let mut accepted = Vec::new();
        let refused = loop {
            let message = (accepted.len() as u64).to_le_bytes();
            match sender.try_send(&message, LONG) {
                Ok(()) => accepted.push(message.to_vec()),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, NamedSendError::Retry { name: at.clone() });
        assert!(!accepted.is_empty() && refused.is_passing());
        // The second attempt waits for room, which comes with the receiver.
        std::thread::scope(|threads| {
            let late = threads.spawn(move || sender.send(b"late", LONG).map(|()| sender));
            let mut got = Vec::new();
            while got.len() <= accepted.len() {
                mailbox.wait().block();
                got.extend(received(&mut mailbox));
            }
            accepted.push(b"late".to_vec());
            assert_eq!(got, accepted);
            late.join().unwrap().unwrap();
        });
    }
}

/// Sends numbers while the mailbox moves between the members. Each accepted number is received once, and in
/// order; a number of unknown fate at most once.
#[test]
fn a_mailbox_moves_while_a_client_sends() {
    const MOVES: usize = 6;
    let group = Group::new(3);
    let at = name("/log");
    let key = {
        let mailbox = Mailbox::new();
        mailbox.add_capability().unwrap()
    };
    let fresh = || {
        let mailbox = Mailbox::builder().lane_bytes(1 << 20).build();
        mailbox.capabilities().add_existing(key, 0).unwrap();
        mailbox
    };
    let clients = [group.visitor("visitor"), group.visitor("other")];
    let mut mailbox = fresh();
    let mut served = serve(&group, 0, &at, NameOptions::new(), &mailbox);
    let (stop, stopped) = (&std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::SeqCst);
    let mut got = Vec::new();
    let books: Vec<(Vec<u64>, Vec<u64>)> = std::thread::scope(|threads| {
        // One client is a member, so its way changes between straight and by calls.
        let senders = clients.iter().chain([&group.nodes[0]]).map(|node| node.sender(&at, key));
        let clients: Vec<_> = (0..)
            .zip(senders)
            .map(|(client, mut sender): (u64, _)| {
                threads.spawn(move || {
                    let (mut accepted, mut unknown) = (Vec::new(), Vec::new());
                    let mut number = client << 32;
                    while !stop.load(stopped) {
                        number += 1;
                        match sender.send(&number.to_le_bytes(), LONG) {
                            Ok(()) => accepted.push(number),
                            Err(error) => {
                                assert!(error.may_have_arrived(), "{error}");
                                unknown.push(number);
                            }
                        }
                    }
                    (accepted, unknown)
                })
            })
            .collect();
        for turn in 1..=MOVES {
            // Messages of all clients come between two moves.
            let mut seen = HashSet::new();
            while seen.len() < clients.len() {
                mailbox.wait().block();
                let messages = received(&mut mailbox);
                seen.extend(messages.iter().map(|message| message[4]));
                got.extend(messages);
            }
            let (old, target) = (turn - 1, turn % group.nodes.len());
            group.nodes[old % group.nodes.len()].end_service(&served).unwrap();
            let old = std::mem::replace(&mut mailbox, fresh());
            got.extend(old.end().into_iter().map(|(_, message)| message));
            served = serve(&group, target, &at, NameOptions::new(), &mailbox);
        }
        stop.store(true, stopped);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    got.extend(received(&mut mailbox));
    let got: Vec<u64> = got.iter().map(|m| u64::from_le_bytes(m[..].try_into().unwrap())).collect();
    for (client, (accepted, unknown)) in (0_u64..).zip(&books) {
        let own: Vec<u64> = got.iter().copied().filter(|number| number >> 32 == client).collect();
        assert!(own.is_sorted_by(|a, b| a < b), "client {client}: out of order, or twice");
        let own: HashSet<u64> = own.into_iter().collect();
        assert!(accepted.iter().all(|number| own.contains(number)), "client {client}: lost");
        let known: HashSet<u64> = accepted.iter().chain(unknown).copied().collect();
        assert!(own.is_subset(&known), "client {client}: received and refused");
    }
}

#[test]
fn a_sender_finds_the_next_mailbox_after_a_death() {
    let mut group = Group::new(3);
    let at = name("/log");
    let mut mailboxes = [Mailbox::new(), Mailbox::new()];
    let key = mailboxes[0].add_capability().unwrap();
    mailboxes[1].capabilities().add_existing(key, 0).unwrap();
    serve(&group, 2, &at, NameOptions::new(), &mailboxes[0]);
    let visitor = group.visitor("visitor");
    let mut sender = visitor.sender(&at, key);
    sender.try_send(b"before", LONG).unwrap();
    // As a death: the others are not told.
    drop(group.nodes.remove(2));
    let during = sender.try_send(b"during", Duration::from_millis(50)).unwrap_err();
    assert!(during.may_have_arrived(), "{during}");
    // The name is free once the others have removed the dead node.
    while group.nodes[1]
        .serve_mailbox(&at, &group.root, NameOptions::new(), &mailboxes[1].capabilities())
        .is_err()
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The first message may still be for the dead node.
    if let Err(lost) = sender.send(b"lost", LONG) {
        assert_eq!(lost, NamedSendError::Unknown { name: at.clone(), fate: Fate::ServerLost });
    } else {
        assert_eq!(received(&mut mailboxes[1]), [b"lost"]);
    }
    sender.send(b"after", LONG).unwrap();
    assert_eq!(received(&mut mailboxes[0]), [b"before"]);
    assert_eq!(received(&mut mailboxes[1]), [b"after"]);
}

#[test]
fn a_dropped_mailbox_loses_its_name() {
    let group = Group::new(2);
    for node in &group.nodes {
        let (at, mailbox) = (name("/log"), Mailbox::new());
        let key = mailbox.add_capability().unwrap();
        serve(&group, 0, &at, NameOptions::new(), &mailbox);
        let mut sender = node.sender(&at, key);
        sender.try_send(b"in time", LONG).unwrap();
        drop(mailbox);
        assert_eq!(sender.try_send(b"late", LONG), Err(NamedSendError::Ended { name: at.clone() }));
        // The node gives the name up by itself.
        while !node.show(LONG).unwrap().services.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(sender.try_send(b"late", SHORT), Err(NamedSendError::NotFound { name: at }));
    }
}

#[test]
fn messages_are_spread_over_stateless_mailboxes_and_keep_their_order_in_each() {
    let group = Group::new(3);
    let at = name("/log");
    let mut mailboxes = [Mailbox::new(), Mailbox::new()];
    let key = mailboxes[0].add_capability().unwrap();
    mailboxes[1].capabilities().add_existing(key, 0).unwrap();
    for (index, mailbox) in mailboxes.iter().enumerate() {
        serve(&group, index, &at, NameOptions::new().stateless(), mailbox);
    }
    let mut sender = group.nodes[2].sender(&at, key);
    for n in 0..100_u8 {
        sender.try_send(&[n], LONG).unwrap();
    }
    let [first, second] = mailboxes.each_mut().map(received);
    assert_eq!(first.len() + second.len(), 100);
    assert!(!first.is_empty() && !second.is_empty());
    assert!(first.is_sorted() && second.is_sorted());
}

#[test]
fn a_sender_of_a_closed_node_sends_nothing() {
    let mut group = Group::new(2);
    let (at, mut mailbox) = (name("/log"), Mailbox::new());
    let key = mailbox.add_capability().unwrap();
    serve(&group, 0, &at, NameOptions::new(), &mailbox);
    let mut sender = group.nodes[1].sender(&at, key);
    drop(group.nodes.pop());
    let closed = sender.send(b"x", LONG).unwrap_err();
    assert_eq!(closed, NamedSendError::NotSent { name: at, fate: Fate::Closed });
    assert!(!closed.is_passing() && mailbox.receive().is_none());
}

#[test]
fn fo_11_the_nearest_service_is_called_and_equal_ones_share() {
    let (network, key) = (LocalNetwork::new(), GroupKey::random());
    let at = |host, memory, cache| Location { host, memory: Some(memory), cache: Some(cache) };
    let builder = |location| NodeBuilder::new(key).location(location);
    let (first, root) = builder(at(2, 0, 0)).found(network.bind("0").unwrap(), &[]).unwrap();
    let mut nodes = vec![first];
    // Of another machine, of this machine, at the same memory, and two behind the same cache.
    for location in [Location::of_host(1), at(1, 1, 8), at(1, 0, 4), at(1, 0, 0), at(1, 0, 0)] {
        let transport = network.bind(&nodes.len().to_string()).unwrap();
        let node = builder(location).join(transport, &["local/0"]).unwrap();
        node.wait_joined(LONG).unwrap();
        nodes.push(node);
    }
    let fleet = name("/where");
    for (number, node) in nodes.iter().enumerate() {
        let answer = move |_: ServiceCall<'_>| Some(vec![number as u8]);
        node.serve(&fleet, &root, NameOptions::new().stateless(), answer).unwrap();
    }
    let client = builder(at(1, 0, 0)).visit(network.bind("client").unwrap(), &["local/0"]).unwrap();
    // Of the fleet without its nearest members, the next ones serve.
    for nearest in [&[4, 5][..], &[3], &[1, 2], &[0]] {
        let mut served = HashSet::new();
        // An early call may find the entry of before.
        while served.len() < nearest.len() {
            let number = client.call_repeatable(&fleet, 0, b"", LONG).unwrap()[0];
            assert!(nearest.contains(&number), "{number}, but the nearest are {nearest:?}");
            served.insert(number);
        }
        for number in nearest {
            // The last node keeps the name.
            if nodes.len() > 1 {
                let node =
                    nodes.iter().position(|node| node.endpoint() == format!("local/{number}")).unwrap();
                nodes.remove(node).leave(LONG).unwrap();
            }
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn fo_11_a_node_finds_its_location_in_the_processors_of_its_thread() {
    let locate = || {
        let (node, _) =
            NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap();
        node.show(LONG).unwrap().members.remove(0)
    };
    let machine = squall_machine::machine();
    if machine.is_virtual() {
        return;
    }
    let vp = squall_machine::Vp::current();
    let first = |size| {
        let clusters = machine.clusters(size);
        clusters.members(clusters.cluster_of(vp))[0].index() as u32
    };
    let pinned = std::thread::spawn(move || {
        squall_sys::affinity::restrict_to(&[vp.index()]).unwrap();
        locate()
    });
    let member = pinned.join().unwrap();
    assert_eq!(member.memory, Some(first(squall_machine::ClusterSize::Node)));
    assert_eq!(member.cache, Some(first(squall_machine::ClusterSize::Cache)));
    // All processes of a machine have its number.
    assert_eq!(member.host, locate().host);
}
