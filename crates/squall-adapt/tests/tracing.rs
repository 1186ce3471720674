//! With the feature `tracing`, decisions are reported as events.
#![cfg(all(feature = "tracing", not(miri)))]

mod common;

use common::Fields;
use squall_adapt::control;
use squall_adapt::family::{self, Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::{Replacement, State, StateFormats};
use squall_core::{CallError, Handle, Owned, swappable};
use squall_macros::interface;
use std::sync::Mutex;

#[interface(crate = squall_core)]
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

struct Nothings;
static NOTHINGS: Nothings = Nothings;
static FORMS: [Form; 2] = [Form::of::<Small>("small"), Form::of::<Large>("large")];

impl Family for Nothings {
    type Interface = dyn Nothing;
    fn name(&self) -> &'static str {
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

/// The fields of each event of the engine.
static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_decision_is_an_event_with_its_reason() {
    let wants = |metadata: &tracing::Metadata<'_>| metadata.target() == "squall::adapt";
    let keeper = Fields { wants, take: |fields| EVENTS.lock().unwrap().push(fields) };
    tracing::subscriber::set_global_default(keeper).unwrap();
    family::register(&NOTHINGS);
    let object: Owned<dyn Nothing> = swappable(Small).named("GET /login\n");
    let id = Handle::id(object.handle());
    control::swap(id, "large").unwrap();
    let events = EVENTS.lock().unwrap().clone();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(!events[0].contains("author="), "the program has no name");
    for part in [
        &format!("id={id};"),
        "name=\"GET /login\\\\n\";",
        "family=\"nothing\";",
        "from=\"small\";",
        "to=\"large\";",
        "verdict=swapped by hand;",
        "why=\"requested by the program\";",
        "took_us=",
        "pause_us=",
    ] {
        assert!(events[0].contains(part), "no {part} in {}", events[0]);
    }
    control::swap_by(id, "small", &control::Author::new("ann")).unwrap();
    let event = EVENTS.lock().unwrap().pop().unwrap();
    assert!(event.contains("author=\"ann\";") && event.contains("why=\"requested by ann\";"), "{event}");
}
