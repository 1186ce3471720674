//! Tests that run in a process of their own: the default path, the users allowed, and forked children.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Folder, Hits, Program, hits};
use crate::forked::in_forked_child;
use rustix::process::geteuid;
use squall_browse::{Builder, Client, ClientError, THREAD_NAME, Target, serve};

const CHILD: &str = "SQUALL_TEST_CHILD";

/// Returns `true` in the process that was started for this test.
fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|name| name == test)
}

/// Returns the command for a process that runs only this test.
fn child(program: &Path, test: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", &format!("process::{test}"), "--nocapture", "--test-threads=1"])
        .env(CHILD, test);
    command
}

fn this() -> std::path::PathBuf {
    std::env::current_exe().expect("a file")
}

fn passed(output: &Output) {
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o777
}

fn own() -> Target {
    Target::Process(std::process::id())
}

/// Returns the names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("proc").flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|n| n.trim().to_owned())
        .collect()
}

#[test]
fn below_the_run_time_folder() {
    const NAME: &str = "below_the_run_time_folder";
    if !is_child(NAME) {
        let runtime = Folder::new();
        return passed(&child(&this(), NAME).env("XDG_RUNTIME_DIR", &runtime.0).output().expect("started"));
    }
    let runtime = std::env::var("XDG_RUNTIME_DIR").expect("given");
    let name = format!("{}.sock", std::process::id());
    // The modes are the same for a umask that removes no bits and for one that removes all.
    for umask in ["000", "777"] {
        rustix::process::umask(u32::from_str_radix(umask, 8).expect("octal").into());
        let server = serve().expect("a server");
        let folder = Path::new(&runtime).join("squall");
        assert_eq!(server.path(), folder.join(&name));
        assert_eq!((mode(&folder), mode(server.path())), (0o700, 0o600), "umask {umask}");
        assert_eq!(Client::connect(&own()).expect("found").hello().expect("served").pid, std::process::id());
        // The thread has served a request, so it has its name.
        assert!(threads().iter().any(|thread| thread == THREAD_NAME), "the thread is listed");
        let error = serve().expect_err("one is there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        Client::connect(&own()).expect("the first one serves on");
        let path = server.path().to_owned();
        drop(server);
        assert!(!path.exists());
        // The kernel lists a thread for a moment after it was joined.
        while threads().iter().any(|thread| thread == THREAD_NAME) {
            std::thread::yield_now();
        }
        assert!(matches!(Client::connect(&own()), Err(ClientError::NotServing { .. })));
    }
}

#[test]
fn an_idle_server_thread_is_not_woken() {
    const NAME: &str = "an_idle_server_thread_is_not_woken";
    if !is_child(NAME) {
        let runtime = Folder::new();
        return passed(&child(&this(), NAME).env("XDG_RUNTIME_DIR", &runtime.0).output().expect("started"));
    }
    let _server = serve().expect("a server");
    let mut client = Client::connect(&own()).expect("found");
    client.hello().expect("served");
    let task = fs::read_dir("/proc/self/task")
        .expect("proc")
        .flatten()
        .map(|task| task.path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == THREAD_NAME));
    let task = task.expect("its name is known since it served");
    // Number of times that it went to sleep. It sleeps once more after its answer was read.
    let sleeps = || {
        let status = fs::read_to_string(task.join("status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("counted").trim().parse::<u64>().expect("a number")
    };
    // Returns whether the thread polls without a time limit. Few kernels hide the calls of threads.
    let polls_forever = || {
        let call = fs::read_to_string(task.join("syscall")).ok()?;
        let words: Vec<&str> = call.split_whitespace().collect();
        // The number of the call and its arguments, or `running`. The third argument is the limit: negative
        // for `poll`, absent for `ppoll`.
        let polls = if cfg!(target_arch = "x86_64") { ["7", "271"].as_slice() } else { &["73"] };
        let forever = ["0x0", "0xffffffff", "0xffffffffffffffff"];
        Some(polls.contains(&words[0]) && forever.contains(&words[3]))
    };
    // On a busy machine, the thread goes to sleep late.
    let rests = || {
        (0..60_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            polls_forever() != Some(false)
        })
    };
    assert!(rests(), "woken with a client that says nothing");
    let before = sleeps();
    drop(client);
    while sleeps() == before {
        std::thread::yield_now();
    }
    assert!(rests(), "woken without a client");
}

#[test]
fn without_a_run_time_folder_below_tmp() {
    const NAME: &str = "without_a_run_time_folder_below_tmp";
    if !is_child(NAME) {
        passed(&child(&this(), NAME).env_remove("XDG_RUNTIME_DIR").output().expect("started"));
        return passed(&child(&this(), NAME).env("XDG_RUNTIME_DIR", "/not/there").output().expect("started"));
    }
    let server = serve().expect("a server");
    let folder = format!("/tmp/squall-{}", geteuid().as_raw());
    assert_eq!(server.path(), Path::new(&folder).join(format!("{}.sock", std::process::id())));
    assert_eq!((mode(Path::new(&folder)), mode(server.path())), (0o700, 0o600));
    Client::connect(&own()).expect("found");
}

#[test]
fn a_folder_of_another_user_is_refused() {
    const NAME: &str = "a_folder_of_another_user_is_refused";
    if !is_child(NAME) {
        let runtime = Folder::new();
        return passed(&child(&this(), NAME).env("XDG_RUNTIME_DIR", &runtime.0).output().expect("started"));
    }
    let folder = Path::new(&std::env::var("XDG_RUNTIME_DIR").expect("given")).join("squall");
    let elsewhere = Folder::new();
    symlink(&elsewhere.0, &folder).expect("free");
    let error = serve().expect_err("a link");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("it is not a folder"), "{error}");
    fs::remove_file(&folder).expect("own");
    fs::create_dir(&folder).expect("free");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("own");
    let error = serve().expect_err("open to all");
    assert!(error.to_string().contains("its mode is 777"), "{error}");
    if geteuid().is_root() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("own");
        std::os::unix::fs::chown(&folder, Some(65534), None).expect("root may");
        let error = serve().expect_err("somebody else's");
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
    } else {
        eprintln!("SKIP a folder of another user: only root can make one");
    }
    assert!(fs::read_dir(&elsewhere.0).expect("there").next().is_none(), "nothing was made through the link");
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let folder = Folder::new();
    let path = folder.0.join("it.sock");
    drop(UnixListener::bind(&path).expect("free"));
    assert!(path.exists(), "as a process leaves it that was killed");
    let server = Builder::new().path(&path).serve().expect("replaced");
    Client::connect(&Target::Path(path.clone())).expect("served");
    let error = Builder::new().path(&path).serve().expect_err("it is served");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    Client::connect(&Target::Path(path.clone())).expect("still served");
    drop(server);
    fs::write(&path, "text").expect("free");
    let error = Builder::new().path(&path).serve().expect_err("a file");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).expect("it stays"), b"text");
    let error = Builder::new().path(folder.0.join("x".repeat(200))).serve().expect_err("too long");
    assert!(error.to_string().contains("xxx"), "{error}");
}

