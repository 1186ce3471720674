//! What the objects of the torture are made of: shared values, roots, and representatives.

use std::sync::atomic::{AtomicU64, Ordering};

use squall::pervp::BiasedWord;
use squall::{RepContext, Cleanup, Cluster, Miss, MissAnswer, Root, Vp, machine};

use super::acts::{Behave, make_busy};
use super::body::Body;
use super::classes::Whims;
use super::drops;
use super::interfaces::{Ask, Deep, Fault, Kind, Mark, Pair, Probe, Told};
use super::ledger::Life;
use super::tally::{What, count};
use super::world::World;
use crate::Rng;

/// A representative for everybody.
pub(super) struct Single {
    body: Body,
    whims: Whims,
    sum: AtomicU64,
}

impl Single {
    pub(super) fn new(world: &'static World, life: Life, whims: Whims, kind: Kind) -> Single {
        Single { body: Body::new(world, life, kind), whims, sum: AtomicU64::new(0) }
    }
}

impl Behave for Single {
    fn body(&self) -> &Body {
        &self.body
    }

    fn plus(&self, n: u64) {
        self.sum.fetch_add(n, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    fn each(&self, tell: &mut dyn FnMut(u64)) {
        tell(self.body.life.serial);
    }

    fn survey(&self, _rng: &mut Rng) {}

    fn sleep(&self) {}

    fn wake(&self) {}
}

impl Drop for Single {
    fn drop(&mut self) {
        self.body.check("the drop of a shared value");
        drops::busy(self.body.world, self.body.life, self.whims);
    }
}

/// What all roots of the torture carry.
pub(super) struct Stem {
    pub(super) world: &'static World,
    pub(super) life: Life,
    pub(super) whims: Whims,
    sound: AtomicU64,
    draws: AtomicU64,
    pub(super) wakes: AtomicU64,
}

const SOUND: u64 = 0x5EED_0000_5EED_0000;

impl Stem {
    pub(super) fn new(world: &'static World, life: Life, whims: Whims) -> Stem {
        world.judge(world.ledger.root_made(life));
        Stem {
            world,
            life,
            whims,
            sound: AtomicU64::new(SOUND ^ life.serial),
            draws: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// Accuses if the root was dropped.
    pub(super) fn check(&self, doing: &str) {
        let sound = self.sound.load(Ordering::Relaxed);
        if sound != SOUND ^ self.life.serial {
            self.world.trial.accuse(format!(
                "{doing}: the root of object #{} was dropped ({sound:#x})",
                self.life.serial
            ));
        }
    }

    /// Another random choice.
    pub(super) fn rng(&self) -> Rng {
        Rng::new(self.life.serial, self.draws.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Stem {
    fn drop(&mut self) {
        self.check("the drop of a root");
        drops::root(self);
        *self.sound.get_mut() = 0;
        drops::busy(self.world, self.life, self.whims);
    }
}

/// A root of the torture.
pub(super) trait Planted: Root<Rep = Leaf<Self>> {
    const KIND: Kind = Kind::Probe;
    fn stem(&self) -> &Stem;

    /// The body of `handle_miss`.
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().cached()
    }

    /// The body of `make_rep`.
    fn grow(&self, at: RepContext<Self>) -> Leaf<Self> {
        let stem = self.stem();
        stem.check("making a representative");
        make_busy(stem);
        Leaf { body: Body::new(stem.world, stem.life, Self::KIND), sum: BiasedWord::new(at.vp()), at }
    }
}

/// A representative of a cluster.
pub(super) struct Leaf<R: Planted> {
    pub(super) body: Body,
    pub(super) sum: BiasedWord,
    pub(super) at: RepContext<R>,
}

impl<R: Planted> Drop for Leaf<R> {
    fn drop(&mut self) {
        self.body.check("the drop of a representative");
        self.at.root().stem().check("the drop of a representative");
        drops::busy(self.body.world, self.body.life, self.at.root().stem().whims);
    }
}

/// A root: its interface, what else it says as `Root`, and how it answers misses if in its own way.
macro_rules! planted {
    ($name:ident, $interface:ty, $kind:expr, { $($more:tt)* }, { $($answer:tt)* }) => {
        pub(super) struct $name(pub(super) Stem);

        impl Planted for $name {
            const KIND: Kind = $kind;

            fn stem(&self) -> &Stem {
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
                self.0.check("answering a miss");
                count(What::Misses);
                self.answer(miss)
            }

            $($more)*
        }
    };
}

planted!(Spread, dyn Probe, Kind::Probe, {}, {});
planted!(SpreadDeep, dyn Deep, Kind::Deep, {}, {});
planted!(SpreadPair, dyn Pair<u64, 3>, Kind::Pair, {}, {});
planted!(
    Eager,
    dyn Probe,
    Kind::Probe,
    {
        const EAGER: bool = true;
    },
    {}
);
planted!(Redirecting, dyn Probe, Kind::Probe, {}, {
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().once()
    }
});
planted!(Fickle, dyn Probe, Kind::Probe, {}, {
    fn answer<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        let mut rng = self.0.rng();
        let clusters = machine().vp_limit() as u64;
        match rng.below(8) {
            0 => miss.refuse("it is in the mood to"),
            1 => miss.local().once(),
            // One that is there will do, whosever it is.
            2..4 => match miss.find(Cluster::new(rng.below(clusters) as u32)) {
                Some(other) => other.cached(),
                None => miss.local().once(),
            },
            _ => miss.local().cached(),
        }
    }
});
planted!(
    OwnCleanup,
    dyn Probe,
    Kind::Probe,
    {
        const CLEANUP: Cleanup = Cleanup::Anywhere;

        fn cleanup(&self, made_on: Vp, rep: Leaf<Self>) {
            self.0.check("taking a representative back");
            if rep.at.vp() != made_on {
                self.0
                    .world
                    .trial
                    .accuse(format!("a representative made on {} is said to be of {made_on}", rep.at.vp()));
            }
            drop(rep);
        }
    },
    {}
);

/// The interfaces, for anything that behaves.
macro_rules! answers {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> Probe for $name {
            fn look(&self, spins: u64) -> Told {
                self.body().look(spins)
            }

            fn add(&self, n: u64) -> Told {
                self.body().check("an addition");
                self.plus(n);
                self.body().told()
            }

            fn total(&self) -> u64 {
                self.body().check("a total");
                self.sum()
            }

            fn each(&self, tell: &mut dyn FnMut(u64)) {
                let _inside = self.body().enter();
                Behave::each(self, tell);
            }

            fn touch(&self, ask: Ask<'_>) -> Told {
                super::acts::touch(self, &ask)
            }

            fn linger(&self, ask: Ask<'_>) -> Told {
                super::acts::linger(self, &ask)
            }

            fn checked(&self) -> Result<Told, Fault> {
                Ok(self.body().look(0))
            }
        }

        impl<$($generics)*> Mark for $name {
            fn mark(&self, n: u64) -> (Told, u64) {
                (self.body().look(0), !n)
            }

            fn dwell(&self, ask: Ask<'_>) -> Told {
                super::acts::linger(self, &ask)
            }
        }

        impl<$($generics)*> Deep for $name {
            fn depth(&self) -> Told {
                self.body().look(0)
            }

            fn rest(&self, ask: Ask<'_>) -> Told {
                super::acts::linger(self, &ask)
            }
        }

        impl<$($generics)*> Pair<u64, 3> for $name {
            fn turn(&self, mut values: [u64; 3]) -> (Told, [u64; 3]) {
                values.reverse();
                (self.body().look(0), values)
            }

            fn stir(&self, ask: Ask<'_>) -> Told {
                super::acts::touch(self, &ask)
            }
        }
    };
}

answers!([] Single);
answers!([R: Planted] Leaf<R>);
