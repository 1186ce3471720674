//! `squall top` as scripts run it, on the test's own process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::common::{self, stderr, stdout};
use serde_json::Value;
use squall::adapt::control::register;
use squall::browse::Server;
use squall::objects::counter::Counter;
use squall::swap::{Replacement, State, StateFormats};
use squall::{Handle, Owned};

#[squall::interface]
trait Tally: Send + Sync {
    fn add(&self, n: u64) -> u64;
}

#[derive(Default)]
struct One(std::sync::atomic::AtomicU64);

impl Tally for One {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, std::sync::atomic::Ordering::Relaxed) + n
    }
}

impl State for One {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats.export_part(|this| Ok(this.add(0))).import_part(|this, n: u64| {
            this.add(n);
            Ok(())
        });
    }
}

/// The test's process, as a program that serves inspection.
pub(crate) struct Program {
    _server: Server,
    object: Owned<dyn Tally>,
}

pub(crate) fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let object = squall::shared::<dyn Tally, _>(One::default()).named("the tally\n");
        register::<dyn Tally>("another", |_| Replacement::swappable(One::default()));
        Program { _server: squall::browse::serve().expect("a server"), object }
    })
}

fn id() -> String {
    Handle::id(program().object.handle()).to_string()
}

/// Runs `squall top` on this process.
fn top(args: &[&str]) -> Output {
    program();
    common::run(common::squall().arg("top").arg(std::process::id().to_string()).args(args))
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")))
        .collect()
}

fn row(output: &Output) -> Value {
    let found = rows(output).into_iter().find(|row| row["id"] == id());
    found.unwrap_or_else(|| panic!("no row of {}", id()))
}

/// Serializes tests that change or read the state of the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

#[test]
fn once_as_json_is_a_line_for_each_object_and_nothing_else() {
    let output = top(&["--once", "--json"]);
    let row = row(&output);
    assert_eq!(row["interface"], "Tally");
    assert_eq!((&row["class"], &row["name"]), (&"One".into(), &"the tally\n".into()));
    assert_eq!(row["state"], "live");
    assert!(row["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(row["misses_per_s"].is_null() && row["calls_per_s"].is_null(), "{row}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn once_is_a_table() {
    for args in [&["--once"][..], &[]] {
        // Without a terminal there is no screen.
        let output = top(args);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("contended/s") && text.starts_with("name "), "{text}");
        let row = text.lines().find(|line| line.contains(&id())).expect("its row");
        assert!(row.starts_with("the tally\\n ") && row.contains("Tally (One)"), "{text}");
        assert!(!text.contains('\u{1b}'), "no colours in a file");
    }
}

#[test]
fn rows_are_chosen_sorted_and_cut() {
    let more: Vec<Owned<dyn Tally>> = (0..5).map(|_| squall::shared(One::default())).collect();
    let output = top(&["--once", "--json", "--interface", "Tally", "--sort", "id", "--limit", "3"]);
    let ids: Vec<u64> = rows(&output)
        .iter()
        .map(|row| {
            row["id"].as_str().and_then(|id| id.split('.').next()).expect("an id").parse().expect("a slot")
        })
        .collect();
    assert!(ids.len() == 3 && ids.is_sorted(), "{ids:?}");
    assert!(stderr(&output).contains("more objects"), "{}", stderr(&output));
    assert!(rows(&top(&["--once", "--json", "--interface", "No such name"])).is_empty());
    assert_eq!(rows(&top(&["--once", "--json", "--name", "the tally"])).len(), 1);
    drop(more);
}

#[test]
fn calls_are_counted_on_request() {
    let _alone = alone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                program().object.handle().add(1);
            }
        });
        let args = ["--once", "--json", "--sample", "50", "--sort", "calls", "--interface", "Tally"];
        // Waits until the caller ran in a sample.
        while !row(&top(&args))["calls_per_s"].as_f64().is_some_and(|calls| calls > 0.0) {}
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn without_once_rows_come_until_the_reader_is_gone() {
    program();
    let pid = std::process::id().to_string();
    let mut child = common::squall()
        .args(["top", &pid, "--json", "--interval", "50", "--interface", "Tally"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let second = lines
        .by_ref()
        .map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("an object"))
        .filter(|row| row["id"] == id())
        .nth(1)
        .expect("it goes on");
    assert!(second["misses_per_s"].is_number(), "{second}");
    drop(lines);
    assert!(!child.wait().expect("it ends").success(), "the reader has gone");
}

/// Emits until the binary has ended. Its recording lies within that time.
fn records(args: &[&str]) -> Output {
    use squall::policy::monitor::{Kind, Object, emit, is_on};
    static KIND: Kind = Kind::new("test.refill", ["from", "items"]).with_codes(0, &["cache", "disk"]);
    let _alone = alone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                emit(&KIND, Object::number(7), [1, 32]);
                emit(&KIND, Handle::id(program().object.handle()), [2, 5]);
                std::thread::yield_now();
            }
        });
        let output = top(args);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    // The server learns of the end of the connection.
    while is_on() {
        std::thread::yield_now();
    }
    output
}

