//! Queues. Each thread runs on the VP that a test gives it.

use crate::common::{Crew, Stop, VPS, alone, form, on, virtual_time};
use squall_adapt::control::{self, Verdict};
use squall_adapt::settings;
use squall_core::swap::{Cancel, Replacement, Swap, arbitrate, swap};
use squall_core::{Handle, Owned, info_of};
use squall_objects::queue::{
    self, Form, INSERTION, Insertion, InsertionType, LOCAL, PutError, Queue, QueueExt, RELAXED, Rejected,
    STRICT, Topology, WhichPriority,
};
use squall_policy::attribute::with;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Returns a queue in each form.
pub(crate) fn forms<T: Send + 'static>() -> [Owned<dyn Queue<T>>; 4] {
    on(0, || [queue::strict(), queue::relaxed(), queue::local(), queue::adaptive()])
}

/// Returns a replacement in a form.
pub(crate) fn new<T: Send + 'static>(form: Form) -> Replacement<dyn Queue<T>> {
    match form {
        Form::Strict => queue::new_strict(),
        Form::Relaxed => queue::new_relaxed(),
        Form::Local => queue::new_local(),
    }
}

fn reps<T: Send + 'static>(handle: Handle<dyn Queue<T>>) -> usize {
    info_of(Handle::id(handle)).unwrap().reps.len()
}

#[test]
fn kt_11_every_form_keeps_each_element_once() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        for vp in 0..VPS {
            on(vp, || handle.put(vp.into(), vp)).unwrap();
            on(vp, || handle.put_one(vp.into(), vp)).unwrap();
            on(vp, || handle.put_batch(vec![(vp.into(), vp); 3])).unwrap();
        }
        assert_eq!((handle.len(), handle.is_empty()), (5 * VPS as usize, false));
        assert_eq!(handle.first_priority(), Some(0));
        let mut found = Vec::new();
        for vp in (0..VPS).rev() {
            found.extend(on(vp, || handle.get()));
            found.extend(on(vp, || handle.get_one()));
            found.extend(on(vp, || handle.take()).map(|taken| (taken.priority(), *taken)));
            found.extend(on(vp, || handle.get_batch(1)));
        }
        assert_eq!((found.len(), handle.len()), (4 * VPS as usize, VPS as usize));
        found.extend(on(7, || handle.get_batch(usize::MAX)));
        assert_eq!((on(9, || handle.get()), on(8, || handle.get_batch(1)).len()), (None, 0));
        assert!(on(5, || handle.take()).is_none() && handle.is_empty() && handle.is_done());
        assert!(found.iter().all(|(priority, vp)| *priority == u64::from(*vp)));
        found.sort_unstable();
        assert_eq!(found, (0..VPS).flat_map(|vp| [(vp.into(), vp); 5]).collect::<Vec<_>>());
    }
}

#[test]
fn kt_11_a_strict_queue_returns_the_first_element_of_all_on_each_vp() {
    let _alone = alone();
    for queue in [on(3, queue::strict), on(3, queue::adaptive)] {
        let handle = queue.handle();
        for n in 0..64_u64 {
            on(n as u32 % VPS, || handle.put(n * 37 % 64, n)).unwrap();
        }
        let got: Vec<u64> = (0..64).map(|n| on(n * 7 % VPS, || handle.get()).unwrap().0).collect();
        assert_eq!((got, reps(handle)), ((0..64).collect(), 1));
    }
}

