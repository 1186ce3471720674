//! Searches over queues that are objects, on a virtual topology with a VP for each searcher.

use std::sync::{Mutex, MutexGuard, Once};

use squall::Machine;
use squall_tsp::{Costs, Form, Instance, Queued, Stepped, modelled, shipped, stepped, stepped_adaptive};

/// Searchers of KTK's table 3.
const SEARCHERS: usize = 15;
/// Searches over one adaptive queue.
const SEARCHES: usize = 20;

/// Locks out the other tests, since a search over an adaptive queue steps all policies of the process.
fn alone() -> MutexGuard<'static, ()> {
    static MADE: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    MADE.call_once(|| _ = Machine::set_virtual("cores:16".parse().expect("a topology")).expect("not in use"));
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn instance(name: &str) -> Instance {
    shipped::find(name).expect("it is shipped").instance()
}

fn step(instance: &Instance, form: Form, searchers: usize) -> Stepped {
    stepped(instance, &Queued::new(form, searchers), searchers).expect("an optimum")
}

/// The counts of a search.
fn counts(found: &Stepped) -> [u64; 6] {
    let (work, frontier) = (found.work, found.frontier);
    [work.expanded, work.pruned, work.waits, frontier.gets, frontier.moved, found.rounds]
}

#[test]
fn ex_q3_the_ring_as_an_object_with_named_attributes_does_the_work_of_the_ring() {
    let _alone = alone();
    for it in shipped::ALL {
        let instance = it.instance();
        for searchers in [1, 2, SEARCHERS] {
            let [ring, object] = [Form::Ring, Form::Object].map(|form| step(&instance, form, searchers));
            assert_eq!(Some(object.tour.length()), instance.stated_optimum(), "{}", it.file);
            assert_eq!(counts(&object), counts(&ring), "{}, {searchers}", it.file);
            assert_eq!(object.frontier.remote_gets, ring.frontier.remote_gets, "{}", it.file);
        }
        let time = |form| {
            let frontier = Queued::new(form, SEARCHERS);
            modelled(&instance, &frontier, SEARCHERS, Costs::KSR1).expect("an optimum").time
        };
        assert_eq!(time(Form::Object), time(Form::Ring), "{}", it.file);
    }
}

/// Means of the branched subproblems, relative to the form with the fewest.
fn adapted(name: &str) -> f64 {
    let instance = instance(name);
    let expanded = |form| step(&instance, form, SEARCHERS).work.expanded;
    let best = Form::modelled(SEARCHERS).map(expanded).min().expect("there are forms");
    let adapted = stepped_adaptive(&instance, SEARCHERS, SEARCHES).expect("an optimum");
    assert_eq!(adapted.found.len(), SEARCHES);
    for found in &adapted.found {
        assert_eq!(Some(found.tour.length()), instance.stated_optimum(), "{name}");
    }
    assert!(adapted.changes[0].contains("strict to relaxed: swapped"), "{name}: {:?}", adapted.changes);
    adapted.mean(|found| found.work.expanded) / best as f64
}

#[test]
fn ex_q3_the_adaptive_queue_branches_at_most_a_twentieth_more_than_the_best_form() {
    let _alone = alone();
    for name in ["plane16", "wind16"] {
        let more = adapted(name);
        assert!((1.0..=1.05).contains(&more), "{name}: {more}");
    }
}

/// A search of about 1,000 subproblems is short for 15 searchers: a relaxed order costs it more.
#[test]
fn ex_q3_in_short_searches_the_adaptive_queue_branches_up_to_a_sixth_more() {
    let _alone = alone();
    for name in ["burma14", "gr17"] {
        let more = adapted(name);
        assert!((1.0..=1.17).contains(&more), "{name}: {more}");
    }
}

#[test]
fn counts_over_the_adaptive_queue_are_equal_in_each_run() {
    let _alone = alone();
    let instance = instance("burma14");
    let run = || {
        let adapted = stepped_adaptive(&instance, SEARCHERS, SEARCHES).expect("an optimum");
        adapted.found.iter().map(counts).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
