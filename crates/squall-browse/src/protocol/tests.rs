//! Tests of the format of requests and answers.

use super::*;

#[test]
fn requests_are_what_the_documentation_shows() {
    let read = |text: &str| serde_json::from_str::<Request>(text);
    assert_eq!(read(r#"{"op":"hello"}"#).expect("hello"), Request::Hello {});
    assert_eq!(read(r#"{"op":"list"}"#).expect("list"), Request::List(ListQuery::default()));
    let query = ListQuery { sort: Sort::Bytes, limit: Some(3), ..ListQuery::default() };
    assert_eq!(read(r#"{"op":"list","sort":"bytes","limit":3}"#).expect("list"), Request::List(query));
    let set = read(r#"{"op":"set","id":"17.3","name":"width","value":"4"}"#).expect("set");
    let wanted = Request::Set { id: "17.3".into(), name: "width".into(), value: "4".into(), author: None };
    assert_eq!(set, wanted);
    let all = Request::FreezeAll { author: None };
    assert_eq!(serde_json::to_string(&all).expect("text"), r#"{"op":"freeze-all"}"#);
    let named = read(r#"{"op":"freeze-all","author":"ann"}"#).expect("freeze-all");
    assert_eq!(named, Request::FreezeAll { author: Some("ann".into()) });
}

#[test]
fn errors_name_what_would_be_right() {
    let error = |text: &str| serde_json::from_str::<Request>(text).expect_err("bad").to_string();
    let unknown = error(r#"{"op":"kill"}"#);
    assert!(unknown.contains("`kill`") && unknown.contains("`freeze-all`"), "{unknown}");
    assert!(error(r#"{"op":"object"}"#).contains("missing field `id`"));
    let extra = error(r#"{"op":"object","id":"1.0","ids":2}"#);
    assert!(extra.contains("`ids`") && extra.contains("`id`"), "{extra}");
    let sort = error(r#"{"op":"list","sort":"name"}"#);
    assert!(sort.contains("`bytes`"), "{sort}");
    assert!(error(r#"{"op":"hello","id":1}"#).contains("unknown field"), "no field is passed over");
}

#[test]
fn the_list_of_operations_is_that_of_the_requests() {
    let error = serde_json::from_str::<Request>(r#"{"op":""}"#).expect_err("none").to_string();
    let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert_eq!(known, OPERATIONS, "{error}");
}

#[test]
fn a_client_reads_what_an_earlier_server_says() {
    let text = r#"{"protocol":1,"version":"0.1.0","pid":7,"program":"it","all_frozen":false}"#;
    let earlier: Hello = serde_json::from_str(text).expect("readable");
    assert!(!earlier.records_authors && earlier.operations.is_empty());
    assert!(earlier.is_same_program(&earlier.clone()));
    let later = Hello { instance: Some(7), ..earlier.clone() };
    assert!(!later.is_same_program(&earlier), "the process was taken over");
}

#[test]
fn a_client_reads_what_a_later_server_says() {
    let text = r#"{"error":{"kind":"weary","message":"later","more":1}}"#;
    let answer: Answer<Hello> = serde_json::from_str(text).expect("readable");
    let Answer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert_eq!((refusal.kind, refusal.message.as_str()), (RefusalKind::Unknown, "later"));
}
