//! The objects of a server that runs, as `squall top` sees them.
#![cfg(target_os = "linux")]

mod common;
#[path = "common/program.rs"]
mod program;

use common::Client;
use program::Program;
use squall::browse::protocol::ListQuery;
use squall::browse::{self, Target};

#[test]
fn objects_have_names_and_the_policy_shows_its_name() {
    let mut program = Program::start(&["--listen", "127.0.0.1:0", "--browse", "--policy", "lru"], 1);
    let mut client = Client::new(program.places[0].parse().expect("an address"));
    assert_eq!(client.set("k", "v"), "STORED");
    let target = Target::Process(program.child.id());
    let mut browser = browse::Client::connect(&target).expect("the program serves it");
    let objects = browser.list(&ListQuery::default()).expect("it answers").objects;
    let class = |name: &str| {
        let object = objects.iter().find(|object| object.name.as_deref() == Some(name));
        &object.unwrap_or_else(|| panic!("{name} is not in {objects:?}")).class
    };
    assert_eq!(class("server.get_hits"), class("server.bytes_read"));
    class("server.configuration");
    assert!(class("entries.policy").to_lowercase().contains("lru"), "{}", class("entries.policy"));
    // The policy is swapped by its name, and the server serves on.
    let id = |browser: &mut browse::Client| {
        let objects = browser.list(&ListQuery::default()).expect("it answers").objects;
        let policy = objects.into_iter().find(|object| object.name.as_deref() == Some("entries.policy"));
        policy.map(|policy| (policy.id, policy.class)).expect("it is there")
    };
    let (policy, _) = id(&mut browser);
    let mut names = browser.implementations(&policy).expect("it answers");
    names.sort_unstable();
    assert_eq!(names, ["admission", "frequency", "lru"]);
    browser.swap(&policy, "frequency").expect("no call holds it up for long");
    assert!(id(&mut browser).1.to_lowercase().contains("frequency"));
    assert_eq!(client.gets("k").map(|(value, _)| value).as_deref(), Some("v"));
    // Without the option, no client is served.
    let other = Program::start(&["--listen", "127.0.0.1:0"], 1);
    assert!(browse::Client::connect(&Target::Process(other.child.id())).is_err());
    program.signal("TERM");
    assert!(program.end());
}
