//! Events of the engine. A program of its own, since the modes are those of the whole process.

use squall_adapt::control::{dry_run_all, freeze_all};
use squall_adapt::decision::{Decision, Held, Verdict, note};
use squall_adapt::engine::{set_thread, start};
use squall_core::Id;
use squall_sys::trace::{Kind, Subject, install, switch};
use std::sync::Mutex;

type Event = (&'static str, Subject, &'static str);

static SEEN: Mutex<Vec<Event>> = Mutex::new(Vec::new());

fn sink(kind: &'static Kind, subject: Subject, [code, _]: [u64; 2]) {
    let event = (kind.name(), subject, kind.code_name(0, code).unwrap_or("?"));
    SEEN.lock().expect("no thread panics holding it").push(event);
}

fn take() -> Vec<Event> {
    std::mem::take(&mut *SEEN.lock().expect("no thread panics holding it"))
}

#[test]
fn kt_18_decisions_and_modes_are_emitted_once() {
    let id = Id::from_parts(17, 3).expect("an id");
    let decide = |verdict| note(Decision::new(id, "counter", "a", "b", verdict, String::new()));
    let modes = |on: bool| {
        (0..2).for_each(|_| freeze_all(on));
        (0..2).for_each(|_| dry_run_all(on));
        (0..2).for_each(|_| set_thread(!on));
    };
    assert!(install(sink));
    start();
    decide(Verdict::DryRun);
    modes(true);
    modes(false);
    assert_eq!(take(), [], "the trace is off");

    switch(true);
    let failed = Verdict::Failed("it was busy".to_owned());
    for verdict in [Verdict::Swapped, Verdict::Held(Held::Memory), failed, Verdict::ByHand] {
        decide(verdict);
    }
    let subject = Subject::id(17, 3);
    let verdicts = ["swapped", "held-memory", "failed", "by-hand"];
    assert_eq!(take(), verdicts.map(|verdict| ("engine.decision", subject, verdict)));
    modes(true);
    modes(false);
    let expected = ["frozen", "dry-run", "off", "thawed", "acting", "running"];
    assert_eq!(take(), expected.map(|mode| ("engine.mode", Subject::NONE, mode)));
}