#[test]
fn kt_13_a_local_queue_balances_over_the_ring_of_its_callers() {
    let _alone = alone();
    let queue = queue::local();
    let handle = queue.handle();
    // A VP that only reads is no place, and no element moves to it.
    on(9, || assert_eq!((handle.len(), handle.is_empty(), handle.is_done()), (0, true, true)));
    on(8, || handle.attributes(|attributes| assert_eq!(attributes.topology(), Topology::Ring)));
    // The places join in this order.
    (0..2).for_each(|vp| assert_eq!(on(vp, || handle.get()), None));
    on(7, || assert_eq!(handle.first_priority(), None));
    on(0, || (1..=6).for_each(|n| handle.put(n, n).unwrap()));
    assert_eq!([on(0, || handle.get()), on(0, || handle.get())], [Some((1, 1)), Some((2, 2))]);
    assert_eq!((on(0, || handle.counts().moved), on(1, || handle.get())), (1, Some((4, 4))));
    assert_eq!((on(0, || handle.get()), on(0, || reps(handle))), (Some((3, 3)), 5));
}

#[test]
fn kt_12_a_put_has_an_insertion_of_its_own() {
    let _alone = alone();
    for queue in [queue::strict(), queue::local()] {
        let handle = queue.handle();
        handle.attributes(|attributes| attributes.set_balance_every(1));
        (0..2).for_each(|vp| assert_eq!(on(vp, || handle.get()), None));
        on(0, || {
            let balanced = (&INSERTION, InsertionType::LoadBalance);
            with(handle, balanced, |queue| queue.put(1, 1)).unwrap().unwrap();
            with(handle, balanced, |queue| queue.try_put(2, 2)).unwrap().unwrap();
            with(handle, balanced, |queue| queue.put_batch(vec![(3, 3)])).unwrap().unwrap();
            handle.put(4, 4).unwrap();
        });
        let is_local = on(0, || handle.form()) == Form::Local;
        assert_eq!(on(0, || handle.counts().moved), if is_local { 3 } else { 0 });
        let first = if is_local { 4 } else { 1 };
        assert_eq!(on(0, || handle.get()), Some((first, first)));
    }
}

#[test]
fn kt_12_the_order_of_priorities_is_an_attribute_that_swaps_keep() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        assert_eq!(handle.which_priority(), WhichPriority::Lowest);
        handle.put_batch(vec![(1, 'a'), (3, 'c'), (2, 'b')]).unwrap();
        handle.set_which_priority(WhichPriority::Highest);
        assert_eq!(handle.first_priority(), Some(3));
        swap(handle, queue::new_strict()).unwrap();
        assert_eq!(handle.which_priority(), WhichPriority::Highest);
        assert_eq!(handle.get_batch(3), [(3, 'c'), (2, 'b'), (1, 'a')]);
    }
}

#[test]
fn a_closed_queue_gives_elements_back() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        on(2, || handle.put(1, 10)).unwrap();
        handle.close();
        assert!(on(9, || handle.is_closed()));
        let Rejected { priority, value } = on(0, || handle.put(2, 20)).unwrap_err();
        assert_eq!((priority, value), (2, 20));
        assert_eq!(on(5, || handle.put_batch(vec![(3, 30), (4, 40)])), Err(vec![(3, 30), (4, 40)]));
        let error = on(0, || handle.try_put(5, 50)).unwrap_err();
        assert!(matches!(error, PutError::Closed(_)), "{error:?}");
        assert_eq!(error.to_string(), "the queue is closed; it rejected an element of priority 5");
        assert_eq!(error.into_element(), (5, 50));
        // A swap keeps it closed.
        swap(handle, queue::new_local()).unwrap();
        assert!(on(1, || handle.put(2, 20)).is_err());
        assert_eq!((on(9, || handle.get()), on(9, || handle.get())), (Some((1, 10)), None));
    }
}

/// Swaps an object however long its calls take on a busy machine.
pub(crate) fn swap_under_load<T: Send + 'static>(
    handle: Handle<dyn Queue<T>>,
    new: Replacement<dyn Queue<T>>,
) {
    Swap::new(handle).drain_timeout(Duration::from_secs(300)).run(new).expect("no call waits for ever");
}

