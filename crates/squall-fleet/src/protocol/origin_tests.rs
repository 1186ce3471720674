//! The origin of frames: a member does not speak from the endpoint of another one.

use super::core::{Core, NodeOptions, Output};
use super::frame::{Body, Frame};
use super::group::Timing;
use super::location::Location;
use super::{NodeId, Time};

const TIMING: Timing = Timing { beat: 30_000, lease: 400_000, loyal: 160_000 };
const SECOND: Time = 1_000_000;
const GROUP: u128 = 5;
const OTHER: NodeId = NodeId(2);

/// Gives the node a frame of the other one. Returns whether it answers with the directory.
fn shows(core: &mut Core, from: &str, body: Body) -> bool {
    core.receive(SECOND, from, &Frame::new(GROUP, OTHER, NodeId(0), body).encode());
    let sent = core.take_outputs().into_iter().filter_map(|output| match output {
        Output::Send { frame, .. } => Frame::decode(&frame),
        _ => None,
    });
    // All outputs are looked at, so that none stays for the next frame.
    sent.filter(|frame| matches!(frame.body, Body::Shown { .. })).count() > 0
}

#[test]
fn a_member_does_not_speak_from_the_endpoint_of_another_one() {
    let location = Location::of_host(1);
    let options = NodeOptions { group: GROUP, endpoint: "a".into(), location, timing: TIMING };
    let mut core = Core::new(options, 1, SECOND);
    core.found(SECOND, 77, Vec::new());
    // A node that is no member may come from anywhere.
    assert!(shows(&mut core, "b", Body::Show));
    assert!(shows(&mut core, "a", Body::Show));
    assert!(!shows(&mut core, "b", Body::Join { endpoint: "b".into(), location }));
    assert!(core.group().directory.members.contains_key(&OTHER));
    assert!(shows(&mut core, "b", Body::Show));
    assert!(!shows(&mut core, "a", Body::Show));
    // A transport may know the node by a name of its own.
    assert!(shows(&mut core, "from-b#1", Body::Show));
}
