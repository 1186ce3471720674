//! The page's server while the program is busy, full, silent or gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use squall::adapt::control;
use squall::browse::protocol::{ListQuery, ObjectView};
use squall::browse::{Builder, Client, Target};
use squall::{Handle, Id};
use squall_web::{End, Options, Site};

use crate::common::{AUTHOR, Folder, Page, ids};
use crate::scripted::{Reaction, Scripted};

/// Time that no test takes.
const LONG: Duration = Duration::from_secs(3600);

fn object(id: &str, misses: u64) -> Value {
    let mut object = ObjectView::default();
    (object.id, object.misses) = (id.to_owned(), misses);
    json!(object)
}

fn lost(answer: &Value) -> &str {
    answer["lost"].as_str().unwrap_or_default()
}

#[test]
fn a_program_is_polled_once_in_an_interval_and_only_for_a_page() {
    let program = Scripted::new();
    let page = Page::with(Options { interval: LONG, ..Page::options(program.target()) }, None);
    // An older program does not know this request.
    assert_eq!(page.get("program").json()["machine"]["levels"], json!([]));
    assert_eq!(page.get("main.js").status, 200);
    assert_eq!(program.requests(), ["hello", "hello", "machine"], "one hello checks the version");
    let first = page.rows(0);
    assert_eq!(
        (&first["full"], &first["lost"], &first["connections"]),
        (&json!(true), &json!(null), &json!(1))
    );
    page.rows(0);
    page.rows(1);
    assert_eq!(page.post("object/1.1/freeze", &json!({ "frozen": true })).status, 200);
    assert_eq!(program.requests(), ["list", "freeze"]);
}

#[test]
fn a_page_gets_only_the_changed_rows() {
    let program = Scripted::new();
    let page = Page::with(Options { interval: Duration::ZERO, ..Page::options(program.target()) }, None);
    program.state().objects = vec![object("1.1", 0), object("2.1", 0), object("3.1", 0)];
    let first = page.rows(0);
    assert_eq!((&first["full"], ids(&first)), (&json!(true), vec!["1.1", "2.1", "3.1"]));
    let since = |update: &Value| page.rows(update["number"].as_u64().expect("a number"));
    let none = since(&first);
    assert_eq!((&none["full"], ids(&none), &none["gone"]), (&json!(false), vec![], &json!([])));
    program.state().objects = vec![object("1.1", 0), object("2.1", 5)];
    let second = since(&first);
    assert_eq!(
        (&second["full"], ids(&second), &second["gone"]),
        (&json!(false), vec!["2.1"], &json!(["3.1"]))
    );
    // The rate of misses ends.
    let third = since(&second);
    assert_eq!((ids(&third), &third["rows"][0]["misses_per_s"]), (vec!["2.1"], &json!(null)));
    let late = since(&first);
    assert_eq!((ids(&late), &late["gone"]), (vec!["2.1"], &json!(["3.1"])), "a page that missed updates");
}

#[test]
fn a_full_program_is_asked_again_and_the_page_says_so() {
    let program = Scripted::new();
    let page = Page::new(program.target(), false, None);
    program.state().objects = vec![object("1.1", 0)];
    page.wait_for(|answer| ids(answer) == ["1.1"] && lost(answer).is_empty());
    program.react(Reaction::Closes);
    page.wait_for(|answer| !lost(answer).is_empty());
    program.react(Reaction::IsFull);
    let full = page.wait_for(|answer| lost(answer).contains("8 clients are connected"));
    assert_eq!(ids(&full), ["1.1"], "the rows stay");
    let refused = page.post("object/1.1/freeze", &json!({ "frozen": true })).refused(503);
    assert!(refused.contains("no connection") && refused.contains("8 clients"), "{refused}");
    program.react(Reaction::Answers);
    let again = page.wait_for(|answer| lost(answer).is_empty());
    assert!(again["connections"].as_u64() > Some(1), "{again}");
    assert!(!program.requests().contains(&"freeze".to_owned()), "a refused change was not sent");
}

#[test]
fn a_silent_program_is_asked_again_and_the_page_says_so() {
    let program = Scripted::new();
    let timeout = Duration::from_millis(50);
    let options = Options { timeout, ..Page::options(program.target()) };
    // On a busy machine, the first answers may be late too.
    let site = std::iter::repeat_with(|| Site::open(options.clone())).find_map(Result::ok).expect("a site");
    let page = Page::serve(site, None);
    program.react(Reaction::IsSilent);
    page.wait_for(|answer| lost(answer).contains("did not answer"));
    program.react(Reaction::Answers);
    page.wait_for(|answer| answer["rows"].is_array() && lost(answer).is_empty());
}

