//! The server with misbehaving handlers.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::*;
use crate::protocol::{Refusal, RefusalKind, Request};
use crate::session::Session;
use crate::{Client, ClientError, Target};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("squall-server-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("it.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hello() -> Result<String, Refusal> {
    crate::answers::answer(Request::Hello {}, &mut Session::default())
}

/// Starts a server with a handler that answers `hello` normally and passes all other requests to `odd`.
fn serve(
    folder: &Folder,
    mut odd: impl FnMut(Request) -> Result<String, Refusal> + Send + 'static,
) -> Server {
    let handler: Handler = Box::new(move |request, _| match request {
        Request::Hello {} => hello(),
        request => odd(request),
    });
    Builder::new().path(folder.socket()).serve_with(handler).expect("a server")
}

fn client(folder: &Folder) -> Client {
    Client::connect(&Target::Path(folder.socket())).expect("a client")
}

#[test]
fn a_panic_becomes_an_answer_and_the_next_request_is_served() {
    let folder = Folder::new("panic");
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let _server = serve(&folder, move |_| match seen.fetch_add(1, Ordering::Relaxed) {
        0 => panic!("the program's own {}", "code"),
        1 => panic!("plain"),
        2 => std::panic::panic_any(7),
        _ => Ok("null".to_owned()),
    });
    let mut client = client(&folder);
    for part in ["the program's own code", "plain", "not text"] {
        match client.freeze_all(true) {
            Err(ClientError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::Panicked);
                assert!(refusal.message.contains(part), "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
    client.freeze_all(true).expect("it serves on");
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn the_longest_silent_client_gives_way() {
    let folder = Folder::new("silent");
    let builder = Builder::new().path(folder.socket()).clients_max(2).silence(Duration::ZERO);
    let _server = builder.serve_with(Box::new(|_, _| hello())).expect("a server");
    let mut first = client(&folder);
    let mut second = client(&folder);
    first.hello().expect("it is heard of later than the second one");
    let mut third = client(&folder);
    third.hello().expect("let in");
    first.hello().expect("kept");
    assert!(matches!(second.hello(), Err(ClientError::Gone)));
}

#[test]
fn an_answer_that_is_not_understood_is_an_error_of_the_client() {
    let folder = Folder::new("odd");
    let _server = serve(&folder, |_| Ok("[1,2]".to_owned()));
    let error = client(&folder).object("1.0").expect_err("no detail");
    assert!(matches!(error, ClientError::Misunderstood(_)), "{error}");
}

#[test]
fn a_missing_answer_is_a_client_error_and_the_server_goes_on() {
    let folder = Folder::new("late");
    let (go, wait) = channel::<()>();
    let server = serve(&folder, move |_| {
        let _ = wait.recv();
        Ok("null".to_owned())
    });
    let mut first = client(&folder);
    first.set_timeout(std::time::Duration::from_millis(20));
    assert!(matches!(first.freeze_all(true), Err(ClientError::NoAnswer(_))));
    assert!(
        matches!(first.hello(), Err(ClientError::Gone)),
        "the rest of that answer is not taken for another's"
    );
    go.send(()).expect("the handler waits");
    client(&folder).hello().expect("served");
    drop(server);
    assert!(!folder.socket().exists());
}

#[test]
fn a_server_may_be_dropped_by_what_a_request_runs() {
    let folder = Folder::new("within");
    let (give, take) = channel::<Server>();
    let server = serve(&folder, move |_| {
        drop(take.recv());
        Ok("null".to_owned())
    });
    let mut client = client(&folder);
    give.send(server).expect("the handler is there");
    client.freeze_all(true).expect("its answer is sent before the end");
    assert!(matches!(client.hello(), Err(ClientError::Gone)));
    assert!(!folder.socket().exists());
}

#[test]
fn a_file_that_took_the_sockets_place_is_left_alone() {
    let folder = Folder::new("place");
    let server = serve(&folder, |_| hello());
    fs::remove_file(folder.socket()).expect("there");
    fs::write(folder.socket(), "somebody else's").expect("free");
    drop(server);
    assert_eq!(fs::read(folder.socket()).expect("still there"), b"somebody else's");
}
