//! Calls to a server in this process.

use crate::common::{Shop, adds, exported, kind, name, pair, shop, transport, until};
use squall_call::{Export, ExportError, ExportOptions, ImportError, export, export_on, import, import_from};
use squall_core::{CallError, Transport};
use squall_macros::interface;
use std::sync::{Arc, Mutex, OnceLock};

#[test]
fn an_imported_object_is_called_like_ones_own() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    adds(imported.handle(), 3, 3);
    adds(object.handle(), 4, 7);
    adds(imported.handle(), 1, 8);
    assert_eq!(imported.put("a", vec![1, 2]), None);
    assert_eq!(imported.put("a", vec![3]), Some(vec![1, 2]));
    assert_eq!(object.get("a"), Some(vec![3]));
    let joined = imported.join([1; 48], &[2; 16]);
    assert_eq!((&joined[..48], &joined[48..]), (&[1; 48][..], &[2; 16][..]));
    // An error of the method is apart from one of the way.
    assert_eq!(imported.try_sum(&[1, 0, 2]), Ok(Err(1)));
    assert_eq!(imported.sum(&[1, 2]), Ok(3));
}

#[test]
fn an_object_is_found_by_its_name_until_its_export_ends() {
    let name = name("found");
    let object = shop();
    let exported = export(object.handle(), &name).unwrap();
    assert_eq!(exported.name(), name);
    let one = import::<dyn Shop>(&name).unwrap();
    let two = import::<dyn Shop>(&name).unwrap();
    adds(one.handle(), 1, 1);
    adds(two.handle(), 1, 2);
    assert!(matches!(export(object.handle(), &name), Err(ExportError::Taken { .. })));
    let clients = exported.clients();
    assert_eq!(clients.len(), 2);
    drop(exported);
    assert!(clients.iter().all(|client| !client.is_connected()));
    assert!(matches!(import::<dyn Shop>(&name), Err(ImportError::NoServer { .. })));
    let gone = kind(one.try_add(1));
    assert!(
        [Transport::Disconnected, Transport::PeerGone, Transport::NoSuchObject]
            .map(transport)
            .contains(&gone),
        "{gone:?}"
    );
    adds(object.handle(), 1, 3);
}

#[test]
fn a_call_from_each_of_many_threads_is_served_once() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    let calls = if cfg!(debug_assertions) { 200 } else { 2_000 };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..calls).for_each(|_| _ = imported.add(1)));
        }
    });
    adds(object.handle(), 0, 8 * calls);
}

#[test]
fn a_panic_of_the_method_ends_its_call_alone() {
    let (_object, _export, imported) = exported(&ExportOptions::new());
    assert_eq!(kind(imported.try_panic()), transport(Transport::Panicked));
    adds(imported.handle(), 1, 1);
}

#[test]
fn a_destroyed_object_gives_its_own_error() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    drop(object);
    assert_eq!(kind(imported.try_add(1)), transport(Transport::Destroyed));
}

#[test]
fn rights_change_while_calls_come() {
    let options = ExportOptions::new().deny("add");
    let (_object, export, imported) = exported(&options);
    assert_eq!(kind(imported.try_add(1)), transport(Transport::Denied));
    export.allow("add").unwrap();
    adds(imported.handle(), 1, 1);
    let [client] = &export.clients()[..] else { panic!("one client") };
    client.deny("add").unwrap();
    assert_eq!(kind(imported.try_add(1)), transport(Transport::Denied));
    assert_eq!(imported.get("a"), None);
    client.allow("add").unwrap();
    adds(imported.handle(), 1, 2);
    export.deny("add").unwrap();
    assert_eq!(kind(imported.try_add(1)), transport(Transport::Denied));
    assert!(matches!(export.deny("none"), Err(ExportError::NoSuchMethod { .. })));
    assert!(client.calls() >= 6);
    client.disconnect();
    // The worker may have begun the call when the connection ended.
    let ended = [Transport::Disconnected, Transport::PeerGone].map(transport);
    assert!(ended.contains(&kind(imported.try_get("a"))));
}

