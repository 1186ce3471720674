//! `squall fleet` as scripts run it: the demo balances its books, and `ls` and `top` show a running group.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use crate::common::{self, run, stderr, stdout};

/// Variable with the key of the group of a test. It also marks the processes of the test.
const KEY: &str = "SQUALL_TEST_KEY";
/// Longest time for a process to start or to end. It takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn fleet(key: &str, args: &[&str]) -> Command {
    let mut command = common::squall();
    command.arg("fleet").args(args).env(KEY, key).stdin(Stdio::null());
    command
}

/// Number of living processes of a test. A process that has ended has no environment.
fn processes(key: &str) -> usize {
    let marked = format!("{KEY}={key}");
    let folders = fs::read_dir("/proc").expect("there is no /proc").flatten();
    let is_marked = |folder: &fs::DirEntry| {
        fs::read(folder.path().join("environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|part| part == marked.as_bytes()))
    };
    folders.filter(is_marked).count()
}

/// A demo that runs until it is dropped, and its endpoints.
struct Demo {
    child: Child,
    endpoints: Vec<String>,
}

impl Demo {
    fn start(key: &str) -> Demo {
        let args = ["demo", "--members", "3", "--seconds", "86400", "--key-env", KEY];
        let mut child = fleet(key, &args).stdout(Stdio::piped()).spawn().expect("squall cannot be started");
        let output = BufReader::new(child.stdout.take().expect("the demo has an output"));
        let mut lines = output.lines().map_while(Result::ok);
        let endpoints = lines
            .find_map(|line| Some(line.strip_prefix("endpoints: ")?.split(' ').map(str::to_owned).collect()));
        // The demo would end without a reader.
        thread::spawn(move || lines.for_each(drop));
        Demo { child, endpoints: endpoints.expect("the demo has not begun") }
    }

    fn args<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let endpoints = self.endpoints.iter().map(String::as_str);
        [command, "--key-env", KEY].into_iter().chain(more.iter().copied()).chain(endpoints).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.child.kill().expect("the demo has ended before");
        self.child.wait().expect("the demo has ended before");
    }
}

fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[test]
fn the_demo_balances_its_books() {
    let key = "000000000000000000000000000000a1";
    let output = run(&mut fleet(key, &["demo", "--quick", "--seed", "1", "--key-env", KEY]));
    let said = stdout(&output);
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    for part in [
        "The fleet chooses its own size: 3 to 5 members.",
        "the fleet starts member 4 ",
        "the fleet starts member 5 ",
        " is killed ",
        "the fleet replaces it by 6 ",
        " leaves when asked ",
        "with a result: each ran once",
        "Seed 1.",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    // The books of the size.
    for (text, count) in [
        ("members that the busy fleet started", 2),
        ("members that the idle fleet asked to leave", 2),
        ("members that were killed", 1),
        ("members that the fleet started in their place", 1),
    ] {
        let told = said.lines().find_map(|line| line.strip_prefix(text)).map(str::trim);
        assert_eq!(told, Some(&*count.to_string()), "{text} in\n{said}");
    }
    assert!(said.ends_with("The books balance. No process, socket or memory is left.\n"), "{said}");
    assert!(!said.contains(key), "the demo prints its key");
    assert_eq!(processes(key), 0);
}

#[test]
fn the_demo_of_pages_accounts_for_every_page() {
    let key = "000000000000000000000000000000a4";
    let output =
        run(&mut fleet(key, &["demo", "pages", "--pages", "256", "--clients", "3", "--seconds", "0"]));
    let said = stdout(&output);
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    for part in [
        "768 pages of 4 KiB in one segment, all at the first server.",
        "a server has joined",
        "uniform load: all pages taken",
        "the oldest server has left",
        "triangle load: all pages taken",
        "the oldest server is killed",
        "bimodal load: all pages taken",
        "two-phase load: all pages taken",
        "a client is killed with 128 pages",
        "a server has freed them               768 free  clients 0 0 0",
        "all pages freed                     768 free  clients 0 0 0",
        "A last client got each of the 768 pages once.",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    assert!(said.ends_with("The books balance. No process, socket or memory is left.\n"), "{said}");
    assert_eq!(processes(key), 0);
}

#[test]
fn a_running_group_is_listed_and_watched_and_ends_with_the_demo() {
    let key = "000000000000000000000000000000a2";
    let demo = Demo::start(key);
    let tables = run(&mut fleet(key, &demo.args("ls", &[])));
    assert!(tables.status.success(), "{}", stderr(&tables));
    for part in
        ["leader, votes", "host/demo-", "/counters/growth/", "16 shards", "stateless", "owner of /counters"]
    {
        assert!(stdout(&tables).contains(part), "{part} in\n{}", stdout(&tables));
    }
    let listed = run(&mut fleet(key, &demo.args("ls", &["--json"])));
    let listed = object(stdout(&listed).trim_end());
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    // The members that choose the size of the fleet have further names, below its name.
    let names = listed["names"].as_array().into_iter().flatten();
    let is_own = |name: &&Value| !name["name"].as_str().is_some_and(|name| name.contains("/growth/"));
    assert!(count(&listed["members"]) >= 2 && names.filter(is_own).count() == 2, "{listed}");
    assert_eq!(count(&listed["names"][0]["shards"]), 16, "{listed}");
    for field in ["node", "endpoint", "machine", "leader", "votes", "leaving"] {
        assert!(!listed["members"][0][field].is_null(), "{field} in {listed}");
    }
    let once = run(&mut fleet(key, &demo.args("top", &[])));
    assert!(once.status.success() && stdout(&once).contains("changes/s"), "{}", stderr(&once));

    let args = demo.args("top", &["--json", "--interval", "50"]);
    let mut watch = fleet(key, &args).stdout(Stdio::piped()).spawn().expect("squall cannot be started");
    let lines = BufReader::new(watch.stdout.take().expect("top has an output")).lines();
    let looks: Vec<Value> = lines.take(3).map(|line| object(&line.expect("top has ended"))).collect();
    assert!(looks[0]["names"][0]["changes_per_s"].is_null(), "{}", looks[0]);
    assert!(looks[2]["names"][0]["changes_per_s"].is_number(), "{}", looks[2]);
    // Members are killed meanwhile, but not all of them.
    let members = looks.iter().flat_map(|look| look["members"].as_array().into_iter().flatten());
    let mut answers = members.filter(|member| member["figures"]["served"].is_number());
    assert!(answers.next().is_some(), "{looks:?}");
    assert!(listed["members"][0]["figures"].is_null(), "ls asks no member for its figures: {listed}");
    // The reader of its output is gone.
    assert!(watch.wait().expect("top cannot be waited for").code() == Some(1));

    // A killed demo leaves no member.
    drop(demo);
    let began = Instant::now();
    while processes(key) > 0 {
        assert!(began.elapsed() < PATIENCE, "members of a killed demo remain");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_visit_without_a_key_or_a_group_tells_why() {
    let refused = |args: &[&str], status, part: &str| {
        let output = run(&mut fleet("000000000000000000000000000000a3", args));
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{why}");
        assert!(output.stdout.is_empty() && why.contains(part), "{why}");
    };
    refused(&["ls", "host/a"], 1, "name it by --key-file or --key-env");
    refused(&["ls", "--key-env", "PATH", "host/a"], 1, "the variable PATH has no key of a group");
    refused(&["ls", "--key-file", "/nowhere", "host/a"], 1, "/nowhere");
    refused(&["ls", "--key-env", KEY, "elsewhere"], 2, "host/NAME");
    refused(&["ls", "--key-env", KEY, "tcp/somewhere"], 2, "tcp/ADDRESS:PORT");
    refused(&["ls", "--key-env", KEY], 2, "ENDPOINT");
    refused(&["ls", "--key-env", KEY, "host/a", "tcp/127.0.0.1:1"], 1, "or of TCP alone");
    #[cfg(not(feature = "net"))]
    refused(&["ls", "--key-env", KEY, "tcp/127.0.0.1:1"], 1, "build it with `--features net`");
    refused(&["top", "--json", "--key-env", KEY, "host/of-no-member"], 1, "whether the key is right");
}

#[cfg(feature = "net")]
#[test]
fn a_group_is_visited_over_tcp() {
    use squall::fleet::{NameOptions, NodeBuilder, ServiceCall};

    let key = "000000000000000000000000000000a4";
    let listen = "127.0.0.1:0".parse().expect("an address");
    let transport = squall_net::Tcp::builder(listen).build().expect("a free port");
    let builder = NodeBuilder::new(key.parse().expect("a key"));
    let (node, root) = builder.found(transport, &[]).expect("a node");
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    node.serve(&"/echo".parse().expect("a name"), &root, NameOptions::new(), echo).expect("served");
    let endpoint = node.endpoint();
    let listed = run(&mut fleet(key, &["ls", "--json", "--key-env", KEY, &endpoint]));
    assert!(listed.status.success(), "{}", stderr(&listed));
    let listed = object(stdout(&listed).trim_end());
    assert_eq!(
        (&listed["members"][0]["endpoint"], &listed["names"][0]["name"]),
        (&endpoint.into(), &"/echo".into())
    );
    let once = run(&mut fleet(key, &["top", "--once", "--key-env", KEY, &node.endpoint()]));
    assert!(stdout(&once).contains("/echo"), "{}", stderr(&once));
}
