//! Subject `squall` of the cases about reclamation, used as an application would, through the public
//! interface.

use std::hint::black_box;

use crossbeam_utils::CachePadded;
use squall_rcu::{Rcu, pin};

use crate::case::{Background, Missing, Setting, Spacing, Subject, Worker};
use crate::work::retire::{Item, Reclaim, retiring};

struct Shared {
    cell: CachePadded<Rcu<u64>>,
}

impl Shared {
    fn new() -> Shared {
        Shared { cell: CachePadded::new(Rcu::new(Box::new(1))) }
    }

    fn read_times(&self, ops: u64) {
        let mut sum = 0u64;
        for _ in 0..ops {
            sum = sum.wrapping_add(pin(|o| *self.cell.load(o)));
        }
        black_box(sum);
    }
}

struct Read(Shared);

pub(crate) fn read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read(Shared::new())))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        register();
        Box::new(|ops| self.0.read_times(ops))
    }
}

/// Registers the calling thread before the clock runs. Otherwise its first operation would.
fn register() {
    squall_rcu::register().expect("the thread cannot register");
}

struct Wait {
    shared: Shared,
    wait: fn() -> Result<(), squall_rcu::WaitError>,
    spacing: Spacing,
}

pub(crate) fn wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Wait { shared: Shared::new(), wait: squall_rcu::wait, spacing: setting.spacing() }))
}

pub(crate) fn wait_expedited(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Wait { shared: Shared::new(), wait: squall_rcu::wait_expedited, spacing: setting.spacing() }))
}

impl Subject for Wait {
    fn worker(&self, _: usize) -> Worker<'_> {
        register();
        Box::new(|ops| {
            for _ in 0..ops {
                self.spacing.before();
                (self.wait)().expect("the grace period failed");
            }
        })
    }

    fn background(&self, run: &Background) {
        run.read(|| self.shared.read_times(64));
    }
}

/// The slots of `rcu-retire`.
struct Slots(Vec<CachePadded<Rcu<Item>>>);

pub(crate) fn retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    retiring::<Slots>(setting)
}

impl Reclaim for Slots {
    type Handle<'a> = ();

    fn new(slots: usize, mut fill: impl FnMut() -> Box<Item>) -> Slots {
        Slots((0..slots).map(|_| CachePadded::new(Rcu::new(fill()))).collect())
    }

    fn handle(&self) {
        register();
    }

    #[inline]
    fn exchange(&self, _: &mut (), own: usize, other: usize, fresh: Box<Item>) -> u64 {
        let value = pin(|o| self.0[other].load(o).value);
        self.0[own].replace(fresh);
        value
    }

    fn flush(&self, _: &mut ()) {
        squall_rcu::reclaim().expect("the grace period failed");
    }
}
