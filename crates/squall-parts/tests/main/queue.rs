//! Tests of queues that threads share: each element once, exact emptiness, and the end of the work.

use squall_parts::queue::{End, Form, Insertion, Queue, Topology, WhichPriority};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const THREADS: usize = 4;
const TURNS: usize = if cfg!(miri) { 30 } else { 10_000 };

/// Attributes that change while clients work.
fn change(queue: &Queue<usize>, turn: usize) {
    queue.attributes().set_topology(Topology::ALL[turn % 4]);
    queue.attributes().set_insertion(Insertion::ALL[turn / 4 % 2]);
    queue.attributes().set_balance_every(turn % 3);
    queue.attributes().set_stickiness(turn % 5);
    queue.set_form(Form::ALL[turn % 3]);
    queue.set_which_priority(WhichPriority::ALL[turn / 3 % 2]);
}

/// There are more elements than threads, and each thread holds at most one: the queue is never empty.
#[test]
fn get_finds_an_element_as_long_as_there_is_one() {
    let queue = Queue::with_places(Form::Local, THREADS);
    (0..=THREADS).for_each(|n| queue.client(0).put(n as u64, n).unwrap());
    let start = Barrier::new(THREADS);
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (queue, start) = (&queue, &start);
            threads.spawn(move || {
                start.wait();
                for turn in 0..TURNS {
                    if thread == 0 && turn % 50 == 0 {
                        change(queue, turn / 50);
                    }
                    assert!(!queue.is_empty() && !queue.is_done(), "elements were there all the time");
                    let (_, element) = queue.client(thread).get().expect("elements were there all the time");
                    // At any place, so that elements wander.
                    queue.client((turn + thread) % THREADS).put(element as u64, element).unwrap();
                }
            });
        }
    });
    let mut left: Vec<usize> = queue.drain().into_iter().map(|(_, element)| element).collect();
    left.sort_unstable();
    assert_eq!(left, (0..=THREADS).collect::<Vec<_>>());
}

#[test]
fn each_element_goes_to_one_client() {
    let queue = Queue::with_places(Form::Relaxed, THREADS);
    let puts = AtomicUsize::new(0);
    let start = Barrier::new(THREADS);
    let put = |client: squall_parts::queue::Client<'_, usize>| {
        let element = puts.fetch_add(1, SeqCst);
        client.put(element as u64 % 97, element).unwrap();
    };
    let taken: Vec<Vec<usize>> = thread::scope(|threads| {
        let spawn = |thread: usize| {
            let (queue, start, put) = (&queue, &start, &put);
            threads.spawn(move || {
                let mut got = Vec::new();
                start.wait();
                for turn in 0..TURNS {
                    let client = queue.client(if turn % 3 == 0 { turn % THREADS } else { thread });
                    match turn % 8 {
                        0..3 => put(client),
                        3 => got.extend(client.take().map(|taken| *taken)),
                        4 => got.extend(client.get_for(Duration::ZERO).ok().map(|(_, it)| it)),
                        5 if turn % 160 == 5 => got.extend(queue.drain().into_iter().map(|(_, it)| it)),
                        _ => got.extend(client.get().map(|(_, it)| it)),
                    }
                    if turn % 100 == 0 {
                        change(queue, turn / 100 + thread);
                    }
                }
                got
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen = HashSet::new();
    let rest = std::iter::from_fn(|| queue.client(0).get()).map(|(_, it)| it);
    taken.into_iter().flatten().chain(rest).for_each(|it| assert!(seen.insert(it), "{it} came twice"));
    assert_eq!(seen.len(), puts.into_inner(), "an element was lost");
    assert!(queue.is_empty() && queue.is_done());
}

/// Two threads make one place. One of them puts an element there, and gets from another place.
#[test]
fn a_place_that_two_clients_make_counts_at_once() {
    for form in Form::ALL {
        for _ in 0..TURNS / 10 {
            let queue = Queue::with_places(form, 2);
            let start = Barrier::new(2);
            thread::scope(|threads| {
                threads.spawn(|| {
                    start.wait();
                    queue.client(1).is_empty()
                });
                start.wait();
                queue.client(1).put(1, 1).unwrap();
                assert_eq!(queue.client(0).get(), Some((1, 1)));
            });
        }
    }
}

/// Each element of priority n leads to two of n - 1. The threads find the end without any other means.
#[test]
fn the_end_of_the_work_is_found_by_all() {
    const DEPTH: u64 = if cfg!(miri) { 3 } else { 10 };
    for (turn, form) in Form::ALL.into_iter().cycle().take(12).enumerate() {
        let queue = Queue::with_places(form, THREADS);
        queue.attributes().set_topology(Topology::ALL[turn / 3]);
        queue.client(0).put(DEPTH, ()).unwrap();
        let count = AtomicU64::new(0);
        thread::scope(|threads| {
            for thread in 0..THREADS {
                let (queue, count) = (&queue, &count);
                threads.spawn(move || {
                    let client = queue.client(thread);
                    let end = loop {
                        match client.take_wait() {
                            Ok(taken) => {
                                count.fetch_add(1, SeqCst);
                                let children = if taken.priority() == 0 { 0 } else { 2 };
                                for _ in 0..children {
                                    client.put(taken.priority() - 1, ()).unwrap();
                                }
                            }
                            Err(end) => break end,
                        }
                    };
                    assert_eq!((end, count.load(SeqCst)), (End::Done, (2 << DEPTH) - 1));
                });
            }
        });
        assert_eq!(queue.waiting(), 0);
    }
}

#[test]
fn blocked_threads_get_each_element_once_and_a_close_ends_them() {
    let queue = Queue::with_places(Form::Relaxed, THREADS);
    let sum = AtomicUsize::new(0);
    thread::scope(|threads| {
        for thread in 0..2 {
            let (queue, sum) = (&queue, &sum);
            threads.spawn(move || {
                while let Ok((_, value)) = queue.client(thread).get_wait() {
                    sum.fetch_add(value, SeqCst);
                }
            });
        }
        let producers: Vec<_> = (2..THREADS)
            .map(|thread| {
                let queue = &queue;
                threads.spawn(move || {
                    for turn in 0..TURNS {
                        queue.client(thread).put(turn as u64, 1).unwrap();
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        queue.close();
    });
    assert_eq!((sum.into_inner(), queue.len(), queue.waiting()), (2 * TURNS, 0, 0));
}
