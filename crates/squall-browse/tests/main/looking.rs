//! A well-behaved client's view of a program. Inspection changes no object.

use crate::common::{Hits, Program, hits};
use squall_browse::protocol::{ListQuery, RefusalKind, Sort};
use squall_browse::{Builder, ClientError};
use squall_core::swap::arbitrate_method;
use squall_core::{Handle, info_of};

#[test]
fn an_object_is_seen_as_inspection_sees_it() {
    let program = Program::new(Builder::new());
    program.object.handle().add(5);
    let info = info_of(Handle::id(program.object.handle())).expect("it lives");
    let detail = program.client().object(&program.id()).expect("an answer");
    assert_eq!(detail.row.interface, info.interface);
    assert_eq!(detail.row.class, "Shared");
    assert_eq!(detail.class_path, info.class);
    assert_eq!((detail.row.bytes, detail.value_bytes), (info.bytes, info.value_bytes));
    assert_eq!((detail.row.misses, detail.row.reps), (info.misses, info.reps.len()));
    assert_eq!(detail.translations, info.translations.to_string());
    assert_eq!(detail.made_at, info.made_at.to_string());
    assert_eq!((detail.row.state.as_str(), detail.kind.as_str()), ("live", "shared"));
    assert_eq!(detail.rep_list.len(), 1);
}

#[test]
fn a_part_shows_its_whole_and_the_whole_its_parts() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let whole = hits().named("login service");
    let whole_id = Handle::id(whole.handle()).to_string();
    let parts = ["cache", "errors"].map(|name| hits().named(name).part_of(whole.handle()));
    let part_id = Handle::id(parts[0].handle()).to_string();
    let listing = client.list(&ListQuery { name: Some("cache".to_owned()), ..ListQuery::default() });
    let row = listing.expect("an answer").objects.into_iter().find(|row| row.id == part_id).expect("listed");
    assert_eq!(row.part_of.as_ref(), Some(&whole_id));
    let part = client.object(&part_id).expect("an answer");
    let shown = part.whole.expect("it lives");
    assert_eq!((shown.id, shown.name.as_deref()), (whole_id.clone(), Some("login service")));
    assert_eq!((part.parts_count, part.parts.len()), (0, 0));
    let detail = client.object(&whole_id).expect("an answer");
    let names: Vec<_> = detail.parts.iter().map(|part| part.name.as_deref().expect("named")).collect();
    assert_eq!(detail.parts_count, 2);
    assert!(names.contains(&"cache") && names.contains(&"errors"), "{names:?}");
    assert_eq!((detail.whole, detail.row.part_of), (None, None));
    drop(whole);
    let part = client.object(&part_id).expect("an answer");
    assert_eq!((part.whole, part.row.part_of), (None, None));
}

#[test]
fn an_arbitrated_object_shows_its_mediator() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let object = hits();
    let id = Handle::id(object.handle()).to_string();
    assert_eq!(client.object(&id).expect("an answer").row.mediator, None);
    let arbiter = arbitrate_method(object.handle(), "add", |_| {}).expect("it lives");
    let row = client.object(&id).expect("an answer").row;
    let mediator = row.mediator.expect("it is arbitrated");
    assert_eq!((&*mediator.phase, &*mediator.target), ("arbitrate", "Shared"));
    assert_eq!((mediator.replacement, mediator.method.as_deref()), (None, Some("add")));
    arbiter.detach();
    assert_eq!(client.object(&id).expect("an answer").row.mediator, None);
}

#[test]
fn looking_makes_no_call_miss() {
    let program = Program::new(Builder::new());
    let id = program.id();
    let mut client = program.client();
    // Called after each look: a call meets an entry that a look took away.
    let call = |look: &str| {
        program.object.handle().add(1);
        let info = info_of(Handle::id(program.object.handle())).expect("it lives");
        // The thread may move to another VP, which then misses once.
        assert_eq!(info.misses, info.translations.len() as u64, "after {look}");
        assert_eq!(info.state, squall_core::ObjectState::Live, "after {look}");
    };
    call("nothing");
    for _ in 0..5 {
        client.hello().expect("an answer");
        call("hello");
        client.list(&ListQuery::default()).expect("an answer");
        call("a list");
        client.list(&ListQuery { sort: Sort::Contended, ..ListQuery::default() }).expect("an answer");
        call("a sorted list");
        client.changes().expect("an answer");
        call("changes");
        client.object(&id).expect("an answer");
        call("details");
        client.history(&id).expect("an answer");
        client.decisions().expect("an answer");
        client.actions().expect("an answer");
        client.swaps().expect("an answer");
        call("logs");
        client.implementations(&id).expect("an answer");
        client.machine().expect("an answer");
        client.memory().expect("an answer");
        call("implementations, topology and memory");
    }
}