#[test]
fn swaps_under_load_keep_every_element() {
    const THREADS: u32 = 4;
    const ELEMENTS: u64 = 64;
    let _alone = alone();
    let queue = queue::strict::<Arc<u64>>();
    let (handle, stop, rounds) = (queue.handle(), AtomicBool::new(false), AtomicU64::new(0));
    handle.put_batch((0..ELEMENTS).map(|n| (n, Arc::new(n))).collect()).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || {
                for round in (thread..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // There are more elements than the threads can hold.
                    let one = on(round * 5 % VPS, || handle.get()).expect("the queue is never empty");
                    let some = on(round * 7 % VPS, || handle.get_batch(3));
                    assert_eq!(some.len(), 3, "the queue is never empty");
                    let taken = on(round * 11 % VPS, || handle.take()).expect("the queue is never empty");
                    assert!(!handle.is_empty() && !handle.is_done());
                    let n = taken.clone();
                    on(round * 3 % VPS, || handle.put(one.0, one.1)).unwrap();
                    on(round * 13 % VPS, || handle.put(*n, n)).unwrap();
                    on(round * 17 % VPS, || drop(taken));
                    on(round % VPS, || handle.put_batch(some)).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        for n in 0..45_usize {
            let form = Form::ALL[(n + 1) % 3];
            on(n as u32 % VPS, || swap_under_load(handle, new(form)));
            assert_eq!(handle.form(), form);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
    });
    assert!(!handle.is_done());
    let left = handle.get_batch(usize::MAX);
    let mut left: Vec<u64> =
        left.iter().map(|(priority, n)| (*priority == **n).then_some(**n).unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, (0..ELEMENTS).collect::<Vec<_>>());
    assert!(handle.is_done());
}

#[test]
fn a_swap_that_fails_changes_no_form() {
    let _alone = alone();
    let queue = queue::strict();
    let handle = queue.handle();
    on(0, || handle.put_batch((0..8).map(|n| (n, n)).collect())).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    Swap::new(handle).cancel_on(&cancel).run(queue::new_local()).expect_err("it was cancelled");
    assert_eq!(handle.form(), Form::Strict);
    let got: Vec<u64> = (0..8).map(|vp| on(vp, || handle.get()).unwrap().0).collect();
    assert_eq!(got, (0..8).collect::<Vec<_>>());
}

/// An element that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_end_of_a_queue_drops_its_elements_and_refuses_calls() {
    let _alone = alone();
    for queue in forms() {
        let (handle, drops) = (queue.handle(), Arc::new(AtomicUsize::new(0)));
        for vp in [0, 5, 31] {
            on(vp, || handle.put(1, Counted(drops.clone()))).unwrap();
        }
        let taken = on(7, || handle.take());
        Owned::destroy(queue).wait().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        drop(taken);
        assert_eq!(drops.load(Ordering::Relaxed), 3);
        assert!(handle.try_get().is_err() && handle.try_take().is_err() && handle.try_len().is_err());
        let error = handle.try_put(7, Counted(drops.clone())).unwrap_err();
        assert!(matches!(error, PutError::Call { .. }), "{error:?}");
        assert_eq!((drops.load(Ordering::Relaxed), error.into_element().0), (3, 7));
        assert_eq!(drops.load(Ordering::Relaxed), 4, "the element that came back");
    }
}

#[test]
fn an_element_is_finished_only_where_it_was_taken() {
    let _alone = alone();
    for form in Form::ALL {
        let queue = queue::strict();
        let handle = queue.handle();
        handle.put(1, "old").unwrap();
        let old = handle.take().unwrap();
        Swap::new(handle).without_state().run(new(form)).unwrap();
        assert!(handle.get().is_none() && handle.is_done());
        handle.put(2, "new").unwrap();
        let new = handle.take().unwrap();
        drop(old);
        assert!(!handle.is_done());
        drop(new);
        assert!(handle.is_done());
    }
}

