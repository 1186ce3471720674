//! Recorded histories of queues. Those of a strict queue are checked for linearizability, also of its order.
//! Those of the other forms are checked for lost and doubled elements, and for exact emptiness.

use squall_history::spec::{AnyOp, AnyQueue, Elements, QueueOp, QueueRet, StrictQueue};
use squall_history::{Checker, History, Log, Spec, logs};
use squall_parts::queue::{Client, Form, Insertion, Queue, WhichPriority};
use std::fmt::Debug;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Duration;

const THREADS: usize = 3;
const CALLS: usize = 7;
const ROUNDS: u64 = if cfg!(miri) { 3 } else { 400 };

/// Random numbers: xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// Records the calls of threads that begin together, and checks them.
fn check<S: Spec<State = Elements>>(
    round: u64,
    spec: S,
    act: impl Fn(&mut Log<S::Op, S::Ret>, &mut Random) + Sync,
) where
    S::Op: Send + Debug,
    S::Ret: Send,
{
    let start = Barrier::new(THREADS);
    let all = thread::scope(|threads| {
        let (start, act) = (&start, &act);
        let run = |mut log: Log<S::Op, S::Ret>| {
            threads.spawn(move || {
                let mut random = Random((round * 8 + log.thread() as u64 + 1).wrapping_mul(0x9e37_79b9));
                start.wait();
                (0..CALLS).for_each(|_| act(&mut log, &mut random));
                log
            })
        };
        let running: Vec<_> = logs(THREADS, CALLS).into_iter().map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let checked = Checker::new(spec, Elements::default()).check(&History::from_logs(all));
    assert!(checked.is_ok(), "round {round}: {}", checked.unwrap_err());
}

/// Gets, or waits for no time.
fn get(client: Client<'_, u64>, random: &mut Random) -> Option<u64> {
    match random.below(3) {
        0 => client.get_for(Duration::ZERO).ok(),
        1 => client.take().map(|taken| (taken.priority(), *taken)),
        _ => client.get(),
    }
    .map(|(priority, value)| {
        assert_eq!(priority, value);
        priority
    })
}

#[test]
fn a_strict_queue_is_linearizable() {
    for round in 0..ROUNDS {
        let queue = Queue::with_places(Form::Strict, THREADS);
        check(round, StrictQueue, |log, random| {
            let client = queue.client(log.thread());
            let op = match random.below(20) {
                0 => QueueOp::Close,
                1 => QueueOp::Drain,
                2 => QueueOp::Highest(random.below(2) == 0),
                3 => QueueOp::IsEmpty,
                4..=11 => QueueOp::Get,
                _ => QueueOp::Put(random.below(6)),
            };
            log.call(op, |op| match *op {
                QueueOp::Put(priority) => QueueRet::Accepted(client.put(priority, priority).is_ok()),
                QueueOp::Get => QueueRet::Got(get(client, random)),
                QueueOp::IsEmpty => QueueRet::Empty(queue.is_empty()),
                QueueOp::Drain => {
                    QueueRet::Drained(queue.drain().into_iter().map(|(priority, _)| priority).collect())
                }
                QueueOp::Highest(highest) => {
                    queue.set_which_priority(WhichPriority::ALL[usize::from(highest)]);
                    QueueRet::Done
                }
                QueueOp::Close => {
                    queue.close();
                    QueueRet::Done
                }
            });
        });
    }
}

/// Checks queues whose form and order `change` changes, if it is not empty.
fn returns_any_element(forms: &[Form], change: &[Form]) {
    for round in 0..ROUNDS {
        let queue = Queue::with_places(forms[round as usize % forms.len()], THREADS);
        queue.attributes().set_stickiness(round as usize % 3);
        queue.attributes().set_balance_every(round as usize % 3);
        queue.attributes().set_insertion(Insertion::ALL[round as usize / 3 % 2]);
        check(round, AnyQueue, |log, random| {
            // Often the client of another thread.
            let client = queue.client(random.below(THREADS as u64) as usize);
            if !change.is_empty() && random.below(4) == 0 {
                queue.set_form(change[random.below(change.len() as u64) as usize]);
                queue.set_which_priority(WhichPriority::ALL[random.below(2) as usize]);
            }
            let op = match random.below(16) {
                0 => AnyOp::Close,
                1 | 2 => AnyOp::IsEmpty,
                3..=8 => AnyOp::Get(Arc::new(OnceLock::new())),
                _ => AnyOp::Put(random.below(6)),
            };
            log.call(op, |op| match op {
                AnyOp::Put(priority) => QueueRet::Accepted(client.put(*priority, *priority).is_ok()),
                AnyOp::Get(got) => {
                    got.set(get(client, random)).unwrap();
                    QueueRet::Done
                }
                AnyOp::IsEmpty => QueueRet::Empty(queue.is_empty()),
                AnyOp::Close => {
                    queue.close();
                    QueueRet::Done
                }
            });
        });
    }
}

#[test]
fn relaxed_and_local_queues_return_each_element_once_and_are_empty_only_if_they_say_so() {
    returns_any_element(&[Form::Relaxed, Form::Local], &[]);
}

#[test]
fn changes_of_the_form_lose_no_element_and_keep_emptiness_exact() {
    returns_any_element(&Form::ALL, &Form::ALL);
}