#[test]
fn a_server_knows_its_caller_and_keeps_state_for_it() {
    let (object, export, imported) = exported(&ExportOptions::new());
    // A socket pair has no peer that the kernel knows.
    assert_eq!(imported.who(), (0, 1));
    assert_eq!(imported.who(), (0, 2));
    assert!(squall_call::caller().is_none());
    let (here, there) = pair();
    let _other_export: Export = export_on(object.handle(), here).unwrap();
    let other = import_from::<dyn Shop>(there).unwrap();
    assert_eq!(other.who().1, 1, "another connection has its own state");
    assert_eq!((export.clients()[0].uid(), export.clients()[0].pid()), (None, None));
}

/// An object that calls another one while it is called.
struct Back(Mutex<Option<Arc<squall_core::Owned<dyn Ping>>>>);

#[interface(crate = crate::facade, remote)]
trait Ping: Send + Sync {
    fn ping(&self, depth: u32) -> u32;
}

impl Ping for Back {
    fn ping(&self, depth: u32) -> u32 {
        let next = self.0.lock().unwrap().clone();
        if depth == 0 { 0 } else { 1 + next.expect("connected").ping(depth - 1) }
    }
}

#[test]
fn calls_nest_between_two_objects() {
    let (one, two) = (Back(Mutex::new(None)), Back(Mutex::new(None)));
    let (one, two) = (Arc::new(one), Arc::new(two));
    struct Via(Arc<Back>);
    impl Ping for Via {
        fn ping(&self, depth: u32) -> u32 {
            self.0.ping(depth)
        }
    }
    let first = squall_core::shared::<dyn Ping, _>(Via(one.clone()));
    let second = squall_core::shared::<dyn Ping, _>(Via(two.clone()));
    let ((a, b), (c, d)) = (pair(), pair());
    let _exports = (export_on(first.handle(), a).unwrap(), export_on(second.handle(), c).unwrap());
    let far_first = Arc::new(import_from::<dyn Ping>(b).unwrap());
    let far_second = Arc::new(import_from::<dyn Ping>(d).unwrap());
    *one.0.lock().unwrap() = Some(far_second);
    *two.0.lock().unwrap() = Some(far_first.clone());
    // Each level needs a worker of its own. More levels than workers would wait for ever; there are 64 each.
    assert_eq!(far_first.ping(20), 20);
    *one.0.lock().unwrap() = None;
    *two.0.lock().unwrap() = None;
}

#[test]
fn calls_out_of_calls_have_workers_of_their_own() {
    let object = shop();
    let (here, there) = pair();
    let (one, two) = (Arc::new(Back(Mutex::new(None))), Back(Mutex::new(None)));
    drop((object, two));
    struct Via(Arc<Back>);
    impl Ping for Via {
        fn ping(&self, depth: u32) -> u32 {
            self.0.ping(depth)
        }
    }
    let first = squall_core::shared::<dyn Ping, _>(Via(one.clone()));
    let _export = ExportOptions::new().calls_per_client(1).export_on(first.handle(), here).unwrap();
    let far = Arc::new(import_from::<dyn Ping>(there).unwrap());
    *one.0.lock().unwrap() = Some(far.clone());
    assert_eq!(far.ping(3), 3);
    *one.0.lock().unwrap() = None;
}

/// An object that calls itself through its own import.
#[interface(crate = crate::facade, remote)]
trait Nest: Send + Sync {
    /// Returns the kind of error of the innermost call, and how deep it was.
    fn nest(&self, depth: u32) -> (u32, bool);
}

#[derive(Default)]
struct Nested(OnceLock<squall_core::Owned<dyn Nest>>);

impl Nest for Arc<Nested> {
    fn nest(&self, depth: u32) -> (u32, bool) {
        if depth == 0 {
            return (0, false);
        }
        match self.0.get().expect("connected").try_nest(depth - 1) {
            Ok((levels, is_busy)) => (levels + 1, is_busy),
            Err(error) => (0, error.reason() == transport(Transport::Busy)),
        }
    }
}

