//! Swaps and changes of one object.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};
use squall_browse::{Builder, Client, Target};
use squall_core::Handle;

use crate::common::{Folder, Program, alone};
use crate::steering::tally;

#[test]
fn the_swaps_and_changes_of_one_object_are_sent_alone() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let objects = [tally(), tally()];
    let ids = objects.each_ref().map(|object| Handle::id(object.handle()).to_string());
    for id in &ids {
        client.swap(id, "second").expect("registered");
    }
    client.freeze_all(true).expect("done");
    client.freeze_all(false).expect("done");
    let swaps = client.swaps_of(&ids[0]).expect("an answer");
    assert!(swaps.len() == 1 && swaps[0].id == ids[0], "{swaps:?}");
    let actions = client.actions_of(&ids[0]).expect("an answer");
    assert!(actions.iter().all(|action| action.id.as_ref().is_none_or(|id| *id == ids[0])), "{actions:?}");
    let of = |id: Option<&str>| actions.iter().filter(|action| action.id.as_deref() == id).count();
    assert!(of(Some(&ids[0])) == 1 && of(None) >= 2, "{actions:?}");
    assert!(client.swaps().expect("an answer").iter().any(|swap| swap.id == ids[1]));
}

/// Answers as a program that cannot select by an id. Returns the number of requests.
fn serve_older(listener: &UnixListener) -> usize {
    let swap = |id: &str| {
        json!({ "began_ms": 1, "id": id, "interface": "It", "from": "a", "to": "b", "outcome": "swapped", "total_us": 1,
            "longest_pause_us": 0, "forwarded": 0, "blocked": 0, "format": null, "bytes": 0 })
    };
    let action = |id: Option<&str>| json!({ "at_ms": 1, "id": id, "action": "freeze", "outcome": "done" });
    let (stream, _) = listener.accept().expect("a client");
    let mut writer = stream.try_clone().expect("a descriptor");
    let mut count = 0;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        count += 1;
        let request: Value = serde_json::from_str(&line).expect("JSON");
        let answer = match request["op"].as_str() {
            _ if request.get("id").is_some() => {
                json!({ "error": { "kind": "bad-request", "message": "unknown field" } })
            }
            Some("hello") => json!({ "ok":
                { "protocol": 1, "version": "0.1.0", "pid": 1, "program": "old", "all_frozen": false } }),
            Some("swaps") => json!({ "ok": [swap("1.1"), swap("2.1")] }),
            _ => json!({ "ok": [action(Some("1.1")), action(Some("2.1")), action(None)] }),
        };
        writeln!(writer, "{answer}").expect("sent");
    }
    count
}

#[test]
fn the_answer_of_an_older_program_is_filtered_by_the_client() {
    let folder = Folder::new();
    let path = folder.0.join("it.sock");
    let listener = UnixListener::bind(&path).expect("free");
    let program = std::thread::spawn(move || serve_older(&listener));
    let mut client = Client::connect(&Target::Path(path)).expect("a client");
    let swaps = client.swaps_of("2.1").expect("an answer");
    assert_eq!(swaps.iter().map(|swap| &*swap.id).collect::<Vec<_>>(), ["2.1"]);
    let actions = client.actions_of("2.1").expect("an answer");
    let ids: Vec<_> = actions.iter().map(|action| action.id.as_deref()).collect();
    assert_eq!(ids, [Some("2.1"), None]);
    drop(client);
    assert_eq!(program.join().expect("no panic"), 5, "one hello, and two requests for each");
}
