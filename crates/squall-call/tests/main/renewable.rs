//! Imports that are made again after their server has ended.

use crate::common::{Server, Shop, kind, name, shop, transport, until};
use squall_call::{Export, ImportOptions, RenewableImport, disconnect, export};
use squall_core::{CallError, CallErrorKind, Handle, Id, Owned, Transport};
use squall_macros::interface;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);
/// The time for a server that does not come.
const SHORT: Duration = Duration::from_millis(20);

fn renewable(name: &str) -> RenewableImport<dyn Shop> {
    RenewableImport::new(ImportOptions::new(), name, LONG).unwrap()
}

/// An object, its export, and an import of it.
fn exported(test: &str) -> (Owned<dyn Shop>, Export, RenewableImport<dyn Shop>) {
    let (name, object) = (name(test), shop());
    let export = export(object.handle(), &name).unwrap();
    (object, export, renewable(&name))
}

#[test]
fn threads_that_saw_one_end_get_one_new_import() {
    const THREADS: usize = 4;
    let name = name("renewed-once");
    let object = shop();
    let old = export(object.handle(), &name).unwrap();
    let remote = renewable(&name);
    let failed = remote.handle();
    drop(old);
    let new = export(object.handle(), &name).unwrap();
    let together = Barrier::new(THREADS);
    let handles = thread::scope(|scope| {
        let renew = || {
            together.wait();
            remote.renew(failed, LONG).unwrap()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(renew)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(handles.iter().all(|handle| *handle == remote.handle() && *handle != failed), "{handles:?}");
    assert_eq!(new.clients().len(), 1);
    assert_eq!(remote.handle().add(3), 3);
}

#[test]
fn a_server_that_starts_again_is_called_again() {
    const THREADS: u64 = 4;
    let name = name("renewed");
    let mut first = Server::start(&name);
    let remote = renewable(&name);
    assert_eq!(remote.handle().add(100), 100);
    first.kill();
    let _second = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    match remote.call(LONG, |shop| shop.try_add(1)) {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error.reason(), transport(Transport::PeerGone)),
                    }
                }
            });
        }
        Server::start(&name)
    });
    assert_eq!(remote.call(LONG, |shop| shop.try_add(0)), Ok(THREADS), "each call that succeeded ran once");
}

#[test]
fn a_server_that_stays_away_is_an_error() {
    let name = name("away");
    let missing = RenewableImport::<dyn Shop>::new(ImportOptions::new(), &name, SHORT);
    assert!(missing.is_err());

    let mut server = Server::start(&name);
    let remote = renewable(&name);
    server.kill();
    let failed = remote.handle();
    assert!(matches!(kind(remote.call(SHORT, |shop| shop.try_add(1))), CallErrorKind::Transport(_)));
    assert!(remote.renew(failed, SHORT).is_err());
    thread::scope(|scope| {
        // One has the turn. The others wait for it, each for its own time.
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| remote.renew(failed, SHORT))).collect();
        for thread in threads {
            assert!(thread.join().unwrap().is_err());
        }
    });
    assert_eq!(remote.handle(), failed);
}

#[test]
fn a_call_that_has_not_run_is_repeated() {
    let (_object, _export, remote) = exported("repeated");
    let ended = remote.handle();
    disconnect(ended);
    assert_eq!(kind(ended.try_add(1)), transport(Transport::Disconnected));
    assert_eq!(remote.call(LONG, |shop| shop.try_add(1)), Ok(1));
    assert_eq!(kind(ended.try_add(1)), CallErrorKind::Destroyed);
}

#[test]
fn a_call_that_may_have_run_is_not_repeated() {
    let (object, _export, remote) = exported("may-have-run");
    let first = remote.handle();
    thread::scope(|scope| {
        let waits = scope.spawn(|| remote.call(LONG, |shop| shop.try_wait()));
        until(|| object.waiting() == 1);
        disconnect(first);
        assert_eq!(kind(waits.join().unwrap()), transport(Transport::PeerGone));
    });
    assert_eq!((object.waiting(), remote.handle() == first), (1, false));
    object.open();
}

#[test]
fn errors_of_a_working_import_do_not_renew_it() {
    let (_object, _export, remote) = exported("working");
    let first = remote.handle();
    assert_eq!(kind(remote.call(LONG, |shop| shop.try_panic())), transport(Transport::Panicked));
    assert_eq!(remote.handle(), first);
}

/// An interface with an error type that carries errors of calls.
#[interface(crate = crate::facade, remote)]
trait Refers: Send + Sync {
    /// Returns the error of a call of another object, which has this slot and generation.
    fn fail(&self, slot: u32, generation: u32, reason: CallErrorKind) -> Result<(), Box<CallError>>;
}

struct Referring;

impl Refers for Referring {
    fn fail(&self, slot: u32, generation: u32, reason: CallErrorKind) -> Result<(), Box<CallError>> {
        let id = Id::from_parts(slot, generation).unwrap();
        Err(CallError::__remote("Other", id, "act", reason).into())
    }
}

#[test]
fn a_received_error_with_the_id_of_the_import_does_not_renew_it() {
    let name = name("received");
    let object = squall_core::shared::<dyn Refers, _>(Referring);
    let export = export(object.handle(), &name).unwrap();
    let remote = RenewableImport::<dyn Refers>::new(ImportOptions::new(), &name, LONG).unwrap();
    let first = remote.handle();
    let id = Handle::id(first);
    for reason in [
        CallErrorKind::Destroyed,
        transport(Transport::PeerGone),
        transport(Transport::Disconnected),
        transport(Transport::NoSuchObject),
    ] {
        let failed = remote.call(LONG, |refers| {
            // A client that needs only one error type.
            refers.try_fail(id.slot(), id.generation(), reason)?.map_err(|error| *error)
        });
        let error = failed.unwrap_err();
        assert_eq!((error.id(), error.reason()), (id, reason));
        assert_eq!((remote.handle(), export.clients().len()), (first, 1), "{reason}");
    }
}

#[test]
fn calls_may_nest() {
    let (_object, _export, remote) = exported("nested-renewal");
    let outer = remote.handle();
    disconnect(outer);
    let sum = remote.call(LONG, |shop| {
        if shop == outer {
            // The inner call renews the import, and so destroys the one of the outer call.
            remote.renew(shop, LONG).unwrap();
        }
        shop.try_add(1)
    });
    assert_eq!(sum, Ok(1), "the handle was stale, so the call was repeated");
    assert_eq!(kind(outer.try_add(1)), CallErrorKind::Destroyed);
}
