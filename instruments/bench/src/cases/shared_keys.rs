//! `shared-keys`: threads read and change the same few keys, with copies per cluster of processors.
//!
//! An operation is one round. First each thread reads all keys, so that its cluster has a copy of each value.
//! After a barrier each thread changes all keys, which invalidates or updates the copies of the other
//! clusters. Another barrier ends the round. Barriers are `uncounted`. The variants set the cluster size.
//!
//! The rounds are counted, not timed: clusters of 16 processors need a virtual topology, such as
//! `SQUALL_TOPOLOGY=nodes:4,cores:4 squall locality -- squall loop shared-keys`.
//!
//! Source: Hurricane (Unrau et al. 1995), table 1 for the sizes, figures 7 (b) and 8 (b) for the test: a
//! master maps a few pages for reading, p processes write them together, and the pages are unmapped.

use squall::ClusterSize;
use squall::objects::cached::{self, CachedMapExt as _, Form, OwnedCachedMap};

use crate::case::{Case, Missing, Scale, Setting, Spec, Subject, Worker, variant};
use crate::gate::Gate;
use crate::uncounted::uncounted;

pub(super) static CASE: Case = Case {
    name: "shared-keys",
    about: "one round in which all threads read, then change the same keys (counted, not timed)",
    variants: &[
        variant("clusters-of-1", "a cluster per processor"),
        variant("clusters-of-2", "two processors per cluster"),
        variant("clusters-of-4", "four processors per cluster"),
        variant("clusters-of-8", "eight processors per cluster"),
        variant("clusters-of-16", "16 processors per cluster"),
    ],
    subjects: &[Spec::ours("squall-invalidated", make::<false>), Spec::ours("squall-updated", make::<true>)],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

fn make<const UPDATED: bool>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if !setting.counted {
        return Err(Missing::only_counted());
    }
    let form = Form::distributed(ClusterSize::fixed(setting.variant.number()));
    let map = cached::map(if UPDATED { form.updated() } else { form });
    for key in 0..KEYS {
        map.insert(key, 0);
    }
    Ok(Box::new(Rounds { map, gate: Gate::new(setting.threads), threads: setting.threads as u64 }))
}

/// Number of keys: a few pages.
const KEYS: u64 = 4;

struct Rounds {
    /// The number of the round that last changed each key.
    map: OwnedCachedMap<u64, u64>,
    gate: Gate,
    threads: u64,
}

impl Rounds {
    fn read(&self, round: u64) {
        for key in 0..KEYS {
            assert_eq!(self.map.get(&key), Some(round), "a change was lost");
        }
    }
}

impl Subject for Rounds {
    fn worker(&self, _: usize) -> Worker<'_> {
        // Makes the representative of this thread's cluster.
        self.read(0);
        let mut round = 0;
        Box::new(move |ops| {
            for _ in 0..ops {
                self.read(round);
                uncounted(|| self.gate.wait());
                round += 1;
                for key in 0..KEYS {
                    self.map.insert(key, round);
                }
                uncounted(|| self.gate.wait());
            }
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let right = (0..KEYS).all(|key| self.map.get(&key) == Some(ops / self.threads));
        if right { Ok(()) } else { Err("the last change of a key was lost".to_owned()) }
    }
}
