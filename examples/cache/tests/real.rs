//! Dialogues with memcached itself, and with programs written for it. A test is skipped, with a
//! message, if they are not installed (on Debian the packages `memcached` and `libmemcached-tools`).

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use common::dialogues::{DIALOGUES, META_DIALOGUES};
use common::{Random, Served, TIMEOUT, cache, say};
use squall_cache_example::Config;

/// Programs that this run of the tests must have, separated by commas. A test that would be skipped for
/// lack of one fails instead.
const NEEDS: &str = "SQUALL_TEST_NEEDS";

/// Reports that a test is skipped.
fn skip(lacks: &str) {
    let needs = std::env::var(NEEDS).unwrap_or_default();
    assert!(!needs.split(',').any(|need| need == lacks), "{NEEDS}={needs}, and {lacks} is not here");
    // Stderr may be closed.
    let _ = writeln!(std::io::stderr(), "SKIP {lacks}: it is not installed");
}

/// A memcached process, until the drop.
struct Memcached {
    child: Child,
    address: SocketAddr,
}

impl Memcached {
    /// Returns `None` if memcached is not installed.
    fn start() -> Option<Memcached> {
        loop {
            // The port is free now. If another program takes it meanwhile, memcached ends, and the next
            // port is tried.
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
                assert!(begun.elapsed() < TIMEOUT, "memcached does not answer");
                std::thread::yield_now();
            }
        }
    }

    /// Returns all answers to one client, which then leaves.
    fn say(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("it is no zero");
        stream.write_all(what.as_bytes()).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut answers = Vec::new();
        // memcached may reset a connection with unread bytes. All answers have arrived by then.
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

/// Dialogues in which this server answers differently, by a part of them. The reasons are in the README or
/// here.
const DIFFERS: &[&str] = &[
    // A value is swallowed even if the line has an error, and its flags have 32 bits.
    "set k x 0",
    "set k 0 0 1 word word",
    // Memcached 1.6.18 rejects the line, and parses the value as requests. Later ones do as this server.
    "cas k 0 0 7\r\n",
    // `cas` numbers continue even if no value was stored.
    "cas k 1 0 1 2",
    // A number that became shorter is not padded.
    "decr k 1000",
    // A `gat` without keys is an error, like `get`.
    "gat 1\r\n",
    // Earlier answers are sent before the connection ends.
    "HTTP/",
];

#[test]
fn memcached_answers_the_same() {
    let mut wrong = Vec::new();
    let dialogues = DIALOGUES.iter().chain(META_DIALOGUES);
    for (sent, expected) in dialogues.filter(|(sent, _)| !DIFFERS.iter().any(|part| sent.contains(part))) {
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

/// Returns a random request, with every part that may be in one, on the keys of this dialogue.
fn request(random: &mut Random, dialogue: u64) -> String {
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
    let drawn = random.below(20);
    if drawn >= 16 {
        return meta_request(random, dialogue);
    }
    // Counted values and joined values have keys of their own: padding would show in a joined one.
    let key = format!(
        "k{dialogue}-{}",
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
        // No value has this number in either server.
        7 => format!("cas {key} {flags} {time} {length} 18446744073709551615{noreply}\r\n{value}\r\n"),
        8 | 9 => format!("incr {key} {number}{noreply}\r\n"),
        10 => format!("decr {key} {number}{noreply}\r\n"),
        11 => format!("touch {key} {time}{noreply}\r\n"),
        12 => format!("gat {time} {key} k{dialogue}-0\r\n"),
        13 => format!("delete {key}{noreply}\r\n"),
        14 => format!(
            "{}\r\n",
            one(random, &["", "no such", "get", "SET a", "incr k", "verbosity x", "delete k 5 6"])
        ),
        _ => format!("get k{dialogue}-1 none {key}\r\n"),
    }
}

/// Returns a random meta request, with the flags of memcached 1.6.18. Its keys are those of meta requests
/// alone.
fn meta_request(random: &mut Random, dialogue: u64) -> String {
    const GET: [&str; 16] =
        ["v", "t", "f", "s", "k", "q", "Oab", "T0", "T100", "N0", "N50", "R30", "R200", "Tx", "L", "z"];
    const SET: [&str; 16] = [
        "k",
        "q",
        "O1",
        "F7",
        "Fx",
        "T100",
        "T0",
        "T-1",
        "ME",
        "MA",
        "MP",
        "MR",
        "MS",
        "MX",
        "I",
        "C18446744073709551615",
    ];
    const DELETE: [&str; 8] = ["k", "q", "Oxyz", "I", "T40", "T-1", "C18446744073709551615", "v"];
    const COUNT: [&str; 12] =
        ["v", "t", "k", "O2", "T60", "D5", "Dx", "MI", "M+", "Mx", "J17", "C18446744073709551615"];
    let mut flags = |of: &[&str]| {
        let mut flags = String::new();
        for _ in 0..random.below(5) {
            let flag = of[random.below(of.len())];
            // The error of a flag that comes twice is another one in later versions. A made item has the time
            // of `N` here, and there that of the last flag.
            let other = match &flag[..1] {
                "T" => "N",
                "N" => "T",
                letter => letter,
            };
            if ![other, &flag[..1]].iter().any(|letter| flags.contains(&format!(" {letter}"))) {
                flags.push(' ');
                flags.push_str(flag);
            }
        }
        flags
    };
    let (get, set, delete, count) = (flags(&GET), flags(&SET), flags(&DELETE), flags(&COUNT));
    let value = ["", "5", "abc", "a\r\nb"][random.below(4)];
    match random.below(8) {
        0..3 => format!("mg m{dialogue}{get}\r\n"),
        3..5 => format!("ms m{dialogue} {}{set}\r\n{value}\r\n", value.len()),
        5 => format!("md m{dialogue}{delete}\r\n"),
        6 => format!("ma n{dialogue}{count} N90\r\n"),
        _ => format!("ma n{dialogue}{count}\r\n"),
    }
}

#[test]
fn random_dialogues_get_the_same_answers() {
    let Some(memcached) = Memcached::start() else { return skip("memcached") };
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let rounds = std::env::var("SQUALL_DIALOGUES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(400);
    for seed in first..first + rounds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let requests: Vec<String> = (0..12).map(|_| request(&mut random, seed)).collect();
        let sent = requests.concat();
        let (ours, real) = (say(&cache(), &sent), memcached.say(&sent));
        assert_eq!(unpadded(&ours), unpadded(&real), "SQUALL_SEED={seed}, to {sent:?}");
    }
}

/// Returns the answers without the spaces that memcached puts behind shorter numbers, and without the
/// lengths, which include them.
fn unpadded(answers: &str) -> Vec<&str> {
    let without = |line: &'_ str| match line.rsplit_once(' ') {
        Some((line, _)) if line.starts_with("VALUE ") => line.len(),
        _ => line.trim_end().len(),
    };
    answers.split("\r\n").map(|line| &line[..without(line)]).collect()
}

#[test]
fn memccapable_finds_no_fault() {
    let served = Served::new(Config::default());
    let (host, port) = (served.address.ip().to_string(), served.address.port().to_string());
    let Ok(checked) = Command::new("memccapable").args(["-a", "-h", &host, "-p", &port]).output() else {
        return skip("memccapable");
    };
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
}
