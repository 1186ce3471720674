//! Random sequences of a queue's operations, compared with a sorted list.

use proptest::prelude::*;
use squall_parts::queue::{Form, Insertion, Queue, Taken, Topology, WaitError, WhichPriority};
use std::time::Duration;

const PLACES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Put(usize, u64),
    Get(usize),
    GetFor(usize),
    Take(usize),
    TakeWait(usize),
    DropTaken(usize),
    TakeRaw(usize),
    Finish(usize, usize),
    SetForm(usize),
    SetWhich(usize),
    SetTopology(usize),
    SetInsertion(usize),
    SetBalance(usize),
    SetStickiness(usize),
    Drain,
    Close,
}

fn priorities() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()]
}

fn numbers() -> impl Strategy<Value = usize> {
    prop_oneof![0..4_usize, Just(usize::MAX)]
}

fn ops() -> impl Strategy<Value = Op> {
    let at = || 0..PLACES;
    prop_oneof![
        12 => (at(), priorities()).prop_map(|(at, priority)| Op::Put(at, priority)),
        5 => at().prop_map(Op::Get),
        1 => at().prop_map(Op::GetFor),
        2 => at().prop_map(Op::Take),
        1 => at().prop_map(Op::TakeWait),
        2 => (0..8_usize).prop_map(Op::DropTaken),
        1 => at().prop_map(Op::TakeRaw),
        1 => (at(), 0..3_usize).prop_map(|(at, count)| Op::Finish(at, count)),
        1 => (0..3_usize).prop_map(Op::SetForm),
        1 => (0..2_usize).prop_map(Op::SetWhich),
        1 => (0..4_usize).prop_map(Op::SetTopology),
        1 => (0..2_usize).prop_map(Op::SetInsertion),
        1 => numbers().prop_map(Op::SetBalance),
        1 => numbers().prop_map(Op::SetStickiness),
        1 => Just(Op::Drain),
    ]
}

/// The elements that a queue should have.
struct Model {
    /// Priority and value, in no order.
    elements: Vec<(u64, usize)>,
    values: usize,
    raw: usize,
    closed: bool,
}

impl Model {
    fn first(&self, which: WhichPriority) -> Option<u64> {
        let priorities = self.elements.iter().map(|(priority, _)| *priority);
        if which == WhichPriority::Lowest { priorities.min() } else { priorities.max() }
    }

    /// Removes an element that a get returned. In the strict form it must be a first one.
    fn got(&mut self, queue: &Queue<usize>, found: Option<(u64, usize)>) {
        let Some(found) = found else {
            assert!(self.elements.is_empty(), "empty, although there are elements");
            return;
        };
        if queue.form() == Form::Strict {
            assert_eq!(Some(found.0), self.first(queue.which_priority()), "not the first element");
        }
        let at = self.elements.iter().position(|it| *it == found).expect("an element came twice");
        self.elements.swap_remove(at);
    }
}

