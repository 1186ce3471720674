//! Random bytes, and random changes of valid requests: each line is answered by one line, and other clients
//! are not disturbed.
//!
//! `SQUALL_TEST_SEED=N cargo test -p squall-browse --test main fuzz` repeats a run.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{Program, alone};
use serde_json::Value;
use squall_browse::Builder;

/// Requests of one run.
const ROUNDS: usize = if cfg!(miri) { 50 } else { 4000 };

/// Random generator that depends only on its seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

fn seed() -> u64 {
    let given = std::env::var("SQUALL_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    });
    println!("SQUALL_TEST_SEED={seed} cargo test -p squall-browse --test main fuzz");
    seed
}

/// Returns valid requests, except those that take long.
fn good(id: &str) -> Vec<String> {
    let of = |op: &str| format!(r#"{{"op":"{op}","id":"{id}"}}"#);
    let mut requests: Vec<String> = ["object", "history", "implementations", "attributes", "freeze", "thaw"]
        .into_iter()
        .map(of)
        .collect();
    requests.extend(
        [
            r#"{"op":"hello"}"#,
            r#"{"op":"decisions"}"#,
            r#"{"op":"swaps"}"#,
            r#"{"op":"memory"}"#,
            r#"{"op":"nodes"}"#,
            r#"{"op":"group","node":1}"#,
            r#"{"op":"pools"}"#,
            r#"{"op":"thaw-all"}"#,
            r#"{"op":"list","sort":"bytes","limit":5,"interface":"Hits"}"#,
            r#"{"op":"list","after":"1.1"}"#,
        ]
        .map(str::to_owned),
    );
    requests.push(format!(r#"{{"op":"set","id":"{id}","name":"width","value":"4"}}"#));
    requests.push(format!(r#"{{"op":"swap","id":"{id}","implementation":"none of this name"}}"#));
    requests.push(format!(r#"{{"op":"sample","id":"{id}","span_ms":1}}"#));
    requests
}

/// Returns one line without a newline: a valid request, a changed one, or noise.
fn line(draw: &mut Draw, good: &[String]) -> Vec<u8> {
    let mut line = if draw.below(4) == 0 {
        (0..draw.below(200)).map(|_| draw.byte()).collect()
    } else {
        good[draw.below(good.len())].clone().into_bytes()
    };
    for _ in 0..draw.below(4) {
        let place = draw.below(line.len() + 1);
        match draw.below(5) {
            0 => line.insert(place, draw.byte()),
            1 => line.truncate(place),
            2 if place < line.len() => line[place] ^= 1 << draw.below(8),
            3 if place < line.len() => drop(line.remove(place)),
            _ => {
                let other = good[draw.below(good.len())].as_bytes();
                let from = draw.below(other.len());
                line.splice(place..place, other[from..].iter().copied());
            }
        }
    }
    line.retain(|byte| *byte != b'\n');
    line
}

#[test]
fn every_line_is_answered_by_a_line() {
    let _alone = alone();
    // A client must not be cut off because the machine is busy.
    let program = Program::new(Builder::new().patience(Duration::from_secs(3600)));
    let good = good(&program.id());
    let mut draw = Draw(seed());
    let mut raw = program.raw();
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..ROUNDS {
        let line = line(&mut draw, &good);
        // Some lines are sent in two pieces.
        let cut = if draw.below(8) == 0 { draw.below(line.len() + 1) } else { 0 };
        raw.send(&line[..cut]);
        raw.send(&[&line[cut..], b"\n"].concat());
        let answer = raw.answer().unwrap_or_else(|| panic!("{line:?} ended the connection"));
        let kind = match (&answer["ok"], &answer["error"]["kind"]) {
            (Value::Null, Value::String(kind)) => {
                assert!(answer["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
                kind.clone()
            }
            _ => "ok".to_owned(),
        };
        assert_ne!(kind, "panicked", "{answer}");
        *kinds.entry(kind).or_default() += 1;
        if round % 500 == 0 {
            program.check();
        }
    }
    println!("{kinds:?}");
    assert!(
        cfg!(miri) || ["ok", "bad-request", "refused"].iter().all(|kind| kinds.contains_key(*kind)),
        "{kinds:?}"
    );
    program.check();
}

#[test]
fn streams_of_noise_do_not_disturb_other_clients() {
    let program = Program::new(Builder::new());
    let mut draw = Draw(seed());
    for round in 0..ROUNDS / 20 {
        let raw = program.raw();
        raw.stream.set_nonblocking(true).expect("a socket");
        let newlines = draw.below(3);
        let noise: Vec<u8> = (0..draw.below(100_000))
            .map(|_| match draw.byte() {
                b'\n' if newlines == 0 => b' ',
                byte if newlines == 2 && byte < 16 => b'\n',
                byte => byte,
            })
            .collect();
        // It reads no answers and disconnects at a random moment.
        write_some(&raw.stream, &noise);
        drop(raw);
        if round % 20 == 0 {
            check_patiently(&program);
        }
    }
    check_patiently(&program);
    program.check();
}

fn write_some(mut stream: &UnixStream, bytes: &[u8]) {
    match std::io::Write::write(&mut stream, bytes) {
        Ok(_) => {}
        Err(error) => {
            let expected = [ErrorKind::WouldBlock, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    }
}

/// Checks the server, and waits while clients that have gone still count.
fn check_patiently(program: &Program) {
    loop {
        let mut raw = program.raw();
        raw.send(b"{\"op\":\"hello\"}\n");
        match raw.answer() {
            Some(answer) if answer["ok"].is_object() => return,
            _ => std::thread::yield_now(),
        }
    }
}
