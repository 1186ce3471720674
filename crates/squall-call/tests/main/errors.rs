//! Errors of calls: each has its own kind, and tells whether the method ran.

use crate::common::{Shop, exported, pair, shop, transport};
use serde::{Deserialize, Serialize};
use squall_call::{ExportOptions, export_on, import_from};
use squall_core::{CallError, CallErrorKind, MessageError, Transport};
use squall_macros::interface;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An error type as users write it.
#[derive(Debug, Serialize, Deserialize)]
enum Failure {
    Call(CallError),
    Kind(CallErrorKind),
    #[serde(skip)]
    Local,
}

/// A type of which the sender leaves a part away that the receiver reads.
#[derive(Default, Serialize, Deserialize)]
struct Partial {
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u64>,
}

#[interface(crate = crate::facade, remote)]
trait Fails: Send + Sync {
    fn with_call(&self) -> Result<(), Failure>;
    fn with_kind(&self) -> Result<(), Failure>;
    fn with_local(&self) -> Result<(), Failure>;
    fn take(&self, failure: &Failure);
    fn take_partial(&self, partial: Partial, more: u64);
}

#[derive(Default)]
struct Server {
    ran: AtomicU32,
}

impl Server {
    /// The error of an object of this process.
    fn error(&self) -> CallError {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let object = shop().named("a shop");
        let handle = object.handle();
        drop(object);
        handle.try_add(1).unwrap_err()
    }
}

impl Fails for Arc<Server> {
    fn with_call(&self) -> Result<(), Failure> {
        Err(Failure::Call(self.error()))
    }

    fn with_kind(&self) -> Result<(), Failure> {
        Err(Failure::Kind(self.error().reason()))
    }

    fn with_local(&self) -> Result<(), Failure> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Err(Failure::Local)
    }

    fn take(&self, _failure: &Failure) {
        self.ran.fetch_add(1, Ordering::SeqCst);
    }

    fn take_partial(&self, _partial: Partial, _more: u64) {
        self.ran.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_error_type_with_errors_of_calls_travels() {
    let object = squall_core::shared::<dyn Fails, _>(Arc::new(Server::default()));
    let (here, there) = pair();
    let _export = export_on(object.handle(), here).unwrap();
    let imported = import_from::<dyn Fails>(there).unwrap();
    let Err(Failure::Call(error)) = imported.with_call() else { panic!("another failure") };
    assert_eq!(
        (error.interface(), error.method(), error.reason()),
        ("Shop", "add", CallErrorKind::Destroyed)
    );
    assert!(error.class().is_some_and(|class| class.contains("Counter")));
    assert_eq!(error.name().map(|name| name.to_string()).as_deref(), Some("a shop"));
    assert!(!error.may_have_run());
    assert!(matches!(imported.with_kind(), Err(Failure::Kind(CallErrorKind::Destroyed))));
}

/// Asserts that a call failed for this reason, and that the error tells whether the method ran.
#[track_caller]
fn failed<T: std::fmt::Debug>(result: Result<T, CallError>, reason: Transport, ran: bool) {
    let error = result.unwrap_err();
    assert_eq!(error.reason(), transport(reason));
    assert_eq!(error.may_have_run(), ran, "{error}");
}

#[test]
fn values_that_cannot_be_sent_tell_whether_the_method_ran() {
    let server = Arc::new(Server::default());
    let object = squall_core::shared::<dyn Fails, _>(server.clone());
    let (here, there) = pair();
    let _export = export_on(object.handle(), here).unwrap();
    let imported = import_from::<dyn Fails>(there).unwrap();
    failed(imported.try_take(&Failure::Local), Transport::BadArguments(MessageError::Unencodable), false);
    let undecodable = Transport::BadArguments(MessageError::Undecodable);
    failed(imported.try_take_partial(Partial::default(), u64::MAX), undecodable, false);
    assert_eq!(server.ran.load(Ordering::SeqCst), 0);
    failed(imported.try_with_local(), Transport::BadResult(MessageError::Unencodable), true);
    assert_eq!(server.ran.load(Ordering::SeqCst), 1);
}

#[test]
fn the_end_of_the_own_import_differs_from_the_end_of_the_object() {
    let (object, export, imported) = exported(&ExportOptions::new());
    drop(object);
    failed(imported.try_add(1), Transport::Destroyed, false);
    drop(export);
    // The first calls may still reach the server.
    while imported.try_add(1).unwrap_err().reason() != transport(Transport::Disconnected) {}
    let handle = imported.handle();
    drop(imported);
    assert_eq!(handle.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
}