#[test]
fn calls_out_of_calls_beyond_their_share_are_refused() {
    let nested = Arc::new(Nested::default());
    let object = squall_core::shared::<dyn Nest, _>(nested.clone());
    let (here, there) = pair();
    let export = ExportOptions::new().calls_per_client(1).export_on(object.handle(), here).unwrap();
    assert!(nested.0.set(import_from::<dyn Nest>(there).unwrap()).is_ok());
    let handle = nested.0.get().unwrap().handle();
    assert_eq!(handle.nest(3), (3, false));
    // Four calls have the four workers. The fifth one would wait for the first.
    assert_eq!(handle.nest(4), (3, true));
    assert_eq!(handle.nest(9), (3, true));
    drop((export, object));
}

#[test]
fn an_error_of_a_third_process_is_not_one_of_the_second() {
    let (third, third_export, second) = exported(&ExportOptions::new());
    struct Via(squall_core::Owned<dyn Shop>);
    #[squall_macros::interface(crate = crate::facade, remote)]
    trait Forward: Send + Sync {
        fn forward(&self) -> Result<u64, CallError>;
    }
    impl Forward for Via {
        fn forward(&self) -> Result<u64, CallError> {
            self.0.try_add(1)
        }
    }
    let object = squall_core::shared::<dyn Forward, _>(Via(second));
    let (here, there) = pair();
    let _export = export_on(object.handle(), here).unwrap();
    let imported = import_from::<dyn Forward>(there).unwrap();
    assert_eq!(imported.forward().unwrap(), 1);
    third_export.deny("add").unwrap();
    assert_eq!(kind(imported.forward()), transport(Transport::Nested), "the method has run in part");
    drop(third);
    drop(third_export);
    assert_eq!(kind(imported.forward()), transport(Transport::Nested));
}

#[test]
fn a_value_that_panics_when_dropped_harms_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("asked for");
        }
    }
    #[squall_macros::interface(crate = crate::facade, remote)]
    trait Arm: Send + Sync {
        fn arm(&self);
    }
    struct Armed;
    impl Arm for Armed {
        fn arm(&self) {
            squall_call::caller().unwrap().value(|| Bomb);
        }
    }
    let object = squall_core::shared::<dyn Arm, _>(Armed);
    for end in [true, false] {
        let (here, there) = pair();
        let export = export_on(object.handle(), here).unwrap();
        let imported = import_from::<dyn Arm>(there).unwrap();
        imported.arm();
        if end {
            drop(export);
        } else {
            drop(imported);
        }
    }
    let (_object, _export, imported) = exported(&ExportOptions::new());
    adds(imported.handle(), 1, 1);
}

#[test]
fn a_call_that_hangs_is_ended_by_its_own_process() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| imported.try_wait());
        until(|| object.waiting() == 1);
        assert!(squall_call::disconnect(imported.handle()));
        assert_eq!(kind(hangs.join().unwrap()), transport(Transport::PeerGone));
        object.open();
    });
    assert!(!squall_call::disconnect(object.handle()));
}

#[test]
fn an_interface_with_another_signature_is_refused_with_both() {
    #[interface(crate = crate::facade, remote)]
    trait Shop: Send + Sync {
        fn add(&self, n: u32) -> u32;
    }
    #[interface(crate = crate::facade, remote)]
    trait Other: Send + Sync {
        fn add(&self, n: u64) -> u64;
    }
    let object = shop();
    for wrong in [0, 1] {
        let (here, there) = pair();
        let _export = export_on(object.handle(), here).unwrap();
        let error = if wrong == 0 {
            import_from::<dyn Shop>(there).map(drop).unwrap_err()
        } else {
            import_from::<dyn Other>(there).map(drop).unwrap_err()
        };
        let text = error.to_string();
        assert!(matches!(error, ImportError::OtherSchema { .. }), "{error}");
        let both = if wrong == 0 { ["`add(u64)->u64`", "`add(u32)->u32`"] } else { ["`Shop`", "`Other`"] };
        assert!(both.iter().all(|part| text.contains(part)), "{text}");
    }
}
