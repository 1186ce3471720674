//! Tests of the forms.

use super::*;

fn filled(form: Form, places: usize, priorities: &[u64]) -> Queue<u64> {
    let queue = Queue::with_places(form, places);
    for (turn, priority) in priorities.iter().enumerate() {
        queue.client(turn % places).put(*priority, *priority).unwrap();
    }
    queue
}

#[test]
fn a_strict_queue_returns_the_first_element_of_all() {
    let queue = filled(Form::Strict, 4, &[5, 3, 9, 1, 4]);
    let got: Vec<u64> = (0..5).map(|place| queue.client(place % 4).get().unwrap().0).collect();
    assert_eq!(got, [1, 3, 4, 5, 9]);
    assert_eq!(queue.client(0).get(), None);
}

#[test]
fn every_form_returns_each_element_once_and_then_is_empty() {
    let count = if cfg!(miri) { 50 } else { 1000 };
    for form in Form::ALL {
        let priorities: Vec<u64> = (0..count).map(|n| n * 7919 % 1009).chain([u64::MAX, u64::MAX]).collect();
        let queue = filled(form, 3, &priorities);
        assert_eq!(queue.len(), priorities.len());
        let mut got: Vec<u64> =
            (0..priorities.len()).map(|turn| queue.client(turn % 3).get().unwrap().0).collect();
        assert_eq!(queue.client(1).get(), None);
        assert!(queue.is_empty() && queue.is_done());
        let mut all = priorities;
        got.sort_unstable();
        all.sort_unstable();
        assert_eq!(got, all, "{form:?}");
    }
}

#[test]
fn a_change_of_form_or_order_keeps_all_elements() {
    let queue = filled(Form::Local, 3, &[5, 3, 9, 1, 4, u64::MAX, 0]);
    for form in [Form::Strict, Form::Relaxed, Form::Local, Form::Relaxed, Form::Strict] {
        queue.set_form(form);
        assert_eq!((queue.form(), queue.len()), (form, 7));
        queue.set_which_priority(WhichPriority::Highest);
        assert_eq!(queue.first_priority(), Some(u64::MAX));
        queue.set_which_priority(WhichPriority::Lowest);
        assert_eq!(queue.first_priority(), Some(0));
    }
    let got: Vec<u64> = std::iter::from_fn(|| queue.client(2).get()).map(|(priority, _)| priority).collect();
    assert_eq!(got, [0, 1, 3, 4, 5, 9, u64::MAX]);
}

#[test]
fn kt_13_after_every_second_get_the_second_best_element_moves_to_the_next_client_of_the_ring() {
    let queue = Queue::with_places(Form::Local, 3);
    (0..3).for_each(|place| _ = queue.client(place));
    for priority in 1..=6 {
        queue.client(0).put(priority, priority).unwrap();
    }
    assert_eq!(queue.client(0).get(), Some((1, 1)));
    assert_eq!(queue.counts().moved, 0);
    assert_eq!(queue.client(0).get(), Some((2, 2)));
    // 3 is the first one now, and 4 the second.
    assert_eq!(queue.counts().moved, 1);
    assert_eq!(queue.client(1).get(), Some((4, 4)));
    assert_eq!(queue.client(0).get(), Some((3, 3)));
    assert_eq!(queue.counts().remote_gets, 0);
}

#[test]
fn x_20_puts_balance_if_the_insertion_attribute_says_so() {
    let queue = Queue::with_places(Form::Local, 2);
    (0..2).for_each(|place| _ = queue.client(place));
    queue.attributes().set_insertion(Insertion::LoadBalance);
    for priority in 0..4 {
        queue.client(0).put(priority, priority).unwrap();
    }
    assert_eq!(queue.client(1).get(), Some((1, 1)));
    assert_eq!(queue.client(1).get(), Some((3, 3)));
    assert_eq!(queue.counts().moved, 2);
}

#[test]
fn kt_12_a_call_has_an_insertion_of_its_own() {
    let queue = Queue::with_places(Form::Local, 2);
    (0..2).for_each(|place| _ = queue.client(place));
    queue.attributes().set_balance_every(1);
    queue.client(0).put(1, 1).unwrap();
    queue.client(0).put_with(Insertion::LoadBalance, 2, 2).unwrap();
    queue.attributes().set_insertion(Insertion::LoadBalance);
    queue.client(0).put_with(Insertion::LocalFragment, 3, 3).unwrap();
    assert_eq!((queue.client(1).get(), queue.counts().moved), (Some((2, 2)), 1));
    assert_eq!((queue.client(0).get(), queue.client(0).get()), (Some((1, 1)), Some((3, 3))));
    assert_eq!(queue.counts().remote_gets, 0);
}

#[test]
fn kt_12_each_topology_has_its_neighbours() {
    let goes_to = |topology, from: usize, count: usize| -> Vec<usize> {
        let queue = Queue::with_places(Form::Local, 6);
        (0..6).for_each(|place| _ = queue.client(place));
        queue.attributes().set_topology(topology);
        queue.attributes().set_insertion(Insertion::LoadBalance);
        queue.attributes().set_balance_every(1);
        let mut found = Vec::new();
        for n in 0..count as u64 {
            queue.client(from).put(n, n).unwrap();
            let at = (0..6).find(|place| !queue.client(*place).is_empty()).unwrap();
            found.push(at);
            assert_eq!(queue.client(at).get(), Some((n, n)));
        }
        found
    };
    assert_eq!(goes_to(Topology::Ring, 5, 2), [0, 0]);
    assert_eq!(goes_to(Topology::Star, 4, 2), [0, 0]);
    assert_eq!(goes_to(Topology::Star, 0, 6), [1, 2, 3, 4, 5, 1]);
    assert_eq!(goes_to(Topology::All, 2, 5), [3, 4, 5, 0, 1]);
    assert_eq!(goes_to(Topology::Tree, 0, 3), [1, 2, 1]);
    assert_eq!(goes_to(Topology::Tree, 2, 3), [0, 5, 0]);
}

