//! Objects from outside: what a user relies on.

use squall::pervp::PerVpWord;
use squall::{At, CallError, ClusterSize, CoRef, Owned, Reason, Root, Vp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    fn checked_total(&self) -> Result<u64, CallError>;
    #[blocking]
    fn wait_for(&self, n: u64) -> u64;
}

#[derive(Default)]
struct Atomic(AtomicU64);

impl Hits for Atomic {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn checked_total(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn wait_for(&self, n: u64) -> u64 {
        while self.total() < n {
            std::thread::yield_now();
        }
        self.total()
    }
}

#[derive(Default)]
struct PerCpu {
    made: AtomicUsize,
    word: PerVpWord,
}

struct Local {
    n: AtomicU64,
    at: At<PerCpu>,
}

impl Root for PerCpu {
    type Interface = dyn Hits;
    type Rep = Local;
    fn make_rep(&self, at: At<Self>) -> Local {
        self.made.fetch_add(1, Ordering::Relaxed);
        Local { n: AtomicU64::new(0), at }
    }
}

impl Hits for Local {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
        self.at.root().word.add(n);
    }
    fn total(&self) -> u64 {
        let sum = self.at.reps().map(|rep| rep.n.load(Ordering::Relaxed)).sum();
        assert_eq!(self.at.gather(|rep| rep.n.load(Ordering::Relaxed), |a, b| a + b), Some(sum));
        sum
    }
    fn checked_total(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn wait_for(&self, n: u64) -> u64 {
        self.at.sleep_until(|| (self.total() >= n).then(|| self.total())).unwrap_or(0)
    }
}

#[test]
fn a_shared_and_a_distributed_object_count_alike() {
    let shared: Owned<dyn Hits> = squall::shared(Atomic::default());
    let distributed: Owned<dyn Hits> = PerCpu::default().create(ClusterSize::Cpu);
    for hits in [shared, distributed] {
        let h: CoRef<dyn Hits> = hits.co();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(move || (0..1000).for_each(|_| h.add(1)));
            }
        });
        assert_eq!(h.total(), 4000);
        assert_eq!(h.try_total(), Ok(4000));
        let info = squall::info_of(CoRef::id(h)).unwrap();
        assert_eq!(info.interface, "Hits");
        assert!(info.misses >= 1);
        let end = Owned::destroy(hits);
        let error = h.try_total().unwrap_err();
        assert_eq!((error.interface(), error.method(), error.reason()), ("Hits", "total", Reason::Destroyed));
        assert_eq!(error.id(), CoRef::id(h));
        assert_eq!(h.checked_total().unwrap_err().method(), "checked_total");
        assert!(catch_unwind(AssertUnwindSafe(|| h.total())).is_err());
        end.wait().unwrap();
        assert!(squall::info_of(CoRef::id(h)).is_none());
    }
    let _ = Vp::current();
}

#[test]
fn a_blocking_method_sleeps_and_is_woken_by_the_end() {
    let hits: Owned<dyn Hits> = PerCpu::default().create(ClusterSize::Cpu);
    let h = hits.co();
    std::thread::scope(|s| {
        let waiter = s.spawn(move || h.wait_for(10));
        while squall::info_of(CoRef::id(h)).unwrap().reps.iter().all(|rep| rep.holds == 0) {
            std::thread::yield_now();
        }
        let end = Owned::destroy(hits);
        assert_eq!(waiter.join().unwrap(), 0);
        end.wait().unwrap();
    });
}