#[test]
fn another_user_is_turned_away() {
    const NAME: &str = "another_user_is_turned_away";
    if is_child(NAME) {
        let path = std::env::var_os("SQUALL_TEST_SOCKET").expect("given");
        match Client::connect(&Target::Path(path.into())) {
            Err(ClientError::NotAllowed(why)) => assert!(why.contains("user"), "{why}"),
            other => panic!("{other:?}"),
        }
        let process = std::env::var("SQUALL_TEST_PID").expect("given").parse().expect("a number");
        match Client::connect(&Target::Process(process)) {
            Err(ClientError::NotAllowed(why)) => assert!(why.contains("only that user"), "{why}"),
            other => panic!("{other:?}"),
        }
        return;
    }
    if !geteuid().is_root() {
        eprintln!("SKIP {NAME}: only root can be somebody else");
        return;
    }
    let program = Program::new(Builder::new());
    let folder = program.path().parent().expect("a folder").to_owned();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("own");
    let copy = folder.join("test");
    fs::copy(this(), &copy).expect("room");
    let as_nobody = |test: &str| {
        let mut command = child(&copy, test);
        command.uid(65534).gid(65534).current_dir("/");
        command
            .env("SQUALL_TEST_SOCKET", program.path())
            .env("SQUALL_TEST_PID", std::process::id().to_string());
        command.output().expect("started")
    };
    // Rejected by the mode of the socket; with a changed mode, by the user that the kernel reports.
    passed(&as_nobody(NAME));
    fs::set_permissions(program.path(), fs::Permissions::from_mode(0o666)).expect("own");
    passed(&as_nobody(NAME));
    program.check();
}

#[test]
fn a_forked_child_serves_nothing_and_leaves_the_parent_s_socket() {
    const NAME: &str = "a_forked_child_serves_nothing_and_leaves_the_parent_s_socket";
    if !is_child(NAME) {
        let runtime = Folder::new();
        return passed(&child(&this(), NAME).env("XDG_RUNTIME_DIR", &runtime.0).output().expect("started"));
    }
    let object = hits();
    assert_eq!(object.handle().add(1), 1);
    let mut server = Some(serve().expect("a server"));
    let path = server.as_ref().expect("there").path().to_owned();
    Client::connect(&own()).expect("served");
    assert!(in_forked_child(|| {
        let refused = serve().is_err_and(|error| error.kind() == ErrorKind::Unsupported);
        drop(server.take());
        refused
    }));
    assert!(path.exists());
    Client::connect(&own()).expect("served as before").hello().expect("an answer");
    assert_eq!(object.handle().add(1), 2);
    drop(server);
    assert!(!path.exists());
}
