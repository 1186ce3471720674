//! Hostile input: garbage, partial and huge requests, clients that die, that do not read, and too many
//! clients. After each, a well-behaved client is answered and the program's objects work.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::common::{Program, Raw, hits};
use squall_browse::{Builder, Client, ClientError, Target, protocol};

/// Longer than any test takes.
const PATIENT: Duration = Duration::from_secs(3600);
/// Short enough for a test. The tests do not measure it.
const IMPATIENT: Duration = Duration::from_millis(50);

#[test]
fn garbage_is_answered_with_what_would_be_right() {
    let program = Program::new(Builder::new().patience(PATIENT));
    let mut raw = program.raw();
    let cases: [(&[u8], &str); 12] = [
        (b"", "an empty line"),
        (b"hello", r#"{"op":"hello"}"#),
        (b"{", r#"{"op":"hello"}"#),
        (b"\xff\xfe\x00\x80", r#"{"op":"hello"}"#),
        (b"null", "the key \"op\""),
        (b"[1,2,3]", "the key \"op\""),
        (br#"{"op":"kill"}"#, "`freeze-all`"),
        (br#"{"op":7}"#, "the key \"op\""),
        (br#"{"op":"object"}"#, "missing field `id`"),
        (br#"{"op":"object","id":"seventeen"}"#, "SLOT.GENERATION"),
        (br#"{"op":"sample","id":"1.1","span_ms":999999}"#, "from 1 to 1000"),
        (br#"{"op":"list","sort":"bytes","after":"1.1"}"#, "\"sort\":\"id\""),
    ];
    for (line, hint) in cases {
        raw.send(line);
        raw.send(b"\n");
        let (kind, message) = raw.error();
        assert_eq!(kind, "bad-request", "{message}");
        assert!(message.contains(hint), "{:?}: {message}", String::from_utf8_lossy(line));
    }
    let deep = format!("{}\n", "[".repeat(60_000));
    raw.send(deep.as_bytes());
    assert_eq!(raw.error().0, "bad-request");
    raw.send(b"{\"op\":\"object\",\"id\":\"9999999.7\"}\n");
    assert_eq!(raw.error().0, "no-object");
    raw.send(b"{\"op\":\"hello\"}\n");
    assert_eq!(raw.answer().expect("the same connection")["ok"]["protocol"], protocol::VERSION);
    program.check();
}

#[test]
fn half_a_request_and_then_silence_ends_that_connection() {
    let program = Program::new(Builder::new().patience(IMPATIENT));
    let mut raw = program.raw();
    raw.send(b"{\"op\":\"hel");
    let (kind, message) = raw.error();
    assert_eq!(kind, "too-slow", "{message}");
    assert_eq!(raw.answer(), None, "the connection has ended");
    program.check();
}

#[test]
fn a_silent_client_may_stay() {
    let program = Program::new(Builder::new().patience(Duration::from_millis(1)));
    let mut raw = program.raw();
    let mut other = program.raw();
    // The other client's time runs out first, so this client's time would have run out too.
    other.send(b"x");
    assert_eq!(other.error().0, "too-slow");
    raw.send(b"{\"op\":\"hello\"}\n");
    assert!(raw.answer().expect("an answer")["ok"].is_object());
    program.check();
}

#[test]
fn half_a_request_and_then_the_end_is_told_what_is_missing() {
    let program = Program::new(Builder::new().patience(PATIENT));
    let mut raw = program.raw();
    raw.send(b"{\"op\":\"hello\"}\n{\"op\":\"hello\"}");
    raw.stream.shutdown(Shutdown::Write).expect("open");
    assert!(raw.answer().expect("of the whole one")["ok"].is_object());
    let (kind, message) = raw.error();
    assert_eq!(kind, "bad-request");
    assert!(message.contains("newline"), "{message}");
    assert_eq!(raw.answer(), None);
    program.check();
}

#[test]
fn a_huge_request_ends_that_connection() {
    let program = Program::new(Builder::new());
    for newline in [false, true] {
        let mut raw = program.raw();
        let mut line = vec![b'{'; 8 << 20];
        if newline {
            line.push(b'\n');
        }
        raw.send(&line);
        let (kind, message) = raw.error();
        assert_eq!(kind, "too-long");
        assert!(message.contains("65536"), "{message}");
        assert_eq!(raw.answer(), None);
    }
    program.check();
}

#[test]
fn a_request_may_come_byte_by_byte_and_many_at_once() {
    let program = Program::new(Builder::new().patience(PATIENT));
    let mut raw = program.raw();
    for byte in b"{\"op\":\"hello\"}\n" {
        raw.send(std::slice::from_ref(byte));
    }
    assert!(raw.answer().expect("an answer")["ok"].is_object());
    raw.send("{\"op\":\"hello\"}\n\n".repeat(500).as_bytes());
    for _ in 0..500 {
        assert!(raw.answer().expect("an answer")["ok"].is_object());
        assert_eq!(raw.error().0, "bad-request");
    }
    program.check();
}

/// Creates so many objects that their list does not fit the socket buffers.
fn crowd() -> Vec<squall_core::Owned<dyn crate::common::Hits>> {
    (0..protocol::OBJECTS_MAX).map(|_| hits()).collect()
}

#[test]
fn a_client_that_dies_in_the_middle_of_an_answer_is_forgotten() {
    let program = Program::new(Builder::new().clients_max(2));
    let crowd = crowd();
    for _ in 0..8 {
        let mut raw = program.raw();
        raw.send(b"{\"op\":\"list\"}\n");
        let mut byte = [0];
        std::io::Read::read_exact(&mut raw.stream, &mut byte).expect("the answer has begun");
        drop(raw);
        program.check_when_there_is_room();
    }
    drop(crowd);
    program.check();
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_delays_no_other() {
    let program = Program::new(Builder::new().patience(IMPATIENT));
    let crowd = crowd();
    let mut raw = program.raw();
    raw.send("{\"op\":\"list\"}\n".repeat(100).as_bytes());
    program.check();
    // Its later requests are not read: the connection ends before a hundred answers were sent.
    let mut silent = program.raw();
    silent.send(b"x");
    assert_eq!(silent.error().0, "too-slow", "more time has passed than the first one had");
    program.check();
    let mut answers = 0;
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut raw.stream, &mut bytes);
    answers += bytes.iter().filter(|byte| **byte == b'\n').count();
    assert!(answers < 100, "it was dropped");
    drop(crowd);
}

#[test]
fn one_client_too_many_is_turned_away_and_told() {
    let program = Program::new(Builder::new().clients_max(3).silence(PATIENT));
    let target = Target::Path(program.path().to_owned());
    let mut inside: Vec<Client> = (0..3).map(|_| program.client()).collect();
    match Client::connect(&target) {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.kind, protocol::RefusalKind::TooManyClients);
        }
        other => panic!("{other:?}"),
    }
    for client in &mut inside {
        client.hello().expect("those inside are served");
    }
    inside.pop();
    program.check_when_there_is_room();
    // Many clients at once: each is accepted or turned away, and all return.
    let seen: Vec<bool> = std::thread::scope(|scope| {
        let knock = || match Client::connect(&target) {
            Ok(mut client) => client.hello().is_ok(),
            Err(ClientError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        };
        let knocking: Vec<_> = (0..32).map(|_| scope.spawn(knock)).collect();
        knocking.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert_eq!(seen.len(), 32);
    drop(inside);
    program.check_when_there_is_room();
}

#[test]
fn a_client_that_comes_and_goes_leaks_no_descriptor() {
    let program = Program::new(Builder::new());
    for _ in 0..200 {
        drop(program.raw());
    }
    program.check_when_there_is_room();
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // Other tests of this process open descriptors, too, for a while. A leak would be hundreds, for ever.
    let began = Instant::now();
    while open() >= 200 {
        assert!(began.elapsed() < Duration::from_secs(300), "{} descriptors", open());
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Program {
    /// Runs `check` once the server has noticed the clients that have gone.
    fn check_when_there_is_room(&self) {
        let target = Target::Path(self.path().to_owned());
        loop {
            match Client::connect(&target) {
                Ok(_) => break,
                Err(ClientError::Refused(_)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            let mut raw = Raw::new(self.path());
            raw.send(b"{\"op\":\"hello\"}\n");
            match raw.answer() {
                Some(answer) if answer["ok"].is_object() => break,
                _ => std::thread::yield_now(),
            }
        }
    }
}
