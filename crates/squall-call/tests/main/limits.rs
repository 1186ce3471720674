//! Limits: sizes, deadlines, slots, workers.

use crate::common::{Shop, adds, exported, kind, name, pair, shop, transport, until};
use squall_call::{ExportOptions, ImportError, ImportOptions, export_on, import_from, socket, with_deadline};
use squall_core::{MessageError, Owned, Transport, shared};
use squall_macros::interface;
use std::time::Duration;

#[test]
fn eight_kilobytes_pass_each_way_and_more_is_an_error() {
    let (_object, _export, imported) = exported(&ExportOptions::new());
    // Around the end of the slot, and of its bulk area. A length takes up to two bytes.
    for count in [0, 1, 180, 188, 189, 190, 191, 192, 193, 300, 8_000, 8_192, 8_446] {
        assert_eq!(imported.sum(&vec![1; count]), Ok(count as u64), "{count}");
        assert_eq!(imported.bytes(count), vec![7; count], "{count}");
    }
    let too_large = MessageError::TooLarge;
    assert_eq!(kind(imported.try_sum(&[1; 8_448])), transport(Transport::BadArguments(too_large)));
    assert_eq!(kind(imported.try_bytes(8_448)), transport(Transport::BadResult(too_large)));
    adds(imported.handle(), 1, 1);
}

#[test]
fn arguments_that_outgrow_their_slot_between_two_values_arrive_whole() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    // The key takes two bytes more than it has. With 190 it fills the slot.
    for length in 186..194 {
        let key = "k".repeat(length);
        assert_eq!(imported.put(&key, vec![7; 20]), None, "{length}");
        assert_eq!(object.get(&key), Some(vec![7; 20]), "{length}");
    }
}

/// The deadline passed before the call began, or while it ran.
#[track_caller]
fn is_late(kind: squall_core::CallErrorKind) {
    assert!([transport(Transport::Busy), transport(Transport::Deadline)].contains(&kind), "{kind:?}");
}

#[test]
fn a_call_that_did_not_begin_in_time_never_runs() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(1));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| imported.wait());
        until(|| object.waiting() == 1);
        // The only worker is in use.
        for _ in 0..3 {
            let ended = with_deadline(Duration::from_millis(2), || imported.try_add(1));
            assert_eq!(kind(ended), transport(Transport::Busy));
        }
        object.open();
        first.join().unwrap();
    });
    adds(imported.handle(), 1, 1);
}

#[test]
fn a_worker_that_waits_leaves_for_a_slot_without_one() {
    let options = ExportOptions::new().calls_per_client(1).idle(Duration::from_secs(60));
    let (object, _export, imported) = exported(&options);
    let begun = std::time::Instant::now();
    for n in 1..=20 {
        // Two calls at a time take two slots, and share the worker.
        std::thread::scope(|scope| {
            let first = scope.spawn(|| imported.add(1));
            imported.add(1);
            first.join().unwrap();
        });
        adds(object.handle(), 0, 2 * n);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "a slot waited for an idle worker");
}

#[test]
fn a_caller_without_a_slot_gets_one_that_was_given_up_meanwhile() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(1_000));
    let slots = 16 * squall_machine::machine().vp_limit();
    std::thread::scope(|scope| {
        let late: Vec<_> = (0..slots)
            .map(|_| scope.spawn(|| with_deadline(Duration::from_millis(100), || imported.try_wait())))
            .collect();
        let waits = scope.spawn(|| imported.add(1));
        late.into_iter().for_each(|thread| is_late(kind(thread.join().unwrap())));
        object.open();
        assert_eq!(waits.join().unwrap(), 1);
    });
}

#[test]
fn a_call_ends_at_its_deadline_and_its_slot_is_used_again() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    for _ in 0..3 {
        let ended = with_deadline(Duration::from_millis(1), || imported.try_wait());
        is_late(kind(ended));
    }
    // The methods still run.
    object.open();
    // More calls than slots: those that were given up come back.
    for n in 1..=200 {
        adds(imported.handle(), 1, n);
    }
    let nested =
        with_deadline(Duration::ZERO, || with_deadline(Duration::from_secs(60), || imported.try_wait()));
    assert_eq!(kind(nested), transport(Transport::Busy), "a nested limit only shortens");
}

#[test]
fn a_call_that_was_given_up_keeps_its_slot_while_its_method_runs() {
    let (object, _export, imported) = exported(&ExportOptions::new());
    // A call that ends as busy has not begun.
    let given_up = || with_deadline(Duration::from_millis(1), || imported.try_wait());
    while kind(given_up()) != transport(Transport::Deadline) {}
    adds(imported.handle(), 1, 1);
    object.open();
}

#[test]
fn an_import_with_a_call_that_was_given_up_ends_with_its_server() {
    let name = name("given-up");
    let object = shop();
    let export = squall_call::export(object.handle(), &name).unwrap();
    let imported = squall_call::import::<dyn Shop>(&name).unwrap();
    let given_up = || with_deadline(Duration::from_millis(1), || imported.try_wait());
    while kind(given_up()) != transport(Transport::Deadline) {}
    drop((export, imported));
    until(|| squall_call::imports().iter().all(|import| import.name != name));
    object.open();
}

