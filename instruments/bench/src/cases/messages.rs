//! `messages`: threads send each other 32 bytes and get an answer, with a post office per cluster.
//!
//! An operation is one round, in which each thread sends one message. A post office holds the mailboxes of
//! its cluster's threads under one lock. A message within the cluster is delivered by its sender. One to
//! another cluster is a call that is shipped to the receiver's processor. In the variants `pairs-N` two
//! neighbours send each other messages; in `parent-N` all threads send to the first one, which serves. N is
//! the number of processors per cluster. Barriers between rounds are `uncounted`.
//!
//! The rounds are counted, not timed: clusters of 16 processors need a virtual topology, such as
//! `SQUALL_TOPOLOGY=nodes:4,cores:4 squall locality -- squall loop messages`.
//!
//! Source: Hurricane (Unrau et al. 1995), figures 5 (a) and 7 (a): independent pairs, and many children with
//! one parent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use squall::ship::{serve, serve_here, ship};
use squall::{ClusterSize, Vp, machine};

use crate::case::{Case, Missing, Scale, Setting, Spec, Subject, Worker, variant};
use crate::gate::Gate;
use crate::uncounted::uncounted;

/// Prefix of the variants in which all threads send to one.
const PARENT: &str = "parent-";

pub(super) static CASE: Case = Case {
    name: "messages",
    about: "one round in which each thread sends 32 bytes and gets an answer (counted, not timed)",
    variants: &[
        variant("pairs-2", "neighbours; two processors per cluster"),
        variant("pairs-4", "neighbours; four processors per cluster"),
        variant("pairs-8", "neighbours; eight processors per cluster"),
        variant("pairs-16", "neighbours; 16 processors per cluster"),
        variant("parent-1", "all to the first; a cluster per processor"),
        variant("parent-2", "all to the first; two processors per cluster"),
        variant("parent-4", "all to the first; four processors per cluster"),
        variant("parent-8", "all to the first; eight processors per cluster"),
        variant("parent-16", "all to the first; 16 processors per cluster"),
    ],
    subjects: &[Spec::ours("squall", make)],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// A message, and an answer: 32 bytes.
type Message = [u64; 4];

/// The mailbox of a thread: its last message, and their number.
#[derive(Default)]
struct Mailbox {
    last: Message,
    received: u64,
}

/// The mailboxes of a cluster's threads, by thread.
type Office = CachePadded<Mutex<Vec<CachePadded<Mailbox>>>>;

fn deliver(office: &Office, to: usize, message: Message) -> Message {
    let mut mailboxes = office.lock().expect("no delivery panics");
    let mailbox = &mut mailboxes[to];
    mailbox.last = message;
    mailbox.received += 1;
    [mailbox.received, message[1], message[2], message[3]]
}

struct Rounds {
    /// The post office of each thread's cluster.
    offices: Vec<Arc<Office>>,
    to_parent: bool,
    gate: Gate,
    /// Messages that were answered.
    answered: CachePadded<AtomicU64>,
}

fn make(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if !setting.counted {
        return Err(Missing::only_counted());
    }
    let to_parent = setting.variant.name.starts_with(PARENT);
    if setting.threads < 2 || !to_parent && setting.threads % 2 == 1 {
        return Err(Missing("each thread needs another one".to_owned()));
    }
    let clusters = machine().clusters(ClusterSize::fixed(setting.variant.number()));
    let office =
        || Arc::new(Office::new(Mutex::new((0..setting.threads).map(|_| CachePadded::default()).collect())));
    let of_cluster: Vec<_> = (0..clusters.len()).map(|_| office()).collect();
    let of_thread = |thread| of_cluster[clusters.cluster_of(Vp::new(thread as u32)).index()].clone();
    let offices = (0..setting.threads).map(of_thread).collect();
    Ok(Box::new(Rounds {
        offices,
        to_parent,
        gate: Gate::new(setting.threads),
        answered: CachePadded::default(),
    }))
}

impl Rounds {
    /// Sends a message from one thread to another.
    fn send(&self, from: usize, to: usize, message: Message) -> Message {
        let office = &self.offices[to];
        if Arc::ptr_eq(office, &self.offices[from]) {
            return deliver(office, to, message);
        }
        let office = office.clone();
        let call = ship(Vp::new(to as u32), move || deliver(&office, to, message));
        call.expect("the inbox has a slot for each thread").wait().expect("no delivery panics")
    }

    /// Serves the calls of a round: until all other threads have their answers.
    fn serve(&self, round: u64) {
        let expected = (round + 1) * (self.offices.len() as u64 - 1);
        // Acquire: pairs with the Release of `worker`; it guards no other data.
        while uncounted(|| self.answered.load(Ordering::Acquire)) < expected {
            serve();
            uncounted(std::thread::yield_now);
        }
    }
}

impl Subject for Rounds {
    fn worker(&self, index: usize) -> Worker<'_> {
        let serving = serve_here();
        let mut round = 0;
        Box::new(move |ops| {
            let _serving = &serving;
            for _ in 0..ops {
                if self.to_parent && index == 0 {
                    self.serve(round);
                } else {
                    let to = if self.to_parent { 0 } else { index ^ 1 };
                    let message = [round, index as u64, to as u64, 0];
                    let answer = self.send(index, to, message);
                    assert_eq!(answer[1..], message[1..], "the answer belongs to another message");
                    // Release: pairs with the Acquire of `serve`.
                    uncounted(|| self.answered.fetch_add(1, Ordering::Release));
                }
                round += 1;
                uncounted(|| self.gate.wait());
            }
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let rounds = ops / self.offices.len() as u64;
        let received =
            |thread: usize| self.offices[thread].lock().expect("no delivery panics")[thread].received;
        let all: u64 = (0..self.offices.len()).map(received).sum();
        let senders = self.offices.len() as u64 - u64::from(self.to_parent);
        if all == rounds * senders {
            Ok(())
        } else {
            Err(format!("{all} messages of {} came", rounds * senders))
        }
    }
}
