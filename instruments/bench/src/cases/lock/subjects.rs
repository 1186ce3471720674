//! The participants, in rounds and in `squall loop`.

use squall::lock::ConfigurableLock;
use squall::objects::lock::AdaptiveLock;

use spin::relax::{Spin as Spinning, Yield as Yielding};

use super::loads;
use super::play::{Load, Step, Stepped, acquire_and_release, play, section};
use super::work::work;
use crate::case::{Make, Missing, Role, Setting, Spec, Subject, Worker};
use crate::cases::swap::crew::fit;
use crate::rivals::locks::{Exclusive, InBits, McsSpinning, McsYielding, PthreadAdaptive, Spin, Ticket};

/// One lock of any type.
pub(super) trait Contender {
    fn play(&self, steps: &[Step]) -> Result<Vec<Stepped>, String>;
}

struct Lock<L>(L);

impl<L: Exclusive> Contender for Lock<L> {
    fn play(&self, steps: &[Step]) -> Result<Vec<Stepped>, String> {
        play(&self.0, steps)
    }
}

/// A participant.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) role: Role,
    /// Makes its lock for `threads` threads.
    pub(super) make: fn(usize) -> Box<dyn Contender>,
}

/// Each entry has a lock for threads that fit on the processors, and one for more threads.
macro_rules! subjects {
    ($($role:ident $make:ident $name:literal $fits:ty, $crowded:ty;)*) => {
        pub(super) const SPECS: &[Spec] = &[$(Spec::$make($name, looping::<$fits, $crowded>())),*];
        pub(super) const ENTRIES: &[Entry] =
            &[$(Entry { name: $name, role: Role::$role, make: contender::<$fits, $crowded> }),*];
    };
}

subjects! {
    Ours ours "squall" squall::lock::Lock<u64>, squall::lock::Lock<u64>;
    Ours ours "squall-two-bit" InBits, InBits;
    Ours ours "squall-adaptive" AdaptiveLock<u64>, AdaptiveLock<u64>;
    Ours ours "squall-configurable" ConfigurableLock<u64>, ConfigurableLock<u64>;
    Rival rival "std-mutex" std::sync::Mutex<u64>, std::sync::Mutex<u64>;
    Rival rival "parking-lot" parking_lot::Mutex<u64>, parking_lot::Mutex<u64>;
    Rival rival "spin" Spin<Spinning>, Spin<Yielding>;
    Rival rival "ticket" Ticket<Spinning>, Ticket<Yielding>;
    Rival rival "mcs" McsSpinning, McsYielding;
    Rival rival "pthread-adaptive" PthreadAdaptive, PthreadAdaptive;
}

fn contender<Fits: Exclusive, Crowded: Exclusive>(threads: usize) -> Box<dyn Contender> {
    if fit(threads) { Box::new(Lock(Fits::new())) } else { Box::new(Lock(Crowded::new())) }
}

// --- `loop` ---

/// Operations counted by an instrument. The loads of the variant follow each other, with an equal number of
/// operations in each. Their work has a fixed length on every machine, since no clock may be read.
struct Looping<L> {
    lock: L,
    loads: Vec<Load>,
}

const fn looping<Fits: Exclusive, Crowded: Exclusive>() -> Make {
    |setting| {
        if fit(setting.threads) { Looping::<Fits>::make(setting) } else { Looping::<Crowded>::make(setting) }
    }
}

impl<L: Exclusive> Looping<L> {
    fn make(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let loads = match loads::Shape::of(setting.variant.name) {
            Some(shape) => vec![shape.load(super::work::Turns::nominal)],
            None => loads::phases(super::work::Turns::nominal),
        };
        Ok(Box::new(Looping { lock: L::new(), loads }))
    }

    /// Splits `ops` operations among the loads.
    fn parts(&self, ops: u64) -> impl Iterator<Item = (Load, u64)> + '_ {
        let count = self.loads.len() as u64;
        let part = move |(index, load): (usize, &Load)| {
            (*load, ops / count + u64::from((index as u64) < ops % count))
        };
        self.loads.iter().enumerate().map(part)
    }
}

impl<L: Exclusive> Subject for Looping<L> {
    fn worker(&self, _thread: usize) -> Worker<'_> {
        Box::new(move |ops| {
            for (load, ops) in self.parts(ops) {
                if load.inside.is_none() {
                    acquire_and_release(&self.lock, ops);
                    continue;
                }
                for _ in 0..ops {
                    self.lock.with(|word| section(word, load.inside));
                    work(load.outside);
                }
            }
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let counted = self.lock.with(|word| *word);
        let wanted = if self.loads.iter().any(|load| load.inside.is_none()) { 0 } else { ops };
        if counted == wanted { Ok(()) } else { Err(format!("{counted} counted in {wanted} sections")) }
    }
}
