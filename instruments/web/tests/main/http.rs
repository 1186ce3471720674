//! The page's server, as browsers and other programs see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use serde_json::json;
use squall::adapt::control;
use squall::objects::counter::Counter;
use squall::{Handle, Owned};
use squall_web::End;

use crate::common::{AUTHOR, Program, row};

#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn hit(&self) -> u64;
}

pub(crate) struct Always;

impl Hits for Always {
    fn hit(&self) -> u64 {
        1
    }
}

pub(crate) fn plain() -> (Owned<dyn Hits>, String) {
    let object: Owned<dyn Hits> = squall::shared(Always);
    let id = Handle::id(object.handle()).to_string();
    (object, id)
}

#[test]
fn a_request_without_the_token_is_refused() {
    let program = Program::new(false);
    let page = &program.page;
    let host = format!("127.0.0.1:{}", page.port);
    let wrong = page.token.replace(|digit: char| digit.is_ascii_digit(), "a");
    let nearly = &page.token[1..];
    for path in
        ["/", "/main.js", "/program", &format!("/{wrong}/"), &format!("/{nearly}/program"), "//program"]
    {
        let answer = page.send("GET", path, &[("host", &host)], "");
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.headers.iter().any(|header| header.starts_with("content-security-policy:")));
        let text = answer.text();
        assert!(text.contains("the address that squall browse printed"), "{text}");
        assert!(!text.contains(&page.token));
    }
    for file in ["", "main.js", "style.css", "program"] {
        assert_eq!(page.get(file).status, 200, "{file}");
    }
    assert_eq!(page.get("no-such-file").status, 404);
    assert!(page.get("object/1.1/no-such-request").refused(404).contains("no such request"));
    assert!(page.get("freeze-all").refused(405).contains("POST"));
    let bare = page.send("GET", &format!("/{}", page.token), &[("host", &host)], "");
    assert!(bare.headers.contains(&format!("location: /{}/", page.token)), "{:?}", bare.headers);
}

#[test]
fn a_request_through_another_name_or_from_another_site_is_refused() {
    let program = Program::new(false);
    let page = &program.page;
    let host = format!("127.0.0.1:{}", page.port);
    let program_path = page.path("program");
    let port = page.port;
    let names = [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1:1",
        "",
        &format!("localhost:{port}"),
        &format!("[::1]:{port}"),
    ];
    for name in names {
        assert_eq!(page.send("GET", &program_path, &[("host", name)], "").status, 403, "{name}");
    }
    assert_eq!(page.send("GET", &program_path, &[], "").status, 403, "no host");
    for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let headers = [("host", &*host), foreign];
        assert_eq!(page.send("GET", &program_path, &headers, "").status, 403, "{foreign:?}");
    }
    let body = r#"{"frozen":true}"#;
    let freeze = page.path("freeze-all");
    assert_eq!(page.send("POST", &freeze, &[("host", &host)], body).status, 403, "no token in a header");
    let headers = [("host", &*host), ("x-squall-token", &page.token), ("origin", "http://evil.example")];
    assert_eq!(page.send("POST", &freeze, &headers, body).status, 403, "from another site");
    assert!(!control::all_frozen());
}

#[test]
fn a_page_gets_all_objects_and_then_the_changed_ones() {
    let program = Program::new(false);
    let adaptive = squall::objects::counter::adaptive().named("hot \u{1b}[2J counter");
    let id = Handle::id(adaptive.handle()).to_string();
    let (other, other_id) = plain();
    let mut rows = program.page.follow();
    let first = rows.next();
    assert_eq!(first["full"], true);
    let seen = row(&first, &id).expect("it is there");
    assert_eq!((&seen["name"], &seen["frozen"]), (&json!("hot \u{1b}[2J counter"), &json!(false)));
    assert!(row(&first, &other_id).is_some_and(|row| row["class"] == "Always"));
    assert_eq!(program.page.post(&format!("object/{id}/freeze"), &json!({ "frozen": true })).status, 200);
    // Tests beside this one change other objects. After the end of very many, all rows are sent.
    loop {
        let update = rows.next();
        assert!(update["full"] == true || row(&update, &other_id).is_none(), "it did not change");
        if row(&update, &id).is_some_and(|row| row["frozen"] == true) {
            break;
        }
    }
    drop(other);
    loop {
        let update = rows.next();
        let is_absent = update["full"] == true && row(&update, &other_id).is_none();
        if is_absent || update["gone"].as_array().expect("ids").contains(&json!(other_id)) {
            break;
        }
    }
}

