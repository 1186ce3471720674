//! The address of the server: names, errors, and many clients at once.

mod common;

use std::net::TcpStream;
use std::process::Command;

use squall_cache_example::listen;

use common::TIMEOUT;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_name_is_an_address() {
    let listener = runtime().block_on(listen("localhost:0")).expect("the name is known");
    let address = listener.local_addr().expect("an address");
    assert!(address.ip().is_loopback());
    TcpStream::connect(address).expect("the server listens");
}

/// Without a server that accepts, each client beyond the backlog would wait for ever.
#[test]
fn hundreds_of_clients_may_connect_at_once() {
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .map_or(128, |text| text.trim().parse().expect("a number"));
    let runtime = runtime();
    let listener = runtime.block_on(listen("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let connect = |_| TcpStream::connect_timeout(&address, TIMEOUT).expect("there is room for it");
    let clients: Vec<TcpStream> = (0..most.min(600)).map(connect).collect();
    drop(clients);
}

#[test]
fn an_error_names_the_address_and_the_reason() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    for (address, reason) in [(address.as_str(), "in use"), ("127.0.0.1:port", "invalid port")] {
        let output = Command::new(env!("CARGO_BIN_EXE_squall-cached"))
            .args(["--listen", address])
            .output()
            .expect("the server starts");
        let text = String::from_utf8_lossy(&output.stderr);
        let begin = format!("squall-cached: cannot listen on {address}: ");
        assert!(text.starts_with(&begin) && text.contains(reason), "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[cfg(unix)]
mod unix {
    use super::*;
    use squall_cache_example::listen_unix;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_has_its_mode_and_goes_with_its_listener() {
        let (folder, runtime) = (common::Folder::new(), runtime());
        let path = folder.path().join("socket");
        let listener = runtime.block_on(listen_unix(&path, 0o620)).expect("there is no such file");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o620);
        UnixStream::connect(&path).expect("it listens");
        // A socket that is in use is left alone.
        let error = runtime.block_on(listen_unix(&path, 0o700)).expect_err("it is in use");
        let begin = format!("cannot listen on {}: ", path.display());
        assert!(error.to_string().starts_with(&begin), "{error}");
        UnixStream::connect(&path).expect("the first one still listens");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_without_a_server_is_replaced_and_other_files_stay() {
        let (folder, runtime) = (common::Folder::new(), runtime());
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).expect("there is no such file"));
        let first = runtime.block_on(listen_unix(&path, 0o700)).expect("no server listens");
        // Another server may take the path over.
        std::fs::remove_file(&path).expect("it is there");
        let second = runtime.block_on(listen_unix(&path, 0o700)).expect("there is no such file");
        drop(first);
        UnixStream::connect(&path).expect("the second one listens");
        drop(second);
        std::fs::write(&path, b"data").expect("a file can be made");
        runtime.block_on(listen_unix(&path, 0o700)).expect_err("there is a file");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"data");
        runtime.block_on(listen_unix(&folder.path().join("no/socket"), 0o700)).expect_err("no such folder");
    }
}
