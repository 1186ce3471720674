//! Searches against the dynamic program, over right frontiers and wrong ones.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_history::rng::Rng;

use super::*;
use crate::exact::held_karp;
use crate::random::random;
use crate::shipped;
use crate::{Form, FrontierCounts, Lock, Locked, Queued};

/// A search with some number of searchers.
type Search = fn(&Instance, &dyn Frontier, usize) -> Result<Arc<Tour>, SearchError>;

/// All searches.
const SEARCHES: [Search; 2] = [
    |instance, frontier, searchers| stepped(instance, frontier, searchers).map(|it| it.tour),
    |instance, frontier, searchers| parallel(instance, frontier, searchers, &|_| {}).map(|it| it.tour),
];

#[test]
fn random_instances_have_the_optimum_of_the_dynamic_program() {
    for seed in 0..10 {
        for cities in 4..=10 {
            let is_symmetric = seed % 2 == 0;
            let instance = random(&mut Rng::new(seed, cities as u64), cities, is_symmetric, 60);
            let optimum = held_karp(&instance).expect("few cities").length();
            for searchers in [1, 3] {
                for form in Form::steppable(searchers) {
                    for search in SEARCHES {
                        let tour = search(&instance, &Queued::new(form, searchers), searchers);
                        let length = tour.map(|tour| tour.length());
                        assert_eq!(
                            length,
                            Ok(optimum),
                            "seed {seed}, {cities} cities, {form:?}, {searchers}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn each_shipped_instance_has_its_optimum_in_each_form() {
    for it in shipped::ALL {
        let instance = it.instance();
        for form in Form::steppable(2) {
            for search in SEARCHES {
                let tour = search(&instance, &Queued::new(form, 2), 2);
                let length = tour.map(|tour| tour.length()).ok();
                assert_eq!(length, instance.stated_optimum(), "{}, {form:?}", it.file);
            }
        }
        for lock in Lock::ALL {
            let tour = SEARCHES[1](&instance, &Locked::new(lock), 2);
            let length = tour.map(|tour| tour.length()).ok();
            assert_eq!(length, instance.stated_optimum(), "{}, {lock:?}", it.file);
        }
    }
}

#[test]
fn the_counts_add_up() {
    let instance = shipped::find("plane14").expect("it is shipped").instance();
    for searchers in [1, 2, 5, 16] {
        for form in Form::modelled(searchers) {
            let found = stepped(&instance, &Queued::new(form, searchers), searchers).expect("an optimum");
            assert_eq!(found.frontier.gets, found.work.expanded + found.work.pruned, "{form:?}, {searchers}");
            assert!(found.rounds * searchers as u64 >= found.work.expanded);
            let is_balanced = matches!(form, Form::Ring | Form::Tree | Form::Star | Form::All | Form::Object);
            assert_eq!(found.frontier.moved > 0, is_balanced && searchers > 1, "{form:?}, {searchers}");
        }
    }
}

#[test]
fn one_searcher_works_alike_over_the_queue_and_the_reference() {
    let instance = shipped::find("gr17").expect("it is shipped").instance();
    let needed = |frontier: &dyn Frontier| {
        let found = stepped(&instance, frontier, 1).expect("an optimum");
        assert!(found.frontier.remote_gets.is_none_or(|remote| remote == 0));
        // The best order branches all subproblems below the optimum, and so does each other order.
        found.work.expanded - found.useless
    };
    let reference = needed(&Locked::default());
    for form in Form::steppable(1) {
        assert_eq!(needed(&Queued::new(form, 1)), reference, "{form:?}");
    }
}

/// KTK's table 3: the distributed queue without an order does much useless work, the ring little.
#[test]
fn ex_q3_the_naive_distribution_is_the_worst_and_the_ring_near_the_central_one() {
    for name in ["burma14", "plane16", "wind16", "gr17"] {
        let instance = shipped::find(name).expect("it is shipped").instance();
        let expanded = |form| {
            let found = stepped(&instance, &Queued::new(form, 15), 15).expect("an optimum");
            found.work.expanded as f64
        };
        let central = expanded(Form::Central);
        assert!(expanded(Form::Naive) > 2.0 * central, "{name}");
        assert!(expanded(Form::Ring) < 1.25 * central, "{name}");
        assert!(expanded(Form::Ring) <= expanded(Form::Unbalanced), "{name}");
    }
}

/// A fault of a frontier.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Loses the put with this number.
    Lose(u64),
    /// Keeps a copy of the get with this number, which is returned again.
    Repeat(u64),
    /// Panics in the get with this number.
    Panic(u64),
}

struct Faulty {
    inner: Queued,
    fault: Fault,
    puts: AtomicU64,
    gets: AtomicU64,
    copy: Mutex<Option<Node>>,
}

impl Faulty {
    fn new(fault: Fault, searchers: usize) -> Faulty {
        let inner = Queued::new(Form::Ring, searchers);
        Faulty { inner, fault, puts: AtomicU64::new(0), gets: AtomicU64::new(0), copy: Mutex::new(None) }
    }
}

impl Frontier for Faulty {
    fn put(&self, searcher: usize, node: Node) {
        if self.fault != Fault::Lose(self.puts.fetch_add(1, Ordering::Relaxed)) {
            self.inner.put(searcher, node);
        }
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        let copy = || self.copy.lock().expect("no call panics under the lock");
        let Some(node) = self.inner.get(searcher) else { return copy().take() };
        let number = self.gets.fetch_add(1, Ordering::Relaxed);
        assert!(self.fault != Fault::Panic(number), "a planted panic");
        if self.fault == Fault::Repeat(number) {
            *copy() = Some(node.clone());
        }
        Some(node)
    }

    fn counts(&self) -> FrontierCounts {
        self.inner.counts()
    }
}

#[test]
fn a_lost_subproblem_prevents_a_proof() {
    let instance = shipped::find("plane12").expect("it is shipped").instance();
    for lost in [0, 1, 2, 7, 30] {
        for search in SEARCHES {
            for searchers in [1, 2, 4] {
                let found = search(&instance, &Faulty::new(Fault::Lose(lost), searchers), searchers);
                assert_eq!(found, Err(SearchError::Lost { open: 1 }), "{lost}, {searchers} searchers");
            }
        }
    }
}

#[test]
fn a_repeated_subproblem_prevents_a_proof() {
    let instance = shipped::find("plane10").expect("it is shipped").instance();
    for number in [0, 3, 20] {
        for search in SEARCHES {
            for searchers in [1, 2, 4] {
                let found = search(&instance, &Faulty::new(Fault::Repeat(number), searchers), searchers);
                assert_eq!(found, Err(SearchError::Invented), "{number}, {searchers} searchers");
            }
        }
    }
}

/// Many tours of this problem are almost equal, so its bounds prune little.
const BR17: &str = "NAME : br17\nTYPE : ATSP\nDIMENSION : 17\nEDGE_WEIGHT_TYPE : EXPLICIT\n\
    EDGE_WEIGHT_FORMAT : FULL_MATRIX\nEDGE_WEIGHT_SECTION\n\
    0 3 5 48 48 8 8 5 5 3 3 0 3 5 8 8 5\n\
    3 0 3 48 48 8 8 5 5 0 0 3 0 3 8 8 5\n\
    5 3 0 72 72 48 48 24 24 3 3 5 3 0 48 48 24\n\
    48 48 74 0 0 6 6 12 12 48 48 48 48 74 6 6 12\n\
    48 48 74 0 0 6 6 12 12 48 48 48 48 74 6 6 12\n\
    8 8 50 6 6 0 0 8 8 8 8 8 8 50 0 0 8\n\
    8 8 50 6 6 0 0 8 8 8 8 8 8 50 0 0 8\n\
    5 5 26 12 12 8 8 0 0 5 5 5 5 26 8 8 0\n\
    5 5 26 12 12 8 8 0 0 5 5 5 5 26 8 8 0\n\
    3 0 3 48 48 8 8 5 5 0 0 3 0 3 8 8 5\n\
    3 0 3 48 48 8 8 5 5 0 0 3 0 3 8 8 5\n\
    0 3 5 48 48 8 8 5 5 3 3 0 3 5 8 8 5\n\
    3 0 3 48 48 8 8 5 5 0 0 3 0 3 8 8 5\n\
    5 3 0 72 72 48 48 24 24 3 3 5 3 0 48 48 24\n\
    8 8 50 6 6 0 0 8 8 8 8 8 8 50 0 0 8\n\
    8 8 50 6 6 0 0 8 8 8 8 8 8 50 0 0 8\n\
    5 5 26 12 12 8 8 0 0 5 5 5 5 26 8 8 0\nEOF\n";

#[test]
fn a_search_ends_with_an_error_before_its_memory_is_full() {
    let instance = crate::tsplib::parse("br17", BR17).expect("a right text");
    assert_eq!(held_karp(&instance).expect("few cities").length(), 39);
    let is_full = |found: Result<_, SearchError>| matches!(found, Err(SearchError::TooManyOpen { .. }));
    for search in SEARCHES {
        assert!(is_full(search(&instance, &Locked::default(), 2)));
    }
    let frontier = Queued::new(Form::Ring, 2);
    assert!(is_full(queued(&instance, &frontier, 2, &|_| {}).map(|found| found.tour)));
    let frontier = Queued::new(Form::Ring, 2);
    let found = modelled(&instance, &frontier, 2, Costs::KSR1);
    assert!(matches!(found, Err(SearchError::TooManyOpen { .. })));
}

#[test]
fn a_panic_of_a_searcher_prevents_a_proof_and_ends_the_others() {
    let instance = shipped::find("plane12").expect("it is shipped").instance();
    // A lucky schedule needs few more than forty.
    for number in [0, 1, 5, 10] {
        for searchers in [1, 2, 4] {
            let frontier = Faulty::new(Fault::Panic(number), searchers);
            let found = parallel(&instance, &frontier, searchers, &|_| {});
            assert_eq!(found.map(|it| it.tour), Err(SearchError::Panicked), "{number}, {searchers}");
        }
    }
}
