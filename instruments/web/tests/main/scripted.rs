//! A program that answers as a test tells it, and reports each request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use serde_json::{Value, json};
use squall::browse::Target;

use crate::common::Folder;

/// Reaction of the program to requests.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Answers them.
    Answers,
    /// Closes the connection at any request but those named `hello`.
    Closes,
    /// Refuses all, and closes the connection.
    IsFull,
    /// Neither answers nor closes.
    IsSilent,
}

/// State of the program. While a test holds its lock, the program does not answer.
pub(crate) struct State {
    pub(crate) reaction: Reaction,
    /// Objects of the listing.
    pub(crate) objects: Vec<Value>,
    pub(crate) instance: u64,
    pub(crate) all_frozen: bool,
    /// Answers to further requests, by their name.
    pub(crate) answers: HashMap<&'static str, Value>,
}

/// The program. Its requests are in `operations`.
pub(crate) struct Scripted {
    folder: Folder,
    pub(crate) operations: mpsc::Receiver<String>,
    state: Arc<Mutex<State>>,
}

impl Scripted {
    pub(crate) fn new() -> Scripted {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.socket()).expect("free");
        let (sender, operations) = mpsc::channel();
        let state = State {
            reaction: Reaction::Answers,
            objects: Vec::new(),
            instance: 1,
            all_frozen: false,
            answers: HashMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, sender, state) =
                    (stream.expect("a client"), sender.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &sender, &state));
            }
        });
        Scripted { folder, operations, state }
    }

    pub(crate) fn target(&self) -> Target {
        Target::Path(self.folder.socket())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub(crate) fn react(&self, reaction: Reaction) {
        self.state().reaction = reaction;
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.operations.try_iter().collect()
    }
}

/// Serves one client. A client that has gone ends the thread.
fn serve(stream: UnixStream, operations: &mpsc::Sender<String>, state: &Mutex<State>) {
    let mut writer = stream.try_clone().expect("a descriptor");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let request: Value = serde_json::from_str(&line).expect("JSON");
        let operation = request["op"].as_str().expect("an operation").to_owned();
        let _ = operations.send(operation.clone());
        let answer = {
            let state = state.lock().expect("no panic");
            match state.reaction {
                Reaction::Closes if operation != "hello" => return,
                Reaction::IsFull => {
                    let full = json!({ "error": { "kind": "too-many-clients", "message": "8 clients are connected" } });
                    let _ = writeln!(writer, "{full}");
                    return;
                }
                Reaction::IsSilent => continue,
                Reaction::Answers | Reaction::Closes => answer(&operation, &state),
            }
        };
        if writeln!(writer, "{answer}").is_err() {
            return;
        }
    }
}

fn answer(operation: &str, state: &State) -> Value {
    if let Some(answer) = state.answers.get(operation) {
        return json!({ "ok": answer });
    }
    match operation {
        "hello" => json!({ "ok": {
            "protocol": 1, "version": "0.1.0", "pid": 1, "program": "it", "all_frozen": false, "records_authors": true,
            "instance": state.instance, "operations": ["unset"],
        } }),
        "list" => {
            let State { objects, all_frozen, .. } = state;
            json!({ "ok": { "total": objects.len(), "all_frozen": all_frozen, "objects": objects } })
        }
        "freeze" => json!({ "ok": null }),
        // An older program does not know other requests.
        _ => json!({ "error": { "kind": "bad-request", "message": "unknown variant" } }),
    }
}
