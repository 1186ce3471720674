//! Calls to a server in another process.

use crate::common::{Server, Shop, adds, kind, name, shop, transport, until};
use squall_call::{ExportOptions, ImportError, ImportOptions, Refusal, RenewableImport, export, import};
use squall_core::{CallErrorKind, Transport};

/// Not a test: the body of a server's process.
#[test]
#[ignore = "the body of another process"]
fn the_server() {
    let Ok(name) = std::env::var("SQUALL_TEST_EXPORT") else { return };
    let object = shop();
    let _export = export(object.handle(), &name).unwrap();
    println!("exported");
    // It ends with its parent.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

#[test]
fn an_object_of_another_process_is_called() {
    let name = name("called");
    let server = Server::start(&name);
    let one = import::<dyn Shop>(&name).unwrap();
    let two = import::<dyn Shop>(&name).unwrap();
    adds(one.handle(), 2, 2);
    adds(two.handle(), 2, 4);
    assert_eq!(two.who(), (std::process::id(), 1));
    assert_eq!(one.sum(&[9; 5_000]), Ok(45_000));
    drop(server);
}

#[test]
fn a_killed_server_ends_the_calls_that_wait() {
    let name = name("killed");
    let mut server = Server::start(&name);
    let imported = import::<dyn Shop>(&name).unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..4).map(|_| scope.spawn(|| imported.try_wait())).collect();
        until(|| imported.waiting() == 4);
        server.kill();
        for wait in waits {
            assert_eq!(kind(wait.join().unwrap()), transport(Transport::PeerGone));
        }
    });
    let late = imported.try_add(1).unwrap_err();
    assert_eq!(late.reason(), transport(Transport::Disconnected));
    assert!(!late.may_have_run());
    assert!(matches!(import::<dyn Shop>(&name), Err(ImportError::NoServer { .. })), "the name is gone");
    // The name is free again.
    let _again = Server::start(&name);
    adds(import::<dyn Shop>(&name).unwrap().handle(), 1, 1);
}

#[test]
fn a_server_that_exits_in_a_call_ends_it() {
    let name = name("exits");
    let _server = Server::start(&name);
    let imported = import::<dyn Shop>(&name).unwrap();
    assert_eq!(kind(imported.try_exit()), transport(Transport::PeerGone));
}

#[test]
fn a_killed_client_leaves_nothing_with_the_server() {
    let name = name("client");
    let object = shop();
    let export = export(object.handle(), &name).unwrap();
    let before = export.clients().len();
    let program = std::env::current_exe().unwrap();
    let mut client = std::process::Command::new(program)
        .args(["--exact", "processes::the_client", "--nocapture", "--ignored"])
        .env("SQUALL_TEST_IMPORT", &name)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until(|| object.waiting() == 3);
    assert_eq!(export.clients().len(), before + 1);
    assert_eq!(export.clients()[0].pid(), Some(client.id()));
    client.kill().unwrap();
    client.wait().unwrap();
    until(|| export.clients().is_empty());
    // Its calls still run, and end.
    object.open();
    until(|| squall_call::caller().is_none() && object.waiting() == 3);
    adds(object.handle(), 1, 1);
}

#[test]
fn a_connection_counts_until_its_last_call_has_ended() {
    let name = name("limits");
    let object = shop();
    let options = ExportOptions::new().clients(2).clients_per_user(1);
    let export = options.export(object.handle(), &name).unwrap();
    let imported = import::<dyn Shop>(&name).unwrap();
    let is_refused = || {
        let error = import::<dyn Shop>(&name).map(drop).unwrap_err();
        assert!(matches!(error, ImportError::Refused(Refusal::Busy)) && error.is_transient(), "{error}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| imported.try_wait());
        until(|| object.waiting() == 1);
        is_refused();
        // The connection ends, and its call goes on.
        assert!(squall_call::disconnect(imported.handle()));
        until(|| export.clients().is_empty());
        is_refused();
        object.open();
    });
    until(|| import::<dyn Shop>(&name).is_ok());
}

/// Not a test: the body of a client's process.
#[test]
#[ignore = "the body of another process"]
fn the_client() {
    let Ok(name) = std::env::var("SQUALL_TEST_IMPORT") else { return };
    let imported = import::<dyn Shop>(&name).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| imported.try_wait());
        }
    });
}

#[test]
fn a_forked_child_gets_errors() {
    let name = name("forked");
    let object = shop();
    let _export = export(object.handle(), &name).unwrap();
    let imported = import::<dyn Shop>(&name).unwrap();
    adds(imported.handle(), 1, 1);
    let limit = std::time::Duration::from_secs(600);
    let renewable = RenewableImport::<dyn Shop>::new(ImportOptions::new(), &name, limit).unwrap();
    let errors = squall_test_fork(|| {
        let called = kind(imported.try_add(1)) == CallErrorKind::Forked;
        let made = matches!(import::<dyn Shop>(&name), Err(ImportError::Forked));
        let handle = renewable.handle();
        let renewed = kind(renewable.call(limit, |shop| shop.try_add(1))) == CallErrorKind::Forked
            && matches!(renewable.renew(handle, limit), Err(ImportError::Forked));
        called && made && renewed
    });
    assert!(errors);
    adds(imported.handle(), 1, 2);
}

/// Runs `f` in a forked child, and returns its result.
fn squall_test_fork(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `f` and exits at once, without a destructor.
    match unsafe { libc::fork() } {
        0 => {
            let good = f();
            // SAFETY: `_exit` ends the child.
            unsafe { libc::_exit(if good { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of this process, and a status of our own.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}