#[test]
fn a_page_gets_the_links_of_objects_and_the_mediators_before_them() {
    let program = Program::new(false);
    let (whole, whole_id) = plain();
    let (part, part_id) = plain();
    let part = part.named("inner").part_of(whole.handle());
    let is = |answer: &serde_json::Value, holds: fn(&serde_json::Value) -> bool| {
        row(answer, &part_id).is_some_and(holds)
    };
    let answer = program.page.wait_for(|answer| row(answer, &part_id).is_some());
    assert_eq!(row(&answer, &part_id).expect("it is there")["part_of"], whole_id);
    let detail = program.page.get(&format!("object/{part_id}")).json()["detail"].take();
    assert_eq!(detail["whole"]["id"], whole_id);
    let detail = program.page.get(&format!("object/{whole_id}")).json()["detail"].take();
    assert_eq!((&detail["parts"][0]["id"], &detail["parts"][0]["name"]), (&json!(part_id), &json!("inner")));
    let arbiter = squall::swap::arbitrate(part.handle(), |_| {}).expect("it lives");
    program.page.wait_for(|answer| is(answer, |row| row["mediator"]["phase"] == "arbitrate"));
    drop(arbiter);
    program.page.wait_for(|answer| is(answer, |row| row["mediator"].is_null()));
    drop(whole);
    program.page.wait_for(|answer| is(answer, |row| row["part_of"].is_null()));
}

#[test]
fn a_page_gets_more_objects_than_one_answer_has() {
    let objects: Vec<_> = (0..squall::browse::protocol::OBJECTS_MAX + 3).map(|_| plain()).collect();
    let program = Program::new(false);
    let first = program.page.rows(0);
    let ids: std::collections::HashSet<_> = first["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["id"].as_str().expect("an id"))
        .collect();
    assert!(objects.iter().all(|(_, id)| ids.contains(&**id)));
}

#[test]
fn an_object_is_changed_and_the_change_has_its_author() {
    let program = Program::new(false);
    let page = &program.page;
    let object = squall::objects::counter::adaptive();
    let id = Handle::id(object.handle()).to_string();
    object.handle().add(5);
    let detail = page.get(&format!("object/{id}")).json();
    assert_eq!(detail["detail"]["id"], id);
    let form = detail["detail"]["forms"][1].as_str().expect("a name").to_owned();
    assert_eq!(page.post(&format!("object/{id}/freeze"), &json!({ "frozen": true })).status, 200);
    let margin = json!({ "name": "margin", "value": "2.5" });
    assert_eq!(page.post(&format!("object/{id}/set"), &margin).status, 200);
    let why = page.post(&format!("object/{id}/set"), &json!({ "name": "margin", "value": "x" })).refused(409);
    assert!(why.contains("margin"), "{why}");
    let from = || {
        let attributes = page.get(&format!("object/{id}")).json()["detail"]["attributes"].clone();
        let margin = attributes.as_array().expect("attributes").iter().find(|one| one["name"] == "margin");
        margin.expect("an attribute")["from"].clone()
    };
    assert_eq!(from(), "instance");
    assert_eq!(page.post(&format!("object/{id}/unset"), &json!({ "name": "margin" })).json(), true);
    assert_eq!(from(), "default");
    let swap = page.post(&format!("object/{id}/swap"), &json!({ "implementation": form })).json();
    assert_eq!(swap["outcome"], "swapped");
    assert_eq!(object.handle().total(), 5);
    let seen = page.get(&format!("object/{id}")).json();
    assert_eq!(seen["detail"]["form"], form.as_str());
    assert!(seen["detail"]["last_decision"].as_str().expect("a sentence").contains("swapped by hand"));
    assert!(seen["swaps"].as_array().expect("swaps").iter().any(|swap| swap["id"] == id));
    let actions: Vec<_> =
        seen["actions"].as_array().expect("changes").iter().filter(|one| one["id"] == id).collect();
    let texts: Vec<_> = actions.iter().map(|one| one["action"].as_str().expect("text")).collect();
    assert_eq!(
        texts,
        ["freeze", "set margin = 2.5", "set margin = x", "unset margin", &format!("swap to {form}")]
    );
    assert!(actions.iter().all(|one| one["author"] == *AUTHOR), "{actions:?}");
    assert!(actions[0]["outcome"] == "done" && actions[2]["outcome"] != "done", "{actions:?}");
    assert_eq!(seen["history"][0]["why"], format!("requested by {}", *AUTHOR));
    assert!(page.get("object/9999999.1").refused(404).contains("9999999.1"));
    assert_eq!(page.post(&format!("object/{id}/freeze"), &json!({ "frozen": "yes" })).status, 400);
}

#[test]
fn calls_are_counted_on_request() {
    let program = Program::new(false);
    let page = &program.page;
    let (object, id) = plain();
    let rate = || row(&page.rows(0), &id).expect("it is there")["calls_per_s"].as_f64();
    assert_eq!(rate(), None);
    let gone = page.post("count", &json!({ "ids": ["9999999.1"] })).json();
    assert_eq!(gone["refused"][0]["id"], "9999999.1", "{gone}");
    let count = || page.post("count", &json!({ "ids": [&id] })).status;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                object.handle().hit();
            }
        });
        while rate().is_none_or(|rate| rate == 0.0) {
            assert_eq!(count(), 200);
        }
        stop.store(true, Ordering::Relaxed);
    });
    while rate() != Some(0.0) {
        assert_eq!(count(), 200);
    }
    let many = vec![id.clone(); 9];
    assert!(page.post("count", &json!({ "ids": many })).refused(400).contains('8'));
}

