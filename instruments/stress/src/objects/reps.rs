//! The parts of the objects: shared values, roots, and representatives.

use std::sync::atomic::{AtomicU64, Ordering};

use squall::pervp::BiasedWord;
use squall::{Cleanup, Cluster, Miss, MissAnswer, RepContext, Root, Vp, machine};

use super::classes::Behavior;
use super::counts::{Stat, count};
use super::drops;
use super::interfaces::{Deep, Fault, Kind, Mark, Pair, Probe, Reply, Request};
use super::ledger::ObjectKey;
use super::methods::{RepMethods, make_busy};
use super::rep_core::RepCore;
use super::world::World;
use crate::run::Rng;

/// A single representative for all VPs.
pub(super) struct Single {
    core: RepCore,
    behavior: Behavior,
    sum: AtomicU64,
}

impl Single {
    pub(super) fn new(world: &'static World, key: ObjectKey, behavior: Behavior, kind: Kind) -> Single {
        Single { core: RepCore::new(world, key, kind), behavior, sum: AtomicU64::new(0) }
    }
}

impl RepMethods for Single {
    fn core(&self) -> &RepCore {
        &self.core
    }

    fn plus(&self, n: u64) {
        self.sum.fetch_add(n, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    fn each(&self, tell: &mut dyn FnMut(u64)) {
        tell(self.core.key.serial);
    }

    fn survey(&self, _rng: &mut Rng) {}

    fn sleep(&self) {}

    fn wake(&self) {}
}

impl Drop for Single {
    fn drop(&mut self) {
        self.core.check("the drop of a shared value");
        drops::busy(self.core.world, self.core.key, self.behavior);
    }
}

/// The common part of all roots.
pub(super) struct RootCore {
    pub(super) world: &'static World,
    pub(super) key: ObjectKey,
    pub(super) behavior: Behavior,
    sound: AtomicU64,
    draws: AtomicU64,
    pub(super) wakes: AtomicU64,
}

const SOUND: u64 = 0x5EED_0000_5EED_0000;

impl RootCore {
    pub(super) fn new(world: &'static World, key: ObjectKey, behavior: Behavior) -> RootCore {
        world.expect(world.ledger.root_made(key));
        RootCore {
            world,
            key,
            behavior,
            sound: AtomicU64::new(SOUND ^ key.serial),
            draws: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// Records a violation if the root was dropped.
    pub(super) fn check(&self, doing: &str) {
        let sound = self.sound.load(Ordering::Relaxed);
        if sound != SOUND ^ self.key.serial {
            self.world
                .run_state
                .fail(format!("{doing}: the root of object #{} was dropped ({sound:#x})", self.key.serial));
        }
    }

    /// Returns a generator for another random choice.
    pub(super) fn rng(&self) -> Rng {
        Rng::new(self.key.serial, self.draws.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for RootCore {
    fn drop(&mut self) {
        self.check("the drop of a root");
        drops::root(self);
        *self.sound.get_mut() = 0;
        drops::busy(self.world, self.key, self.behavior);
    }
}

/// A root of this stress.
pub(super) trait StressRoot: Root<Rep = Leaf<Self>> {
    const KIND: Kind = Kind::Probe;
    fn root_core(&self) -> &RootCore;

    /// The body of `handle_miss`.
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().cached()
    }

    /// The body of `make_rep`.
    fn grow(&self, at: RepContext<Self>) -> Leaf<Self> {
        let root_core = self.root_core();
        root_core.check("the creation of a representative");
        make_busy(root_core);
        Leaf {
            core: RepCore::new(root_core.world, root_core.key, Self::KIND),
            sum: BiasedWord::new(at.vp()),
            at,
        }
    }
}

/// A representative of a cluster.
pub(super) struct Leaf<R: StressRoot> {
    pub(super) core: RepCore,
    pub(super) sum: BiasedWord,
    pub(super) at: RepContext<R>,
}

impl<R: StressRoot> Drop for Leaf<R> {
    fn drop(&mut self) {
        self.core.check("the drop of a representative");
        self.at.root().root_core().check("the drop of a representative");
        drops::busy(self.core.world, self.core.key, self.at.root().root_core().behavior);
    }
}

/// Defines a root: its interface, more items of its `Root` implementation, and its own answer to misses.
macro_rules! stress_root {
    ($name:ident, $interface:ty, $kind:expr, { $($more:tt)* }, { $($answer:tt)* }) => {
        pub(super) struct $name(pub(super) RootCore);

        impl StressRoot for $name {
            const KIND: Kind = $kind;

            fn root_core(&self) -> &RootCore {
                &self.0
            }

            $($answer)*
        }

        impl Root for $name {
            type Interface = $interface;
            type Rep = Leaf<$name>;

            fn make_rep(&self, at: RepContext<Self>) -> Leaf<Self> {
                self.grow(at)
            }

            fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
                self.0.check("an answer to a miss");
                count(Stat::Misses);
                self.answer(miss)
            }

            $($more)*
        }
    };
}

stress_root!(Spread, dyn Probe, Kind::Probe, {}, {});
stress_root!(SpreadDeep, dyn Deep, Kind::Deep, {}, {});
stress_root!(SpreadPair, dyn Pair<u64, 3>, Kind::Pair, {}, {});
stress_root!(
    Eager,
    dyn Probe,
    Kind::Probe,
    {
        const EAGER: bool = true;
    },
    {}
);
stress_root!(Redirecting, dyn Probe, Kind::Probe, {}, {
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().once()
    }
});
stress_root!(Fickle, dyn Probe, Kind::Probe, {}, {
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        let mut rng = self.0.rng();
        let clusters = machine().vp_limit() as u64;
        match rng.below(8) {
            0 => miss.refuse("the root refuses this miss as planned"),
            1 => miss.local().once(),
            // Any existing representative will do.
            2..4 => match miss.find(Cluster::new(rng.below(clusters) as u32)) {
                Some(other) => other.cached(),
                None => miss.local().once(),
            },
            _ => miss.local().cached(),
        }
    }
});
stress_root!(
    OwnCleanup,
    dyn Probe,
    Kind::Probe,
    {
        const CLEANUP: Cleanup = Cleanup::Anywhere;

        fn cleanup(&self, made_on: Vp, rep: Leaf<Self>) {
            self.0.check("the cleanup of a representative");
            if rep.at.vp() != made_on {
                self.0.world.run_state.fail(format!(
                    "a representative made on {} was returned as one of {made_on}",
                    rep.at.vp()
                ));
            }
            drop(rep);
        }
    },
    {}
);

/// Implements the interfaces for a type with `RepMethods`.
macro_rules! answers {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> Probe for $name {
            fn look(&self, spins: u64) -> Reply {
                self.core().look(spins)
            }

            fn add(&self, n: u64) -> Reply {
                self.core().check("an addition");
                self.plus(n);
                self.core().reply()
            }

            fn total(&self) -> u64 {
                self.core().check("a total");
                self.sum()
            }

            fn each(&self, tell: &mut dyn FnMut(u64)) {
                let _inside = self.core().enter();
                RepMethods::each(self, tell);
            }

            fn touch(&self, request: Request<'_>) -> Reply {
                super::methods::touch(self, &request)
            }

            fn linger(&self, request: Request<'_>) -> Reply {
                super::methods::linger(self, &request)
            }

            fn checked(&self) -> Result<Reply, Fault> {
                Ok(self.core().look(0))
            }
        }

        impl<$($generics)*> Mark for $name {
            fn mark(&self, n: u64) -> (Reply, u64) {
                (self.core().look(0), !n)
            }

            fn dwell(&self, request: Request<'_>) -> Reply {
                super::methods::linger(self, &request)
            }
        }

        impl<$($generics)*> Deep for $name {
            fn depth(&self) -> Reply {
                self.core().look(0)
            }

            fn rest(&self, request: Request<'_>) -> Reply {
                super::methods::linger(self, &request)
            }
        }

        impl<$($generics)*> Pair<u64, 3> for $name {
            fn turn(&self, mut values: [u64; 3]) -> (Reply, [u64; 3]) {
                values.reverse();
                (self.core().look(0), values)
            }

            fn stir(&self, request: Request<'_>) -> Reply {
                super::methods::touch(self, &request)
            }
        }
    };
}

answers!([] Single);
answers!([R: StressRoot] Leaf<R>);