#[test]
fn a_row_is_sent_again_when_it_changed() {
    let program = Program::new(Builder::new());
    let (mut client, mut other) = (program.client(), program.client());
    // Other tests of this process have objects, too.
    let scan = |client: &mut squall_browse::Client| {
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        loop {
            let changes = client.changes().expect("an answer");
            rows.extend(changes.objects.into_iter().map(|row| row.id));
            gone.extend(changes.gone);
            if changes.complete {
                return (rows, gone);
            }
        }
    };
    let object = hits();
    let id = Handle::id(object.handle()).to_string();
    let (rows, gone) = scan(&mut client);
    assert!(rows.contains(&id) && rows.contains(&program.id()) && !gone.contains(&id));
    assert!(!scan(&mut client).0.contains(&id), "it did not change");
    object.handle().add(1);
    assert!(scan(&mut client).0.contains(&id), "the first call misses");
    assert!(scan(&mut other).0.contains(&id), "each connection has its own rows");
    drop(object);
    let (rows, gone) = scan(&mut client);
    assert!(!rows.contains(&id) && gone.contains(&id), "{gone:?}");
    assert!(!scan(&mut client).1.contains(&id), "this is said once");
}

#[test]
fn a_program_says_who_it_is() {
    let program = Program::new(Builder::new());
    let (first, second) =
        (program.client().hello().expect("an answer"), program.client().hello().expect("an answer"));
    assert!(first.is_same_program(&second) && first.instance.is_some());
    assert_eq!(first.operations, squall_browse::protocol::OPERATIONS);
}

#[test]
fn lists_are_cut_sorted_and_continued() {
    let program = Program::new(Builder::new());
    let crowd: Vec<_> = (0..25).map(|_| hits()).collect();
    crowd[7].handle().add(1);
    let mut client = program.client();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let query = ListQuery { limit: Some(10), after: after.clone(), ..ListQuery::default() };
        let listing = client.list(&query).expect("an answer");
        assert!(listing.objects.len() <= 10);
        assert!(listing.total >= listing.objects.len());
        let Some(last) = listing.objects.last() else { break };
        after = Some(last.id.clone());
        seen.extend(listing.objects.into_iter().map(|object| object.id));
    }
    for object in &crowd {
        let id = Handle::id(object.handle()).to_string();
        assert_eq!(seen.iter().filter(|seen| **seen == id).count(), 1, "{id} is listed once");
    }
    for sort in [Sort::Bytes, Sort::Misses, Sort::Reps] {
        let listing = client.list(&ListQuery { sort, ..ListQuery::default() }).expect("an answer");
        let amounts = listing.objects.iter().map(|object| match sort {
            Sort::Bytes => object.bytes as u64,
            Sort::Misses => object.misses,
            _ => object.reps as u64,
        });
        assert!(amounts.is_sorted_by(|one, next| one >= next), "{sort:?}");
    }
    let none = ListQuery { interface: Some("Nothing of this name".into()), ..ListQuery::default() };
    assert_eq!(client.list(&none).expect("an answer").total, 0);
}

#[test]
fn an_object_that_is_gone_is_named_in_the_error() {
    let program = Program::new(Builder::new());
    let gone = hits();
    let id = Handle::id(gone.handle()).to_string();
    let mut client = program.client();
    client.object(&id).expect("it lives");
    drop(gone);
    match client.object(&id) {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::NoObject);
            assert!(refusal.message.contains(&id), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    assert!(client.hello().is_ok(), "a refusal leaves the connection as it was");
}

#[test]
fn calls_are_counted_by_method_and_vp() {
    let program = Program::new(Builder::new());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let calls = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                program.object.handle().add(1);
            }
        });
        let mut client = program.client();
        let calls = loop {
            let calls = client.sample(&program.id(), 20).expect("nobody else arbitrates it");
            if !calls.by_method.is_empty() {
                break calls;
            }
        };
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        calls
    });
    assert_eq!(calls.by_method[0].0, "add");
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.sum::<u64>();
    let by_method = sum(&mut calls.by_method.iter().map(|(_, count)| *count));
    assert_eq!(by_method, sum(&mut calls.by_vp.iter().map(|(_, count)| *count)));
    assert!(calls.per_s() > 0.0);
}

#[test]
fn the_topology_has_every_vp_at_every_level() {
    let machine = Program::new(Builder::new()).client().machine().expect("an answer");
    let names: Vec<&str> = machine.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["cpu", "core", "cache", "node", "machine"]);
    for level in &machine.levels {
        let mut vps: Vec<usize> = level.clusters.iter().flatten().copied().collect();
        vps.sort_unstable();
        assert_eq!(vps.len(), squall_machine::machine().vps().len(), "{}", level.name);
        assert!(machine.online.iter().all(|vp| vps.contains(vp)), "{}", level.name);
    }
}

#[test]
fn the_end_of_a_program_is_seen_without_a_request() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    assert!(!client.has_ended());
    client.hello().expect("the connection is still usable");
    drop(program);
    while !client.has_ended() {}
    assert!(matches!(client.hello(), Err(ClientError::Gone)));
}