#[test]
fn a_read_only_page_changes_nothing() {
    let program = Program::new(true);
    let object = squall::objects::counter::adaptive();
    let id = Handle::id(object.handle()).to_string();
    for (path, body) in [
        (format!("object/{id}/freeze"), json!({ "frozen": true })),
        (format!("object/{id}/set"), json!({ "name": "margin", "value": "2" })),
        (format!("object/{id}/swap"), json!({ "implementation": "any" })),
        (format!("object/{id}/unset"), json!({ "name": "margin" })),
        ("freeze-all".to_owned(), json!({ "frozen": true })),
        // A count slows the calls of the object.
        ("count".to_owned(), json!({ "ids": [&id] })),
    ] {
        assert!(program.page.post(&path, &body).refused(403).contains("--read-only"), "{path}");
    }
    let seen = program.page.get(&format!("object/{id}")).json();
    assert_eq!(seen["detail"]["frozen"], false);
    assert_eq!(program.page.get("program").json()["read_only"], true);
    assert!(!control::all_frozen());
}

#[test]
fn the_end_of_the_program_is_told_and_ends_the_server() {
    let program = Program::new(false);
    program.page.rows(0);
    let page = program.end();
    let mut rows = page.follow();
    let why = loop {
        if let Some(why) = rows.next()["ended"].as_str() {
            break why.to_owned();
        }
    };
    assert!(why.contains(&format!("process {}", std::process::id())) && why.contains("has ended"), "{why}");
    match page.join().expect("no error") {
        End::Program(text) => assert_eq!(text, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_server_ends_without_a_page() {
    let program = Program::new(false);
    assert!(matches!(program.end().join(), Ok(End::Program(_))));
}

#[test]
fn rows_are_printed_until_the_reader_is_gone() {
    let (sender, lines) = mpsc::channel();
    let print =
        move |row: &str| sender.send(row.to_owned()).map_err(|_| std::io::ErrorKind::BrokenPipe.into());
    let program = Program::with(false, Some(Box::new(print)));
    let (object, id) = plain();
    let next = || serde_json::from_str::<serde_json::Value>(&lines.recv().expect("a line")).expect("JSON");
    while next()["id"] != *id {}
    drop(object);
    while next() != json!({ "id": id, "state": "gone" }) {}
    drop(lines);
    // An object that appears is printed to nobody.
    let (_object, _) = plain();
    assert!(matches!(program.page.join(), Ok(End::Output(_))));
}