#[test]
fn a_closed_queue_rejects_puts_and_gives_the_rest() {
    for form in Form::ALL {
        let queue = filled(form, 2, &[1, 2]);
        queue.close();
        let rejected = queue.client(0).put(3, 30).unwrap_err();
        assert_eq!((rejected.priority, rejected.value), (3, 30));
        assert_eq!(rejected.to_string(), "the queue is closed; it rejected an element of priority 3");
        assert!(queue.client(0).get_wait().is_ok() && queue.client(1).get_wait().is_ok());
        assert_eq!(queue.client(0).get_wait(), Err(Closed));
        assert_eq!(queue.client(0).take_wait().unwrap_err(), End::Closed);
    }
}

#[test]
fn work_is_done_once_each_taken_element_is_dropped() {
    for form in Form::ALL {
        let queue = filled(form, 2, &[1]);
        let taken = queue.client(1).take().unwrap();
        assert!(queue.is_empty() && !queue.is_done());
        queue.client(0).put(taken.priority() + 1, 2).unwrap();
        drop(taken);
        assert!(!queue.is_done());
        assert_eq!(*queue.client(0).take_wait().unwrap(), 2);
        assert_eq!(queue.client(0).take_wait().unwrap_err(), End::Done);
    }
}

#[test]
fn a_panic_of_an_elements_drop_finishes_it() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    let queue = Queue::with_places(Form::Local, 1);
    assert!(queue.client(0).put(1, Bomb).is_ok());
    let taken = queue.client(0).take().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(taken)));
    assert!(panicked.is_err() && queue.is_done());
}

/// Steps clients in turns: each gets an element and puts one of a new random priority. Returns the mean
/// number of elements that were before the returned one.
fn mean_rank(clients: usize, stickiness: usize) -> f64 {
    const SIZE: u64 = 4000;
    const STEPS: usize = 40_000;
    let queue = Queue::with_places(Form::Relaxed, clients);
    queue.attributes().set_stickiness(stickiness);
    let mut random = 1_u64;
    let mut present = std::collections::BTreeMap::new();
    let mut put = |client: usize, ranks: &mut std::collections::BTreeMap<u64, ()>| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        ranks.insert(random, ());
        queue.client(client).put(random, ()).unwrap();
    };
    (0..SIZE as usize).for_each(|n| put(n % clients, &mut present));
    let mut before = 0;
    for step in 0..STEPS {
        let client = step % clients;
        let (priority, ()) = queue.client(client).get().unwrap();
        before += present.range(..priority).count();
        present.remove(&priority);
        put(client, &mut present);
    }
    before as f64 / STEPS as f64
}

#[test]
#[cfg_attr(miri, ignore = "takes too many steps")]
fn the_relaxed_form_returns_one_of_the_first_elements() {
    for clients in &[1, 2, 8, 16] {
        let mean = mean_rank(*clients, 8);
        assert!(
            mean <= 2.0 * *clients as f64,
            "{clients} clients: {mean} elements were before the returned one"
        );
    }
}

#[test]
fn kt_13_a_member_is_a_neighbour_once_it_puts_gets_or_finishes() {
    for form in Form::ALL {
        let queue = StdArc::new(Queue::with_places(form, 8));
        let members: Vec<Member<u64>> = (0..8).map(|place| queue.member(place)).collect();
        for member in &members {
            let client = member.client();
            assert!(queue.is_empty() && queue.is_done() && client.is_empty());
            assert_eq!((queue.first_priority(), queue.counts()), (None, Counts::default()));
        }
        assert_eq!(queue.joined(), 0, "{form:?}");
        members[5].client().put(1, 1).unwrap();
        assert_eq!(members[2].client().take_raw(), Some((1, 1)));
        assert!(!queue.is_done());
        members[3].client().finish(1);
        assert!(queue.is_done());
        assert_eq!((members[4].client().get(), queue.counts().dry), (None, 1));
        let order: Vec<usize> = queue.joined_places().map(|place| place.index).collect();
        assert_eq!(order, if form == Form::Strict { vec![3] } else { vec![5, 2, 3, 4] });
        // The client of a place that a member has made joins, too.
        queue.client(7);
        assert_eq!(queue.joined_places().last().map(|place| place.index), Some(7));
        members[6].client().put(2, 2).unwrap();
        assert_eq!(queue.client(0).get(), Some((2, 2)));
    }
}

#[test]
fn elements_without_a_place_are_found_in_each_form() {
    let queue = StdArc::new(Queue::with_places(Form::Strict, 4));
    let members: Vec<Member<u64>> = (0..4).map(|place| queue.member(place)).collect();
    (0..100).for_each(|n| members[0].client().put(n, n).unwrap());
    for (form, turn) in
        [Form::Relaxed, Form::Local, Form::Strict, Form::Local, Form::Relaxed].into_iter().zip(1..)
    {
        queue.set_form(form);
        for member in members.iter().cycle().take(10) {
            assert!(member.client().get().is_some());
        }
        assert_eq!(queue.len(), 100 - 10 * turn);
    }
}