#[test]
fn a_page_does_not_wait_for_a_program_that_hangs() {
    let program = Scripted::new();
    let page = Page::with(Options { timeout: LONG, ..Page::options(program.target()) }, None);
    let hangs = program.state();
    assert!(lost(&page.news(0)).contains("has not answered"), "the poller waits for the program");
    assert_eq!(page.get("program").status, 200);
    // A change by a page that is gone.
    let mut gone = TcpStream::connect(("127.0.0.1", page.port)).expect("a connection");
    let (path, port, token) = (page.path("object/1.1/freeze"), page.port, &page.token);
    let body = json!({ "frozen": true }).to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-squall-token: {token}");
    write!(gone, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("sent");
    assert_eq!(page.get("program").status, 200, "the change waits");
    drop(gone);
    assert_eq!(page.get("program").status, 200, "the end of its page was seen");
    drop(hangs);
    page.wait_for(|answer| answer["rows"].is_array() && lost(answer).is_empty());
    assert!(!program.requests().contains(&"freeze".to_owned()), "nobody waits for this change");
}

#[test]
fn the_outcome_of_a_change_without_an_answer_is_unknown() {
    let program = Scripted::new();
    let page = Page::new(program.target(), false, None);
    program.react(Reaction::Closes);
    let why = page.post("object/1.1/freeze", &json!({ "frozen": true })).refused(502);
    assert!(why.contains("unknown"), "{why}");
    let sent = program.requests().iter().filter(|operation| *operation == "freeze").count();
    assert_eq!(sent, 1, "a change is not sent twice");
}

#[test]
fn another_program_at_the_same_path_is_the_end() {
    let program = Scripted::new();
    let page = Page::new(program.target(), false, None);
    page.rows(0);
    {
        let mut state = program.state();
        (state.instance, state.reaction) = (2, Reaction::Closes);
    }
    let ended = page.wait_for(|answer| answer["ended"].is_string());
    assert!(ended["ended"].as_str().is_some_and(|why| why.contains("it (process 1) has ended")), "{ended}");
    assert!(matches!(page.join(), Ok(End::Program(_))));
}

#[test]
fn a_change_after_an_eviction_is_carried_out_with_its_author() {
    let folder = Folder::new();
    let builder = Builder::new().path(folder.socket()).clients_max(1).silence(Duration::ZERO);
    let _server = builder.serve().expect("a server");
    let target = Target::Path(folder.socket());
    let page = Page::new(target.clone(), false, None);
    let object = squall::objects::counter::adaptive();
    let id = Handle::id(object.handle());
    for frozen in [true, false] {
        // Takes the place of the page's server, unless that sends a request just now.
        let attempts = || Client::connect(&target);
        let mut other = std::iter::repeat_with(attempts).find_map(Result::ok).expect("a client");
        let _ = other.list(&ListQuery::default());
        assert_eq!(page.post(&format!("object/{id}/freeze"), &json!({ "frozen": frozen })).status, 200);
        assert_eq!(status(id), frozen);
    }
    let actions = page.get(&format!("object/{id}")).json()["actions"].clone();
    let own: Vec<_> =
        actions.as_array().expect("changes").iter().filter(|one| one["id"] == id.to_string()).collect();
    assert!(own.len() == 2 && own.iter().all(|one| one["author"] == *AUTHOR), "{own:?}");
}

#[test]
fn a_program_that_nobody_looks_at_has_no_connection() {
    // The end of the process is seen without a connection if the target names it.
    let server = Builder::new().clients_max(1).silence(LONG).serve().expect("a server");
    let target = Target::Process(std::process::id());
    let page = Page::new(target.clone(), false, None);
    assert_eq!(lost(&page.rows(0)), "");
    let other = loop {
        match Client::connect(&target) {
            Ok(client) => break client,
            Err(error) => assert!(error.is_refusal(), "the page's server holds the only place: {error}"),
        }
    };
    assert!(lost(&page.rows(0)).contains("1 clients"), "the other client holds it");
    drop(other);
    page.wait_for(|answer| lost(answer).is_empty());
    drop(server);
    page.wait_for(|answer| answer["ended"].is_string());
    assert!(matches!(page.join(), Ok(End::Program(_))));
}

#[test]
fn a_connection_without_a_request_is_closed() {
    let program = Scripted::new();
    let page = Page::new(program.target(), false, None);
    let mut silent = TcpStream::connect(("127.0.0.1", page.port)).expect("a connection");
    write!(silent, "GET /").expect("sent");
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("it is closed");
    assert_eq!(page.get("program").status, 200);
}

fn status(id: Id) -> bool {
    control::status(id).expect("it is adaptive").frozen
}
