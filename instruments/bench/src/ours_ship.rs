//! Subjects of `ship`: an update of lines that another processor wrote.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use squall::ship::{serve_here, ship};
use squall::{ClusterSize, Vp, machine};

use crate::case::{Background, Missing, Setting, Subject, Worker};
use crate::gate::poll;
use crate::ours_machine::{is_virtual, processors_count};
use crate::uncounted::uncounted;

/// The variant with the caller's own cluster as the target.
pub(crate) const OWN: &str = "own";
/// The partner's VP before it is known.
const UNKNOWN: usize = usize::MAX;

/// The lines, each with one word that is used.
type Lines = Arc<[CachePadded<AtomicU64>]>;

/// Adds one to the word of each line. Plain loads and stores: one thread at a time does it.
fn add(lines: &Lines) -> u64 {
    let mut sum = 0;
    for line in lines.iter() {
        let word = line.load(Ordering::Relaxed) + 1;
        line.store(word, Ordering::Relaxed);
        sum += word;
    }
    sum
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Served,
    Asleep,
    Moved,
}

struct Shipping {
    how: How,
    /// The lines of each thread.
    lines: Vec<Lines>,
    own: bool,
    /// The index of the VP that writes the lines before each operation.
    partner: AtomicUsize,
}

pub(crate) fn served(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    make(setting, How::Served)
}

pub(crate) fn asleep(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if setting.variant.name == OWN { Err(Missing::no_part()) } else { make(setting, How::Asleep) }
}

pub(crate) fn moved(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    make(setting, How::Moved)
}

fn make(setting: &Setting, how: How) -> Result<Box<dyn Subject>, Missing> {
    let own = setting.variant.name == OWN;
    if !own && processors_count() < 2 {
        return Err(Missing("there is one processor".to_owned()));
    }
    let count = setting.variant.number();
    let of_thread = || (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    let lines = (0..setting.threads.max(1)).map(|_| of_thread()).collect();
    Ok(Box::new(Shipping { how, lines, own, partner: AtomicUsize::new(UNKNOWN) }))
}

impl Shipping {
    /// An operation on the caller's own cluster.
    fn worker_here(&self) -> Worker<'_> {
        let cpus = machine().clusters(ClusterSize::Cpu);
        Box::new(move |ops| {
            let mut sum = 0u64;
            for n in 0..ops {
                let n = black_box(n);
                sum = sum.wrapping_add(match self.how {
                    How::Moved => n,
                    _ => {
                        let here = (ClusterSize::Cpu, cpus.cluster_of(Vp::current()));
                        ship(here, move || n).expect("the inbox is full").wait().expect("the call failed")
                    }
                });
            }
            assert_eq!(sum, (0..ops).sum::<u64>(), "a call was lost, or ran twice");
        })
    }
}

impl Subject for Shipping {
    fn worker(&self, index: usize) -> Worker<'_> {
        if self.own {
            return self.worker_here();
        }
        let own = &self.lines[index];
        // Acquire: pairs with the Release of the partner; it guards no other data.
        poll(|| self.partner.load(Ordering::Acquire) != UNKNOWN);
        let there = Vp::new(self.partner.load(Ordering::Acquire) as u32);
        let call = move |lines: &Lines| {
            let lines = lines.clone();
            ship(there, move || add(&lines)).expect("the inbox is full").wait().expect("the call failed")
        };
        Box::new(move |ops| {
            for _ in 0..ops {
                let before = uncounted(|| {
                    let sum = call(own);
                    if self.how == How::Asleep {
                        // Until the thread of the other processor sleeps again.
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    sum
                });
                let sum = if self.how == How::Moved { add(own) } else { call(own) };
                assert_eq!(sum, before + own.len() as u64, "an update was lost");
            }
        })
    }

    fn background(&self, run: &Background) {
        if is_virtual() {
            Vp::assign_current(Vp::new(1)).expect("there are two VPs");
        }
        let serving = (self.how != How::Asleep).then(serve_here);
        // Release: pairs with the Acquire in `worker`.
        self.partner.store(Vp::current().index(), Ordering::Release);
        run.read(|| match self.how {
            How::Asleep => std::thread::sleep(Duration::from_millis(1)),
            _ => (0..64).for_each(|_| squall::rcu::pin(|_| ())),
        });
        drop(serving);
    }
}