#[test]
fn an_element_that_was_taken_can_be_finished_on_any_thread_and_after_swaps() {
    let _alone = alone();
    let queue = queue::strict();
    let handle = queue.handle();
    for form in [Form::Relaxed, Form::Local, Form::Strict] {
        on(3, || handle.put(1, vec![1])).unwrap();
        let mut taken = on(4, || handle.take()).unwrap();
        swap(handle, new(form)).unwrap();
        taken.push(2);
        assert_eq!((taken.priority(), &**taken, taken.queue() == handle), (1, &[1, 2][..], true));
        assert!(!handle.is_done());
        thread::spawn(move || on(17, || drop(taken))).join().unwrap();
        assert!(handle.is_done());
    }
}

#[test]
fn a_queue_that_refuses_calls_gives_elements_back_and_learns_the_end_of_others() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        handle.put(1, "an element").unwrap();
        let taken = handle.take().unwrap();
        let closed = arbitrate(handle, |call| call.refuse("closed")).unwrap();
        let error = handle.try_put(2, "another").unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        assert_eq!(error.into_element(), (2, "another"));
        assert!(handle.try_get().is_err() && handle.take_wait().is_err() && handle.get_wait().is_err());
        drop(taken);
        drop(closed);
        assert!(handle.is_empty() && handle.is_done());
        // An arbiter may let all calls pass.
        let open = arbitrate(handle, |call| call.proceed()).unwrap();
        assert_eq!(handle.try_put(2, "another"), Ok(()));
        assert_eq!(handle.take().map(|taken| *taken), Some("another"));
        drop(open);
        assert!(handle.is_done());
    }
}

#[test]
fn a_panic_in_the_drop_of_an_element_finishes_it() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    let _alone = alone();
    for queue in forms() {
        assert!(queue.put(1, Bomb).is_ok());
        let taken = queue.take().unwrap();
        assert!(thread::spawn(move || drop(taken)).join().is_err());
        assert!(queue.is_done());
    }
}

#[test]
fn large_elements_skip_the_view() {
    let _alone = alone();
    for queue in forms() {
        queue.put(1, [7_u64; 100]).unwrap();
        queue.try_put(2, [8; 100]).unwrap();
        assert_eq!(queue.take().map(|taken| taken.len()), Some(100));
        assert_eq!((queue.get(), queue.is_done()), (Some((2, [8; 100])), true));
    }
}

/// VPs that put and get in turns.
fn users(handle: Handle<dyn Queue<u64>>, vps: &[u32]) -> Crew {
    let body = move |calls: u32| {
        for n in 0..u64::from(calls / 2) {
            handle.put(n, n).unwrap();
            assert!(handle.get().is_some());
        }
    };
    Crew::new(vps, 256, body)
}

#[test]
fn kt_12_an_adaptive_queue_is_relaxed_where_several_vps_use_it_and_strict_when_it_is_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let queue = on(0, queue::adaptive);
    let (handle, id) = (queue.handle(), Handle::id(queue.handle()));
    on(0, || handle.put_batch((0..100).map(|n| (n, n)).collect())).unwrap();
    assert_eq!((form(id), reps(handle)), (STRICT, 1));
    time.with(users(handle, &[0, 1, 2, 3]), |time| {
        time.until("the queue is relaxed", || form(id) == RELAXED);
    });
    assert_eq!((handle.len(), handle.form()), (100, Form::Relaxed));
    time.until("the queue is strict again", || form(id) == STRICT);
    assert_eq!((on(9, || handle.get_batch(usize::MAX)).len(), handle.form()), (100, Form::Strict));
    let history = control::history(id);
    let [grown, shrunk] = &history[..] else { panic!("{history:?}") };
    assert_eq!((grown.from, grown.to, &grown.verdict), (STRICT, RELAXED, &Verdict::Swapped));
    assert!(grown.why.contains("two heaps per processor costs an estimated "), "{grown}");
    assert!(grown.readings().contains("put_one") && grown.readings().contains("foreign"), "{grown}");
    assert_eq!((shrunk.from, shrunk.to, &shrunk.verdict), (RELAXED, STRICT, &Verdict::Swapped));
}

