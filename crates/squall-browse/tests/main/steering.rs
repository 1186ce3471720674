//! Control of a program's objects by a client, including failures of the program's own code.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Program, alone};
use squall_adapt::control;
use squall_browse::protocol::RefusalKind;
use squall_browse::{Builder, ClientError};
use squall_core::swap::{Replacement, State, StateFormats};
use squall_core::{Handle, Id, Owned, swappable};

#[squall_macros::interface(crate = squall_core)]
pub(crate) trait Tally: Send + Sync {
    fn add(&self, n: u64);
    fn sum(&self) -> u64;
}

#[derive(Default)]
struct Sum<const KIND: u8>(AtomicU64);

impl<const KIND: u8> Tally for Sum<KIND> {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<const KIND: u8> State for Sum<KIND> {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats.export_part(|this| Ok(this.sum())).import_part(|this, n: u64| {
            this.add(n);
            Ok(())
        });
    }
}

pub(crate) fn tally() -> Owned<dyn Tally> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        control::register::<dyn Tally>("first", |_| Replacement::swappable(Sum::<1>::default()));
        control::register::<dyn Tally>("second", |_| Replacement::swappable(Sum::<2>::default()));
        control::register::<dyn Tally>("mute", |_| Replacement::shared(Sum::<3>::default()));
        control::register::<dyn Tally>("broken", |_| panic!("no room for another tally"));
    });
    swappable(Sum::<1>::default())
}

fn id(object: &Owned<dyn Tally>) -> (Id, String) {
    let id = Handle::id(object.handle());
    (id, id.to_string())
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>, kind: RefusalKind, parts: &[&str]) {
    match result {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.kind, kind, "{refusal}");
            parts.iter().for_each(|part| assert!(refusal.message.contains(part), "{part}: {refusal}"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_is_swapped_under_load_and_no_call_is_lost() {
    const ROUNDS: usize = 50;
    let program = Program::new(Builder::new());
    let object = tally();
    let (_, id) = id(&object);
    let mut client = program.client();
    let registered = client.implementations(&id).expect("an answer");
    assert!(
        ["first", "second"].iter().all(|name| registered.iter().any(|known| known == name)),
        "{registered:?}"
    );
    let stop = AtomicBool::new(false);
    let calls = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                object.handle().add(1);
                calls += 1;
            }
            calls
        });
        // Goes on until a swap was made.
        let (mut round, mut swapped) = (0, 0);
        while round < ROUNDS || swapped == 0 {
            let name = if round % 2 == 0 { "second" } else { "first" };
            match client.swap(&id, name) {
                Ok(swap) => swapped += usize::from(swap.id == id && swap.outcome == "swapped"),
                // With more threads than processors a swap may pass its deadline.
                Err(error) if error.is_refusal() => {}
                Err(error) => panic!("{error}"),
            }
            round += 1;
        }
        stop.store(true, Ordering::Relaxed);
        caller.join().expect("no panic")
    });
    assert_eq!(object.handle().sum(), calls);
    let swaps = client.swaps().expect("an answer");
    assert!(swaps.iter().any(|swap| swap.id == id && swap.interface == "Tally"), "{swaps:?}");
    let detail = client.object(&id).expect("an answer");
    assert_eq!(detail.row.class, "Sum", "without the constant parameter");
    assert!(detail.class_path.contains("::Sum<"), "{}", detail.class_path);
}

#[test]
fn an_implementation_that_cannot_be_is_refused_and_the_object_serves_on() {
    let program = Program::new(Builder::new());
    let object = tally();
    let (_, id) = id(&object);
    object.handle().add(3);
    let mut client = program.client();
    refused(client.swap(&id, "third"), RefusalKind::Refused, &[&id, "third", "second"]);
    refused(client.swap(&id, "broken"), RefusalKind::Panicked, &["no room for another tally"]);
    refused(client.swap(&id, "mute"), RefusalKind::Refused, &[&id]);
    refused(client.swap("9999999.9", "second"), RefusalKind::NoObject, &["9999999.9"]);
    assert_eq!(object.handle().sum(), 3);
    client.swap(&id, "second").expect("what can be is done");
    assert_eq!(object.handle().sum(), 3);
    program.check();
}

#[test]
fn a_plain_object_cannot_be_frozen_or_set() {
    let program = Program::new(Builder::new());
    let object = tally();
    let (_, id) = id(&object);
    let mut client = program.client();
    refused(client.freeze(&id, true), RefusalKind::Refused, &[&id]);
    refused(client.set(&id, "width", "4"), RefusalKind::Refused, &[&id]);
    refused(client.attributes(&id), RefusalKind::Refused, &[&id]);
    let detail = client.object(&id).expect("it is seen all the same");
    assert!(detail.attributes.is_empty() && detail.row.family.is_none() && !detail.row.frozen);
    assert!(client.history(&id).expect("an answer").is_empty());
}

#[test]
fn everything_is_frozen_and_thawed() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    for frozen in [true, false] {
        client.freeze_all(frozen).expect("done");
        assert_eq!(client.hello().expect("an answer").all_frozen, frozen);
        assert_eq!(control::all_frozen(), frozen);
    }
}

#[test]
fn a_change_is_recorded_with_its_author_and_its_outcome() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let object = tally();
    let (_, id) = id(&object);
    let (mut nameless, mut ann) = (program.client(), program.client());
    ann.set_author("ann\n");
    nameless.swap(&id, "second").expect("registered");
    ann.swap(&id, "first").expect("registered");
    ann.set(&id, "width", "4").expect_err("it has no attributes");
    ann.swap(&id, "broken").expect_err("it panics");
    let actions = ann.actions().expect("an answer");
    let of_object: Vec<_> = actions.iter().filter(|action| action.id.as_deref() == Some(&*id)).collect();
    let seen: Vec<_> = of_object.iter().map(|action| (&*action.action, &*action.outcome)).collect();
    assert_eq!(seen[..2], [("swap to second", "done"), ("swap to first", "done")]);
    assert!(seen[2].0 == "set width = 4" && seen[2].1.contains("does not adapt"), "{seen:?}");
    assert_eq!(seen[3], ("swap to broken", "the program panicked"));
    assert_eq!(seen.len(), 4, "what is read is not recorded");
    // The name is only a claim, so the kernel's words follow.
    let (uid, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
    assert!(of_object.iter().all(|action| (action.uid, action.pid) == (Some(uid), Some(pid))));
    let authors: Vec<&str> = of_object.iter().map(|one| one.author.as_deref().expect("known")).collect();
    let process = format!("process {pid}");
    assert!(authors[0].starts_with("user ") && authors[0].ends_with(&process), "{authors:?}");
    assert!(authors[1].starts_with("ann\\n (kernel: user ") && authors[1].contains(&process), "{authors:?}");
    assert_eq!(authors[2..], [authors[1]; 2]);
    let decisions = ann.history(&id).expect("an answer");
    for (decision, author) in decisions.iter().zip(&authors) {
        assert_eq!(decision.author.as_deref(), Some(*author));
        assert_eq!((decision.uid, decision.pid), (Some(uid), Some(pid)));
        assert_eq!(decision.why, format!("requested by {author}"));
    }
    assert_eq!(decisions.len(), 2);
}
