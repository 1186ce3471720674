//! Objects that are called between processes. Both ends are in this process.

use crate::common::{Program, hits};
use squall_browse::protocol::{CallerView, ListQuery, RefusalKind};
use squall_browse::{Builder, Client, ClientError};
use squall_call::{Export, ExportOptions, import_from, socket_pair};
use squall_core::{CallError, CallErrorKind, Handle, Owned, Transport, shared};
use std::sync::Mutex;

/// The hidden modules that the attribute's expansion names.
mod facade {
    pub(super) use squall_call as call;
    pub(super) use squall_core::__macro;
}

#[squall_macros::interface(crate = facade, remote)]
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

/// An object, its export, and its import through a pair of sockets.
struct Ends {
    object: Owned<dyn Shelf>,
    export: Export,
    imported: Owned<dyn Shelf>,
}

impl Ends {
    fn new() -> Ends {
        let object = shared::<dyn Shelf, _>(Numbers::default());
        let (here, there) = socket_pair().expect("a pair of sockets");
        let export = ExportOptions::new().export_on(object.handle(), here).expect("an export");
        let imported = import_from::<dyn Shelf>(there).expect("an import");
        Ends { object, export, imported }
    }

    fn id(&self) -> String {
        Handle::id(self.object.handle()).to_string()
    }

    fn imported_id(&self) -> String {
        Handle::id(self.imported.handle()).to_string()
    }
}

fn only_caller(client: &mut Client, id: &str) -> CallerView {
    let exports = client.object(id).expect("an answer").exports;
    let [export] = &exports[..] else { panic!("one export: {exports:?}") };
    assert_eq!(export.callers_count, 1);
    export.callers[0].clone()
}

fn refusal(result: Result<(), ClientError>) -> String {
    match result {
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::Refused => refusal.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_exported_object_shows_its_callers_and_an_imported_one_its_server() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let ends = Ends::new();
    ends.imported.put(3);
    assert_eq!(ends.imported.sum(), 3);
    let caller = only_caller(&mut client, &ends.id());
    assert_eq!(
        (caller.pid, caller.uid),
        (None, None),
        "a pair of sockets has no other end that the kernel names"
    );
    assert_eq!(caller.number, ends.export.clients()[0].number());
    assert!(caller.calls >= 1 && caller.denied.is_empty(), "{caller:?}");
    let detail = client.object(&ends.id()).expect("an answer");
    assert_eq!((detail.row.exported_as, detail.row.callers), (vec!["(a socket)".to_owned()], 1));
    assert_eq!((detail.row.imported_as, detail.import), (None, None));

    let detail = client.object(&ends.imported_id()).expect("an answer");
    assert_eq!((detail.row.imported_as.as_deref(), detail.exports.len()), (Some("(a socket)"), 0));
    let import = detail.import.expect("it was imported");
    assert_eq!((import.pid, import.uid, import.calls), (None, None, 2));
    assert!(import.is_connected);

    let name = format!("browse-{}", std::process::id());
    let _export = squall_call::export(ends.object.handle(), &name).expect("an export");
    let named = squall_call::import::<dyn Shelf>(&name).expect("an import");
    let ids = (Some(std::process::id()), Some(rustix::process::geteuid().as_raw()));
    let exports = client.object(&ends.id()).expect("an answer").exports;
    let export = exports.iter().find(|export| export.name == name).expect("the second export");
    assert_eq!((export.callers[0].pid, export.callers[0].uid), ids);
    let import = client.object(&Handle::id(named.handle()).to_string()).expect("an answer").import;
    assert_eq!(import.map(|import| (import.pid, import.uid)), Some(ids));

    let plain = client.object(&program.id()).expect("an answer");
    assert_eq!((plain.exports.len(), plain.import, plain.row.exported_as.len()), (0, None, 0));
    let query = ListQuery { interface: Some("Shelf".to_owned()), ..ListQuery::default() };
    let rows = client.list(&query).expect("an answer").objects;
    let row = rows.iter().find(|row| row.id == ends.imported_id()).expect("listed");
    assert_eq!(row.imported_as.as_deref(), Some("(a socket)"));
}

#[test]
fn a_row_changes_when_a_caller_comes_or_goes() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let object = shared::<dyn Shelf, _>(Numbers::default());
    let id = Handle::id(object.handle()).to_string();
    // Names and callers in the row, if a whole scan sends it.
    let mut scan = || {
        let mut row = None;
        loop {
            let changes = client.changes().expect("an answer");
            row = changes.objects.into_iter().find(|row| row.id == id).or(row);
            if changes.complete {
                break row.map(|row| (row.exported_as.len(), row.callers));
            }
        }
    };
    assert_eq!(scan(), Some((0, 0)));
    assert_eq!(scan(), None);
    let (here, there) = socket_pair().expect("a pair of sockets");
    let export = ExportOptions::new().export_on(object.handle(), here).expect("an export");
    let imported = import_from::<dyn Shelf>(there).expect("an import");
    assert_eq!(scan(), Some((1, 1)));
    drop((export, imported));
    assert_eq!(scan(), Some((0, 0)));
}

#[test]
fn methods_are_denied_and_callers_disconnected_from_outside() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    client.set_author("ann");
    let ends = Ends::new();
    let transport = |transport| Some(CallErrorKind::Transport(transport));
    let reason = |result: Result<(), CallError>| result.err().map(|error| error.reason());
    client.set_right(&ends.id(), "put", false).expect("denied");
    assert_eq!(reason(ends.imported.try_put(1)), transport(Transport::Denied));
    assert_eq!(client.object(&ends.id()).expect("an answer").exports[0].denied, ["put"]);
    assert_eq!(only_caller(&mut client, &ends.id()).denied, ["put"]);
    client.set_right(&ends.id(), "put", true).expect("allowed");
    ends.imported.put(4);

    let none = refusal(client.set_right(&ends.id(), "take", false));
    assert!(none.contains("\"take\""), "{none}");
    let number = only_caller(&mut client, &ends.id()).number;
    let other = refusal(client.disconnect(&ends.id(), number + 1_000_000));
    assert!(other.contains("has no caller"), "{other}");
    client.disconnect(&ends.id(), number).expect("disconnected");
    // A worker may have begun the call when the connection ended.
    let ended = [Transport::Disconnected, Transport::PeerGone].map(transport);
    assert!(ended.contains(&reason(ends.imported.try_put(1))));
    assert_eq!(ends.object.sum(), 4);

    let actions = client.actions_of(&ends.id()).expect("an answer");
    let made: Vec<_> = actions.iter().map(|action| action.action.as_str()).collect();
    let disconnects = [number + 1_000_000, number].map(|number| format!("disconnect caller {number}"));
    assert_eq!(made, ["deny put", "allow put", "deny take", &disconnects[0], &disconnects[1]]);
    assert!(actions.iter().all(|action| action.author.as_deref().is_some_and(|who| who.starts_with("ann"))));
}

#[test]
fn an_object_that_is_not_exported_has_no_rights_to_change() {
    let program = Program::new(Builder::new());
    let object = hits();
    let id = Handle::id(object.handle()).to_string();
    let mut client = program.client();
    let why = refusal(client.set_right(&id, "add", false));
    assert!(why.contains("is not exported"), "{why}");
    assert!(refusal(client.disconnect(&id, 1)).contains("is not exported"));
}