#[test]
fn kt_18_records_are_summed_for_a_span_and_the_monitor_is_off_again() {
    let rows = rows(&records(&["--records", "--for", "1", "--json"]));
    let found = |object: &str| {
        let row = rows.iter().find(|row| row["kind"] == "test.refill" && row["object"] == object);
        row.unwrap_or_else(|| panic!("{object} in {rows:?}")).clone()
    };
    let row = found("#7");
    let count = row["count"].as_u64().expect("a number");
    let items = serde_json::json!({ "name": "items", "sum": 32 * count, "max": 32 });
    assert_eq!(row["values"], serde_json::json!([{ "name": "from", "code": "disk" }, items]));
    let row = found(&id());
    assert_eq!(row["name"], "the tally\n");
    assert_eq!(row["values"][0]["code"], "2", "a code without a name");
    let last = rows.last().expect("the losses");
    assert!(last["dropped"].is_u64() && last["missed"].is_u64() && last["span_us"].is_u64(), "{last}");
    let text = stdout(&records(&["--records"]));
    assert!(text.starts_with("kind ") && text.contains("test.refill from=disk  #7"), "{text}");
    assert!(text.contains("items=32") && text.contains(" \"the tally\\n\" "), "{text}");
    assert!(text.contains(" records dropped, ") && text.ends_with(" missed\n"), "{text}");
}

#[test]
fn records_that_cannot_be_had_are_errors() {
    for args in [&["--for", "2"][..], &["--records", "--for", "0"], &["--records", "--for", "3600"]] {
        let output = top(args);
        assert!(!output.status.success() && stderr(&output).contains("--for"), "{}", stderr(&output));
    }
    let gone = common::run(common::squall().args(["top", "999999999", "--records"]));
    assert!(!gone.status.success() && stderr(&gone).contains("999999999"), "{}", stderr(&gone));
    assert_eq!(stdout(&gone), "");
    let refused = answered(&[
        r#"{"ok":{"protocol":1,"version":"1","pid":7,"program":"it","all_frozen":false,"operations":["records"]}}"#,
        r#"{"error":{"kind":"refused","message":"built without records; build it with the feature `monitors`"}}"#,
    ]);
    assert!(stderr(&refused).contains("feature `monitors`"), "{}", stderr(&refused));
    let older = answered(&[
        r#"{"ok":{"protocol":1,"version":"1","pid":7,"program":"it","all_frozen":false,"operations":["hello"]}}"#,
    ]);
    assert!(stderr(&older).contains("it (7) has an older version"), "{}", stderr(&older));
}

/// Runs the command against a server that gives these answers. It fails, and prints no row.
fn answered(answers: &[&str]) -> Output {
    let path = std::env::temp_dir().join(format!("squall-records-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("a client");
            let mut requests = BufReader::new(client.try_clone().expect("a descriptor")).lines();
            // The client says hello by itself when it connects.
            for answer in answers.first().into_iter().chain(answers) {
                if requests.next().is_none() {
                    return;
                }
                writeln!(client, "{answer}").expect("the client reads");
            }
        });
        common::run(common::squall().arg("top").arg(&path).arg("--records"))
    });
    std::fs::remove_file(&path).expect("it was bound");
    assert!(!output.status.success() && stdout(&output).is_empty(), "{}", stdout(&output));
    output
}