fn apply<'a>(queue: &'a Queue<usize>, model: &mut Model, taken: &mut Vec<Taken<'a, usize>>, op: Op) {
    match op {
        Op::Put(at, priority) => {
            model.values += 1;
            let value = model.values;
            match queue.client(at).put(priority, value) {
                Ok(()) => model.elements.push((priority, value)),
                Err(rejected) => assert_eq!((rejected.priority, rejected.value), (priority, value)),
            }
            assert_eq!(model.elements.last() == Some(&(priority, value)), !model.closed);
        }
        Op::Get(at) => model.got(queue, queue.client(at).get()),
        Op::GetFor(at) => match queue.client(at).get_for(Duration::ZERO) {
            Ok(found) => model.got(queue, Some(found)),
            Err(error) => {
                model.got(queue, None);
                assert_eq!(error == WaitError::Closed, model.closed);
            }
        },
        Op::Take(at) => {
            let found = queue.client(at).take();
            model.got(queue, found.as_ref().map(|taken| (taken.priority(), **taken)));
            taken.extend(found);
        }
        // A wait in this thread must not sleep.
        Op::TakeWait(_) if !model.closed && queue.is_empty() && !queue.is_done() => {}
        Op::TakeWait(at) => {
            let found = queue.client(at).take_wait().ok();
            model.got(queue, found.as_ref().map(|taken| (taken.priority(), **taken)));
            taken.extend(found);
        }
        Op::DropTaken(at) => drop((at < taken.len()).then(|| taken.swap_remove(at))),
        Op::TakeRaw(at) => {
            let found = queue.client(at).take_raw();
            model.raw += usize::from(found.is_some());
            model.got(queue, found);
        }
        Op::Finish(at, count) => {
            let count = count.min(model.raw);
            queue.client(at).finish(count);
            model.raw -= count;
        }
        Op::SetForm(form) => queue.set_form(Form::ALL[form]),
        Op::SetWhich(which) => queue.set_which_priority(WhichPriority::ALL[which]),
        Op::SetTopology(topology) => queue.attributes().set_topology(Topology::ALL[topology]),
        Op::SetInsertion(insertion) => queue.attributes().set_insertion(Insertion::ALL[insertion]),
        Op::SetBalance(calls) => queue.attributes().set_balance_every(calls),
        Op::SetStickiness(calls) => queue.attributes().set_stickiness(calls),
        Op::Drain => {
            let all = queue.drain();
            let is_sorted = match queue.which_priority() {
                WhichPriority::Lowest => all.is_sorted_by_key(|(priority, _)| *priority),
                WhichPriority::Highest => all.iter().rev().is_sorted_by_key(|(priority, _)| *priority),
            };
            assert!(is_sorted && all.len() == model.elements.len());
            all.into_iter().for_each(|it| model.got(queue, Some(it)));
        }
        Op::Close => {
            queue.close();
            model.closed = true;
        }
    }
}

proptest! {
    #[test]
    fn a_queue_is_a_sorted_list(
        form in 0..3_usize,
        before in prop::collection::vec(ops(), 0..120),
        closed in prop::collection::vec(ops(), 0..20),
    ) {
        let queue = Queue::with_places(Form::ALL[form], PLACES);
        let mut model = Model { elements: Vec::new(), values: 0, raw: 0, closed: false };
        let mut taken = Vec::new();
        for op in before.into_iter().chain([Op::Close]).chain(closed) {
            apply(&queue, &mut model, &mut taken, op);
            prop_assert_eq!(queue.len(), model.elements.len());
            prop_assert_eq!(queue.is_empty(), model.elements.is_empty());
            let places_are_empty = (0..PLACES).all(|at| queue.client(at).is_empty());
            prop_assert!(places_are_empty >= model.elements.is_empty());
            prop_assert!(queue.form() == Form::Strict || places_are_empty == model.elements.is_empty());
            let is_done = model.elements.is_empty() && taken.is_empty() && model.raw == 0;
            prop_assert_eq!(queue.is_done(), is_done);
            prop_assert_eq!(queue.first_priority(), model.first(queue.which_priority()));
        }
        prop_assert_eq!(queue.waiting(), 0);
    }

    /// Without balance, a client of the local form gets its own elements in order, and then those of others.
    #[test]
    fn a_client_of_the_local_form_gets_its_own_elements_first(
        own in prop::collection::vec(priorities(), 0..40),
        others in prop::collection::vec(priorities(), 0..40),
    ) {
        let queue = Queue::with_places(Form::Local, PLACES);
        queue.attributes().set_balance_every(0);
        own.iter().for_each(|priority| queue.client(1).put(*priority, 1).unwrap());
        others.iter().for_each(|priority| queue.client(2).put(*priority, 2).unwrap());
        let sorted = |mut list: Vec<u64>, from| {
            list.sort_unstable();
            list.into_iter().map(move |priority| (priority, from))
        };
        let got: Vec<_> = std::iter::from_fn(|| queue.client(1).get()).collect();
        let expected: Vec<_> = sorted(own, 1).chain(sorted(others, 2)).collect();
        prop_assert_eq!(got, expected);
    }
}
