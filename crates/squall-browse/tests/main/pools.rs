//! Members of pools over real sockets. The nodes of the group are in this process.

use std::time::Duration;

use crate::common::Program;
use squall_browse::protocol::PoolView;
use squall_browse::{Builder, Client};
use squall_fleet::{GroupKey, LocalNetwork, NodeBuilder};
use squall_pool::{Attributes, DistributedPool};

/// No test waits so long unless it fails.
const LONG: Duration = Duration::from_secs(60);

/// Looks until the members of a pool are as expected: on a loaded machine a node may have no lease for a
/// while.
fn wait_for(client: &mut Client, pool: &str, is_expected: impl Fn(&[PoolView]) -> bool) -> Vec<PoolView> {
    loop {
        let mut found = client.pools().expect("an answer");
        found.retain(|view| view.name == pool);
        if is_expected(&found) {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn members_of_pools_are_listed_with_their_figures() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let (network, key) = (LocalNetwork::new(), GroupKey::random());
    let (first, root) = NodeBuilder::new(key).found(network.bind("0").expect("free"), &[]).expect("a node");
    let second = NodeBuilder::new(key).join(network.bind("1").expect("free"), &["local/0"]).expect("a node");
    second.wait_joined(LONG).expect("joined");
    let name = "/pages".parse().expect("a name");
    let join = |node| DistributedPool::join(node, &name, &root, Attributes::default()).expect("joined");
    let members = [join(&first), join(&second)];
    members[1].add(b"page 7", LONG).expect("added");

    let serve = |view: &PoolView| (&*view.state, view.members) == ("serving", 2);
    let found = wait_for(&mut client, "/pages", |found| found.iter().all(serve) && found[1].elements == 1);
    assert!(found[0].number < found[1].number, "{found:?}");
    assert_eq!(found.iter().filter(|view| view.master).count(), 1, "{found:?}");
    assert!(found.iter().all(|view| view.strategy == "directory" && view.counts.messages > 0), "{found:?}");
    assert!(found[1].counts.operations > 0 && found[0].location != found[1].location, "{found:?}");
    // A node of the program is named by its number in the group.
    let nodes = client.nodes().expect("an answer");
    for view in &found {
        assert!(nodes.iter().any(|node| Some(&node.node) == view.node.as_ref()), "{view:?} {nodes:?}");
    }
    let group = client.group(nodes[0].number).expect("an answer");
    let shown = group.names.iter().find(|shown| shown.name == "/pages").expect("the roster");
    assert!(shown.roster && shown.nodes.len() == 2 && shown.shards == 0 && shown.epochs > 0, "{shown:?}");
    let held = members[1].get_async();
    wait_for(&mut client, "/pages", |found| found[1].untaken == 1);
    drop(held);

    members[0].shutdown(LONG).expect("left");
    let left = wait_for(&mut client, "/pages", |found| found.len() == 1);
    assert_eq!(left[0].number, found[1].number);
    drop((members, first, second));
    assert_eq!(wait_for(&mut client, "/pages", <[PoolView]>::is_empty), []);
    program.check();
}