#[test]
fn workers_that_have_left_count_no_more() {
    let name = name("left");
    let object = shop();
    // An import is refused until the workers of earlier ones have left.
    let _export = ExportOptions::new().clients_per_user(4).export(object.handle(), &name).unwrap();
    // The count of a user's workers stays while a connection of that user does.
    let _stays = squall_call::import::<dyn Shop>(&name).unwrap();
    // One user may have at most 448 of 1,024 workers.
    for n in 1..=520 {
        let mut import = squall_call::import::<dyn Shop>(&name);
        while matches!(import, Err(ImportError::Refused(_))) {
            import = squall_call::import::<dyn Shop>(&name);
        }
        adds(import.unwrap().handle(), 1, n);
    }
}

#[test]
fn more_calls_than_slots_wait_for_their_turn() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(1_000));
    let slots = 16 * squall_machine::machine().vp_limit();
    let callers = slots + 8;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(|| imported.wait())).collect();
        until(|| object.waiting() as usize == slots);
        object.open();
        let mut places: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        places.sort_unstable();
        assert_eq!(places, (0..callers as u32).collect::<Vec<_>>());
    });
}

/// An object with a method that calls another object.
#[interface(crate = crate::facade, remote)]
trait Via: Send + Sync {
    /// Returns whether the inner call was refused because all were busy.
    fn is_refused(&self) -> bool;
}

impl Via for Owned<dyn Shop> {
    fn is_refused(&self) -> bool {
        self.try_add(1).is_err_and(|error| error.reason() == transport(Transport::Busy))
    }
}

#[test]
fn a_call_out_of_a_call_never_waits_for_a_slot() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(1_000));
    let handle = imported.handle();
    let via = shared::<dyn Via, _>(imported);
    let (here, there) = pair();
    let _via_export = export_on(via.handle(), here).unwrap();
    let via = import_from::<dyn Via>(there).unwrap();
    assert!(!via.is_refused());
    let slots = 16 * squall_machine::machine().vp_limit();
    std::thread::scope(|scope| {
        for _ in 0..slots {
            scope.spawn(move || handle.wait());
        }
        until(|| object.waiting() as usize == slots);
        // The calls that have the slots may wait for this one.
        assert!(via.is_refused());
        object.open();
    });
    until(|| !via.is_refused());
}

#[test]
fn a_call_finds_a_slot_while_others_end_at_their_deadline() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(1_000));
    let slots = 16 * squall_machine::machine().vp_limit();
    for _ in 0..slots {
        is_late(kind(with_deadline(Duration::from_millis(1), || imported.try_wait())));
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| imported.add(1));
        // In time or not, as it comes.
        let _ = with_deadline(Duration::from_millis(1), || imported.try_add(0));
        object.open();
        assert_eq!(waits.join().unwrap(), 1);
    });
}

#[test]
fn a_client_has_no_more_workers_than_allowed_and_every_call_is_served() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(2));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(|| imported.wait())).collect();
        until(|| object.waiting() == 2);
        object.open();
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() < 5));
    });
    assert_eq!(object.waiting(), 5);
}

#[test]
fn a_hoarding_client_leaves_workers_for_another() {
    let (object, _export, imported) = exported(&ExportOptions::new().calls_per_client(3));
    let (_other_object, _other_export, other) = exported(&ExportOptions::new());
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| imported.wait());
        }
        until(|| object.waiting() == 3);
        for n in 1..50 {
            adds(other.handle(), 1, n);
        }
        object.open();
    });
}

#[test]
fn an_import_ends_at_its_limit_or_at_its_deadline() {
    // A server that never answers. Connections wait in its backlog.
    let name = name("silent");
    let _silent = socket::listen(&name).unwrap();
    let timed_out = |import: &dyn Fn() -> Result<(), ImportError>| {
        let error = import().unwrap_err();
        assert!(matches!(error, ImportError::TimedOut), "{error}");
    };
    let short = ImportOptions::new().limit(Duration::from_millis(1));
    timed_out(&|| short.import::<dyn Shop>(&name).map(drop));
    let long = ImportOptions::new().limit(Duration::MAX);
    timed_out(&|| with_deadline(Duration::from_millis(1), || long.import::<dyn Shop>(&name).map(drop)));
    timed_out(&|| with_deadline(Duration::ZERO, || long.import::<dyn Shop>(&name).map(drop)));
    // The process at the other end has not exported yet.
    let (_here, there) = pair();
    let there = || there.try_clone().unwrap();
    timed_out(&|| short.import_from::<dyn Shop>(there()).map(drop));
    timed_out(&|| with_deadline(Duration::ZERO, || long.import_from::<dyn Shop>(there()).map(drop)));
}
