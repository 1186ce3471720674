//! The same said to memcached itself, and said by programs that were written for it. Skipped, and that told, where these are not installed
//! (on Debian the packages `memcached` and `libmemcached-tools`).

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use common::talks::TALKS;
use common::{PATIENCE, Random, Served, cache, say};
use squall_cache_example::Config;

/// What this run of the tests has to have, with commas between: a test that would be skipped for want of it fails instead.
const NEEDS: &str = "SQUALL_TEST_NEEDS";

/// Says that a test is skipped.
fn skip(lacks: &str) {
    let needs = std::env::var(NEEDS).unwrap_or_default();
    assert!(!needs.split(',').any(|need| need == lacks), "{NEEDS}={needs}, and {lacks} is not here");
    // Nobody may be there to be told.
    let _ = writeln!(std::io::stderr(), "SKIP {lacks}: it is not installed");
}

/// memcached, until it is dropped.
struct Memcached {
    child: Child,
    address: SocketAddr,
}

impl Memcached {
    /// Nothing, if it is not installed.
    fn start() -> Option<Memcached> {
        loop {
            // Free now. Where another one takes it meanwhile, the program ends, and the next is tried.
            let address =
                TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
            let mut command = Command::new("memcached");
            command.args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-u", "nobody", "-p"]);
            command.arg(address.port().to_string()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().ok()?;
            let mut memcached = Memcached { child, address };
            let begun = Instant::now();
            while memcached.child.try_wait().expect("it is our child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Some(memcached);
                }
                assert!(begun.elapsed() < PATIENCE, "memcached does not answer");
                std::thread::yield_now();
            }
        }
    }

    /// All that it answers to one client, who leaves then.
    fn say(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
        stream.write_all(what.as_bytes()).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut answers = Vec::new();
        // It may reset a connection whose last bytes it did not read; what it said is here then.
        let _ = stream.read_to_end(&mut answers);
        String::from_utf8(answers).expect("it is text")
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of the talks, those in which ours says something else, by a part of them; why, in the README or here.
const DIFFERS: &[&str] = &[
    // A value is swallowed whatever is wrong with the line, and its flags have 32 bits.
    "set k x 0",
    "set k 0 0 1 word word",
    // Numbers for `cas` go on where nothing was stored.
    "cas k 1 0 1 2",
    // What became shorter is not padded.
    "decr k 1000",
    // No keys are an error, as they are to `get`.
    "gat 1\r\n",
    // What was answered before is sent before the connection ends.
    "HTTP/",
    // Words behind these are an error, as before 1.6.
    "quit now",
];

#[test]
fn memcached_answers_the_same() {
    let mut wrong = Vec::new();
    for (sent, expected) in TALKS.iter().filter(|(sent, _)| !DIFFERS.iter().any(|part| sent.contains(part))) {
        let Some(memcached) = Memcached::start() else { return skip("memcached") };
        let answered = memcached.say(sent);
        if answered != *expected {
            wrong.push(format!(
                "to {sent:?}\n  it is said to answer {expected:?}\n  but it says          {answered:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A request, with everything that may be in one; of the keys of this talk.
fn request(random: &mut Random, talk: u64) -> String {
    const NUMBERS: [&str; 8] =
        ["0", "1", "7", "99", "100", "18446744073709551615", "18446744073709551616", "x"];
    const VALUES: [&str; 12] = [
        "",
        "0",
        "5",
        "99",
        "100",
        "18446744073709551615",
        "18446744073709551616",
        "abc",
        "1x",
        "-1",
        "a\r\nb",
        "007",
    ];
    const TIMES: [&str; 4] = ["0", "100", "2592000", "-1"];
    fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
        of[random.below(of.len())]
    }
    let drawn = random.below(16);
    // What is counted with is one key, what is put together another: in one that were padded, that would be seen.
    let key = format!(
        "k{talk}-{}",
        if matches!(drawn, 5 | 6) {
            1
        } else if matches!(drawn, 8..=10) {
            0
        } else {
            random.below(2)
        }
    );
    let noreply = if random.below(6) == 0 { " noreply" } else { "" };
    let (number, value, time) = (one(random, &NUMBERS), one(random, &VALUES), one(random, &TIMES));
    let (flags, length) = (random.below(3), value.len());
    match drawn {
        0..3 => format!("set {key} {flags} {time} {length}{noreply}\r\n{value}\r\n"),
        3 => format!("add {key} {flags} {time} {length}{noreply}\r\n{value}\r\n"),
        4 => format!("replace {key} {flags} {time} {length}{noreply}\r\n{value}\r\n"),
        5 => format!("append {key} {flags} {time} {length}{noreply}\r\n{value}\r\n"),
        6 => format!("prepend {key} {flags} {time} {length}{noreply}\r\n{value}\r\n"),
        // No value has this number in the one or the other.
        7 => format!("cas {key} {flags} {time} {length} 18446744073709551615{noreply}\r\n{value}\r\n"),
        8 | 9 => format!("incr {key} {number}{noreply}\r\n"),
        10 => format!("decr {key} {number}{noreply}\r\n"),
        11 => format!("touch {key} {time}{noreply}\r\n"),
        12 => format!("gat {time} {key} k{talk}-0\r\n"),
        13 => format!("delete {key}{noreply}\r\n"),
        14 => format!(
            "{}\r\n",
            one(random, &["", "no such", "get", "SET a", "incr k", "verbosity x", "delete k 5 6"])
        ),
        _ => format!("get k{talk}-1 none {key}\r\n"),
    }
}

#[test]
fn what_is_said_at_random_is_answered_the_same() {
    let Some(memcached) = Memcached::start() else { return skip("memcached") };
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let rounds = std::env::var("SQUALL_TALKS").ok().and_then(|talks| talks.parse().ok()).unwrap_or(400);
    for seed in first..first + rounds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let requests: Vec<String> = (0..12).map(|_| request(&mut random, seed)).collect();
        let sent = requests.concat();
        let (ours, real) = (say(&cache(), &sent), memcached.say(&sent));
        assert_eq!(unpadded(&ours), unpadded(&real), "SQUALL_SEED={seed}, to {sent:?}");
    }
}

/// Without the spaces that memcached puts behind numbers that become shorter, and without the lengths, in which they count.
fn unpadded(answers: &str) -> Vec<&str> {
    let without = |line: &'_ str| match line.rsplit_once(' ') {
        Some((line, _)) if line.starts_with("VALUE ") => line.len(),
        _ => line.trim_end().len(),
    };
    answers.split("\r\n").map(|line| &line[..without(line)]).collect()
}

#[test]
fn what_checks_servers_for_libmemcached_finds_nothing_wrong() {
    let served = Served::new(Config::default());
    let (host, port) = (served.address.ip().to_string(), served.address.port().to_string());
    let Ok(checked) = Command::new("memccapable").args(["-a", "-h", &host, "-p", &port]).output() else {
        return skip("memccapable");
    };
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
}
