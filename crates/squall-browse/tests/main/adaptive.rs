//! Clients of a program with adaptive objects.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Program, alone};
use squall_adapt::control;
use squall_adapt::family::{self, Cost, Family, Form, Load, Reading, Shape};
use squall_browse::protocol::{ACTIONS_MAX, ListQuery, RefusalKind, Sort};
use squall_browse::{Builder, ClientError, THREAD_NAME};
use squall_core::swap::{Replacement, State, StateFormats};
use squall_core::{CallError, Handle, Owned, swappable};

#[squall_macros::interface(crate = squall_core)]
trait Nothing: Send + Sync {
    fn nothing(&self);
}

macro_rules! form {
    ($name:ident) => {
        struct $name;
        impl Nothing for $name {
            fn nothing(&self) {}
        }
        impl State for $name {
            fn formats(formats: &mut StateFormats<'_, $name>) {
                formats.export(|_| Ok(())).import(|_, ()| Ok(()));
            }
        }
    };
}
form!(Small);
form!(Large);

/// A family that counts how often the server's thread asks for its name: once for each status. The thread of
/// the engine asks, too, at any time.
struct Nothings;
static NOTHINGS: Nothings = Nothings;
static FORMS: [Form; 2] = [Form::of::<Small>("small"), Form::of::<Large>("large")];
static NAMED: AtomicUsize = AtomicUsize::new(0);

impl Family for Nothings {
    type Interface = dyn Nothing;
    fn name(&self) -> &'static str {
        if std::thread::current().name() == Some(THREAD_NAME) {
            NAMED.fetch_add(1, Ordering::Relaxed);
        }
        "nothing"
    }
    fn forms(&self) -> &'static [Form] {
        &FORMS
    }
    fn make(&self, shape: Shape, _: Handle<dyn Nothing>) -> Replacement<dyn Nothing> {
        if shape.form == 0 { Replacement::swappable(Small) } else { Replacement::swappable(Large) }
    }
    fn read(&self, _: Handle<dyn Nothing>) -> Result<Reading, CallError> {
        Ok(Reading::default())
    }
    fn arm(&self, _: Handle<dyn Nothing>, _: u32) -> Result<(), CallError> {
        Ok(())
    }
    fn estimate_costs(&self, _: &Load<'_>) -> Vec<Cost> {
        Vec::new()
    }
}

/// Creates an adaptive object. Returns its id, too.
fn nothing() -> (Owned<dyn Nothing>, String) {
    family::register(&NOTHINGS);
    let object: Owned<dyn Nothing> = swappable(Small);
    let id = Handle::id(object.handle()).to_string();
    (object, id)
}

#[test]
fn a_page_of_a_list_costs_the_work_of_its_rows() {
    const OBJECTS: usize = 200;
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let objects: Vec<_> = (0..OBJECTS).map(|_| nothing()).collect();
    // A swap by hand makes the engine keep a record of the object, and a decision.
    for (object, _) in &objects {
        control::swap(Handle::id(object.handle()), "large").expect("a form of the family");
    }
    let (_, first) = &objects[0];
    let mut cost = |query: &ListQuery| {
        NAMED.store(0, Ordering::Relaxed);
        let rows = client.list(query).expect("an answer").objects;
        (NAMED.load(Ordering::Relaxed), rows)
    };
    let page = ListQuery { limit: Some(10), after: Some(first.clone()), ..ListQuery::default() };
    let (names, rows) = cost(&page);
    assert_eq!(rows.len(), 10);
    assert!((10..=20).contains(&names), "the status of {names} objects was made for 10 rows");
    let sorted = ListQuery { limit: Some(10), sort: Sort::Swaps, ..ListQuery::default() };
    let (names, rows) = cost(&sorted);
    assert!(rows.len() == 10 && rows.iter().all(|row| row.swaps >= 1), "{rows:?}");
    assert!((10..=20).contains(&names), "the status of {names} objects was made for 10 rows");
    let last = rows[0].last_decision.as_deref().expect("the swap");
    assert_eq!(last, "small to large: swapped by hand; requested by the program");
}

#[test]
fn a_freeze_of_all_is_told_apart_from_the_objects_own() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    client.set_author("ann");
    let ((_frozen, frozen), (_other, other)) = (nothing(), nothing());
    let seen = |client: &mut squall_browse::Client, id: &str| {
        let detail = client.object(id).expect("an answer");
        (detail.row.frozen, detail.row.frozen_all, detail.frozen_by.map(|freeze| freeze.action))
    };
    client.freeze(&frozen, true).expect("adaptive");
    assert_eq!(seen(&mut client, &frozen), (true, false, Some("freeze".into())));
    assert_eq!(seen(&mut client, &other), (false, false, None));
    client.freeze_all(true).expect("done");
    assert_eq!(seen(&mut client, &frozen), (true, true, Some("freeze".into())));
    assert_eq!(seen(&mut client, &other), (false, true, Some("freeze all objects".into())));
    client.freeze_all(false).expect("done");
    assert_eq!(seen(&mut client, &frozen), (true, false, Some("freeze".into())));
    assert_eq!(seen(&mut client, &other), (false, false, None));
    // Many later changes do not hide who froze the object.
    for _ in 0..ACTIONS_MAX {
        client.set(&other, "margin", "2").expect("an attribute");
    }
    let freezes = |client: &mut squall_browse::Client| {
        let actions = client.actions().expect("an answer");
        actions.into_iter().filter(|action| action.id.as_deref() == Some(&*frozen)).collect::<Vec<_>>()
    };
    let kept = freezes(&mut client);
    assert_eq!(kept.len(), 1);
    assert!(kept[0].action == "freeze" && kept[0].author.as_deref().is_some_and(|it| it.starts_with("ann")));
    assert_eq!(client.object(&frozen).expect("an answer").frozen_by.as_ref(), Some(&kept[0]));
    // An attribute thaws it, too.
    client.set(&frozen, "freeze", "false").expect("an attribute");
    assert_eq!(seen(&mut client, &frozen), (false, false, None));
    assert_eq!(freezes(&mut client).len(), 1, "the thaw is the latest change");
}

#[test]
fn an_attribute_is_unset() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let (_object, id) = nothing();
    let margin = |client: &mut squall_browse::Client| {
        let attributes = client.attributes(&id).expect("adaptive");
        let margin = attributes.into_iter().find(|one| one.name == "margin").expect("an attribute");
        (margin.value, margin.from)
    };
    let before = margin(&mut client);
    assert!(!client.unset(&id, "margin").expect("an attribute"), "it has no values yet");
    client.set(&id, "margin", "2.5").expect("an attribute");
    assert_eq!(margin(&mut client), ("2.5".into(), "instance".into()));
    assert!(client.unset(&id, "margin").expect("an attribute"));
    assert_eq!(margin(&mut client), before);
    assert!(!client.unset(&id, "margin").expect("an attribute"));
    match client.unset(&id, "margins") {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::Refused);
            assert!(
                refusal.message.contains("`margins`") && refusal.message.contains("`margin`"),
                "{refusal}"
            );
        }
        other => panic!("{other:?}"),
    }
    let actions = client.actions().expect("an answer");
    let of_object = actions.iter().filter(|action| action.id.as_deref() == Some(&*id));
    let seen: Vec<_> = of_object.map(|action| (&*action.action, action.outcome == "done")).collect();
    let unset = ("unset margin", true);
    assert_eq!(seen, [unset, ("set margin = 2.5", true), unset, unset, ("unset margins", false)]);
}