#[test]
fn an_object_is_shown_in_detail() {
    let output = top(&["--detail", &id()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("tests/main/top.rs") && text.contains("Tally#"), "{text}");
    assert!(text.contains(&format!("#{} \"the tally\\n\" live", id())), "{text}");
    let rows = rows(&top(&["--detail", &id(), "--json"]));
    assert_eq!((rows.len(), &rows[0]["kind"]), (1, &Value::from("shared")));
}

#[test]
fn everything_can_be_frozen_and_thawed() {
    let _alone = alone();
    let frozen = top(&["--freeze", "all", "--json"]);
    assert_eq!(rows(&frozen), [serde_json::json!({ "all_frozen": true })]);
    let text = stdout(&top(&["--once"]));
    assert!(text.contains("Every policy is frozen."), "{text}");
    let object = squall::objects::counter::adaptive();
    let detail = stdout(&top(&["--detail", &Handle::id(object.handle()).to_string()]));
    assert!(detail.contains("; frozen with all objects\nfreeze all objects: by squall top, "), "{detail}");
    assert_eq!(rows(&top(&["--thaw", "all", "--json"])), [serde_json::json!({ "all_frozen": false })]);
    assert!(top(&["--history", "all"]).status.success());
}

#[test]
fn an_object_is_swapped_to_a_registered_implementation() {
    program();
    let object: Owned<dyn Tally> = squall::swappable(One::default());
    let id = Handle::id(object.handle()).to_string();
    object.handle().add(41);
    let text = top(&["--swap", &id, "another"]);
    assert!(text.status.success(), "{}", stderr(&text));
    assert!(stdout(&text).contains("swapped in"), "{}", stdout(&text));
    let rows = rows(&top(&["--swap", &id, "another", "--json"]));
    assert_eq!((&rows[0]["id"], &rows[0]["outcome"]), (&Value::from(id), &Value::from("swapped")));
    assert_eq!(object.handle().add(1), 42, "its state moved with it");
}

#[test]
fn an_adaptive_object_is_frozen_configured_and_swapped_by_hand() {
    let _alone = alone();
    program();
    let object = squall::objects::counter::adaptive();
    let id = Handle::id(object.handle()).to_string();
    object.handle().add(5);
    let row = |output: &Output| rows(output).into_iter().find(|row| row["id"] == id).expect("its row");
    let seen = row(&top(&["--once", "--json", "--interface", "Counter"]));
    let forms = seen["forms"].as_array().expect("forms").clone();
    assert!(seen["family"].is_string() && seen["form"] == forms[0] && seen["frozen"] == false, "{seen}");
    assert_eq!(seen["stays"], "the engine has not looked at it in this form: its sensor reported nothing");
    assert_eq!(row(&top(&["--freeze", &id, "--json"]))["frozen"], true);
    let set = rows(&top(&["--set", &id, "margin", "2.5", "--json"]));
    assert_eq!((&set[0]["name"], &set[0]["value"]), (&"margin".into(), &"2.5".into()), "{set:?}");
    let wrong = top(&["--set", &id, "margin", "wide"]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("margin"), "{}", stderr(&wrong));
    let detail = stdout(&top(&["--detail", &id]));
    assert!(detail.contains("margin = 2.5") && detail.contains("; frozen\n"), "{detail}");
    assert!(detail.contains("\nfreeze: by squall top, user "), "{detail}");
    let unset = rows(&top(&["--unset", &id, "margin", "--json"]));
    assert_eq!((&unset[0]["value"], &unset[0]["from"]), (&"1.3".into(), &"default".into()), "{unset:?}");
    // The object is frozen, so its policy does not swap it back.
    let other = forms[1].as_str().expect("a name");
    let swap = rows(&top(&["--swap", &id, other, "--json"]));
    assert_eq!(swap[0]["outcome"], "swapped", "{swap:?}");
    let history = rows(&top(&["--history", &id, "--json"]));
    let last = history.last().expect("a decision");
    assert_eq!((&last["to"], &last["verdict"]), (&other.into(), &"swapped by hand".into()), "{last}");
    let why = last["why"].as_str().expect("a reason");
    assert!(why.starts_with("requested by squall top, user ") && !why.contains("kernel"), "{why}");
    assert!(last["author"].as_str().is_some_and(|author| why.ends_with(author)), "{last}");
    assert!(last["uid"].is_u64() && last["pid"].is_u64(), "{last}");
    let told = stdout(&top(&["--history", &id]));
    assert!(told.contains("swapped by hand") && told.contains(why), "{told}");
    assert_eq!(row(&top(&["--thaw", &id, "--json"]))["frozen"], false);
    assert_eq!(object.handle().total(), 5);
}

#[squall::interface(remote)]
trait Shelf: Send + Sync {
    fn put(&self, n: u64);
    fn sum(&self) -> u64;
}

#[derive(Default)]
struct Numbers(Mutex<Vec<u64>>);

impl Shelf for Numbers {
    fn put(&self, n: u64) {
        self.0.lock().expect("no panic").push(n);
    }

    fn sum(&self) -> u64 {
        self.0.lock().expect("no panic").iter().sum()
    }
}

#[test]
fn callers_of_an_exported_object_are_shown_limited_and_disconnected() {
    program();
    let object = squall::shared::<dyn Shelf, _>(Numbers::default());
    let id = Handle::id(object.handle()).to_string();
    let (here, there) = squall::call::socket_pair().expect("a pair of sockets");
    let export = squall::call::export_on(object.handle(), here).expect("an export");
    let imported = squall::call::import_from::<dyn Shelf>(there).expect("an import");
    imported.put(3);
    let caller = export.clients()[0].number().to_string();
    let detail = stdout(&top(&["--detail", &id]));
    let shown = format!("caller {caller}: the other end of a socket pair; ");
    assert!(detail.contains("callers: 1\n") && detail.contains(&shown), "{detail}");
    let denied = rows(&top(&["--deny", &id, "put", "--json"]));
    assert_eq!(denied[0]["denied"], serde_json::json!(["put"]), "{denied:?}");
    assert!(imported.try_put(1).is_err());
    let allowed = stdout(&top(&["--allow", &id, "put"]));
    assert!(allowed.contains(&shown) && !allowed.contains("denied"), "{allowed}");
    imported.put(4);
    assert_eq!(imported.sum(), 7);
    for (arguments, part) in [
        (["--deny", &id, "take"], "take"),
        (["--disconnect", &id, "first"], "first"),
        (["--allow", &self::id(), "add"], "not exported"),
    ] {
        let output = top(&arguments);
        assert!(!output.status.success() && stderr(&output).contains(part), "{}", stderr(&output));
    }
    let gone = stdout(&top(&["--disconnect", &id, &caller]));
    assert!(gone.contains("callers: 0\n"), "{gone}");
    assert!(imported.try_put(1).is_err());
    let far = stdout(&top(&["--detail", &Handle::id(imported.handle()).to_string()]));
    assert!(far.contains("imported as \"(a socket)\" from the other end of a socket pair"), "{far}");
}

#[test]
fn an_error_names_the_object_and_the_reason() {
    let fails = |args: &[&str], parts: &[&str]| {
        let output = top(args);
        assert!(!output.status.success(), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        for part in parts {
            assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        }
    };
    let id = id();
    fails(&["--swap", &id, "sideways"], &[&id, "sideways"]);
    fails(&["--set", &id, "no_such_attribute", "-7"], &[&id]);
    fails(&["--freeze", &id], &[&id]);
    fails(&["--detail", "9999999.1"], &["9999999.1", "no object"]);
    fails(&["--detail", "seventeen"], &["seventeen", "SLOT.GENERATION"]);
    fails(&["--freeze", "all", "--thaw", "all"], &["cannot be used"]);
    fails(&["--sort", "beauty"], &["contention", "memory"]);
}

#[test]
fn a_process_that_is_missing_or_does_not_serve_is_named() {
    let of = |target: &str| common::run(common::squall().args(["top", target, "--once"]));
    let nobody = of("4294967294");
    assert!(!nobody.status.success());
    assert!(stderr(&nobody).contains("there is no process 4294967294"), "{}", stderr(&nobody));
    let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
    let silent = of(&sleeper.id().to_string());
    sleeper.kill().expect("it was ours");
    sleeper.wait().expect("it was ours");
    assert!(!silent.status.success());
    assert!(stderr(&silent).contains("squall::browse::serve()"), "{}", stderr(&silent));
    let wrong = of("somebody");
    assert!(stderr(&wrong).contains("the number of a process"), "{}", stderr(&wrong));
}

#[test]
fn nodes_are_listed_with_their_groups() {
    use squall::fleet::{GroupKey, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};

    let network = LocalNetwork::new();
    let builder = NodeBuilder::new(GroupKey::random());
    let (node, root) = builder.found(network.bind("of-top").expect("free"), &[]).expect("a node");
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    node.serve(&"/echo".parse().expect("a name"), &root, NameOptions::new(), echo).expect("served");
    let found = rows(&top(&["--nodes", "--json"]));
    let row = found.iter().find(|row| row["endpoint"] == "local/of-top").expect("a row");
    assert_eq!((&row["node"], &row["state"]), (&node.id().to_string().into(), &"member".into()));
    for field in [
        "number",
        "machine",
        "term",
        "lease_ms",
        "joined",
        "open_calls",
        "served",
        "running",
        "sessions",
        "shards",
    ] {
        assert!(!row[field].is_null(), "{field} in {row}");
    }
    assert_eq!((&row["calls"]["done"], &row["granted"]), (&0.into(), &1.into()));
    assert_eq!((&row["group"]["names"][0]["name"], &row["why"]), (&"/echo".into(), &Value::Null));
    let text = top(&["--nodes"]);
    assert!(stdout(&text).contains("  /echo: local/of-top"), "{}", stdout(&text));
    // The table of objects ends with a line for each node.
    let once = top(&["--once"]);
    let line = stdout(&once).lines().find(|line| line.contains(" local/of-top: member;")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.starts_with("node ")), "{}", stdout(&once));
}

#[test]
fn members_of_pools_are_listed() {
    use squall::fleet::pool::{Attributes, DistributedPool};
    use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};

    let limit = std::time::Duration::from_secs(60);
    let network = LocalNetwork::new();
    let builder = NodeBuilder::new(GroupKey::random());
    let (node, root) = builder.found(network.bind("of-pools").expect("free"), &[]).expect("a node");
    let name = "/of-top".parse().expect("a name");
    let pool = DistributedPool::join(&node, &name, &root, Attributes::default()).expect("joined");
    pool.add(b"page 7", limit).expect("added");
    let found = rows(&top(&["--pools", "--json"]));
    let row = found.iter().find(|row| row["name"] == "/of-top").expect("a row");
    assert_eq!((&row["elements"], &row["strategy"]), (&1.into(), &"directory".into()));
    for field in [
        "number",
        "state",
        "master",
        "members",
        "open_operations",
        "untaken",
        "has_heir",
        "operations",
        "messages",
        "frames",
        "demanded",
        "demand_transfers",
        "background_transfers",
    ] {
        assert!(!row[field].is_null(), "{field} in {row}");
    }
    let text = top(&["--pools"]);
    let title = |line: &&str| {
        line.starts_with("pool ") && line.contains(" /of-top: ") && line.contains("1 elements here")
    };
    assert!(stdout(&text).lines().any(|line| title(&line)), "{}", stdout(&text));
    // The table of objects ends with a line for each member.
    let once = top(&["--once"]);
    assert!(stdout(&once).lines().any(|line| title(&line)), "{}", stdout(&once));
    // The members of its roster.
    let nodes = top(&["--nodes"]);
    assert!(stdout(&nodes).contains("  /of-top, roster: local/of-pools"), "{}", stdout(&nodes));
}