#[test]
fn an_adaptive_queue_becomes_local_only_if_the_program_allows_it() {
    for allows in [false, true] {
        let mut time = virtual_time();
        let queue = on(0, queue::adaptive);
        let (handle, id) = (queue.handle(), Handle::id(queue.handle()));
        handle.attributes(|attributes| attributes.set_balance_every(0));
        handle.allow_local(allows);
        time.with(users(handle, &[0, 1, 2, 3]), |time| {
            time.until("the queue changes", || form(id) != STRICT);
            time.pass(Duration::from_secs(1));
        });
        assert_eq!((form(id), handle.allows_local()), (if allows { LOCAL } else { RELAXED }, allows));
    }
}

#[test]
fn an_adaptive_queue_that_one_vp_uses_stays_strict() {
    let mut time = virtual_time();
    let queue = on(5, queue::adaptive);
    let (handle, id) = (queue.handle(), Handle::id(queue.handle()));
    time.with(users(handle, &[5]), |time| time.pass(Duration::from_secs(5)));
    assert_eq!((form(id), control::history(id).len()), (STRICT, 0));
    let sensors = handle.sensors();
    assert!(sensors.local > 0, "one call in 64 is counted: {sensors:?}");
    assert_eq!(sensors.foreign, 0);
}

#[test]
fn messages_name_the_class_and_the_method_that_was_called() {
    let _alone = alone();
    for (class, queue) in ["Strict", "Relaxed", "Local", "Strict"].into_iter().zip(forms::<u32>()) {
        let queue = queue.named("jobs");
        let (handle, info) = (queue.handle(), info_of(Handle::id(queue.handle())).unwrap());
        assert_eq!(info.class, format!("squall_objects::queue::classes::{class}<u32>"));
        drop(queue);
        for (text, method) in [
            (handle.try_get().unwrap_err().to_string(), "get"),
            (handle.try_put(1, 1).unwrap_err().to_string(), "put"),
            (handle.try_take().unwrap_err().to_string(), "take"),
            (handle.get_wait().unwrap_err().to_string(), "get_wait"),
            (handle.take_wait().unwrap_err().to_string(), "take_wait"),
            (handle.try_get_batch(1).unwrap_err().to_string(), "get_batch"),
        ] {
            assert!(text.starts_with(&format!("{handle}.{method}() of \"jobs\", class ")), "{text}");
        }
    }
}

#[test]
fn kt_12_attributes_are_set_by_name() {
    let _alone = alone();
    for queue in forms::<u64>() {
        let (handle, id) = (queue.handle(), Handle::id(queue.handle()));
        let set = |name, value| control::set_attribute(id, name, value).unwrap();
        set("topology", "star");
        set("insertion", "load-balance");
        set("which-priority", "highest");
        set("balance-every", "0");
        set("allow-local", "true");
        assert_eq!(
            handle.attributes(|it| (it.topology(), it.insertion(), it.balance_every())),
            (Topology::Star, Insertion::LoadBalance, 0)
        );
        assert_eq!((handle.which_priority(), handle.allows_local()), (WhichPriority::Highest, true));
        handle.attributes(|it| it.set_stickiness(3));
        let error = control::set_attribute(id, "topology", "mesh").unwrap_err();
        assert!(error.to_string().contains("tree"), "{error}");
        // A swap keeps them.
        for form in Form::ALL {
            swap(handle, new(form)).unwrap();
            let shown = control::attributes(id).unwrap();
            let value = |name: &str| shown.iter().find(|it| it.name == name).map(|it| it.value.clone());
            let values =
                ["topology", "insertion", "which-priority", "balance-every", "stickiness", "allow-local"]
                    .map(|name| value(name).unwrap());
            assert_eq!(values, ["star", "load-balance", "highest", "0", "3", "true"]);
        }
    }
}
