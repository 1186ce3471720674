//! Messages to names in the child of a fork.
//!
//! A program of its own: the threads of other tests would hold locks at the fork.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

#[path = "../../squall-rcu/tests/forked/mod.rs"]
mod forked;

use squall_fleet::{Fate, GroupKey, LocalNetwork, Mailbox, Name, NamedSendError, NodeBuilder};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// The thread that would end a message on its way is missing in the child.
#[test]
fn a_child_sends_nothing_and_does_not_wait_for_an_earlier_message() {
    const LONG: Duration = Duration::from_secs(3600);
    let network = LocalNetwork::new();
    let (node, _root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a").unwrap(), &[]).unwrap();
    let name: Name = "/log".parse().unwrap();
    let mailbox = Mailbox::new();
    let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
    // The message waits for the name, and its future is dropped.
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(sender.try_send_async(b"given up", LONG)).poll(&mut context).is_pending());
    let expected = Err(NamedSendError::NotSent { name, fate: Fate::Closed });
    assert!(forked::in_forked_child(|| sender.try_send(b"in the child", LONG) == expected));
}
