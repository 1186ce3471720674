//! Hot-swap: another implementation takes the place of a live object.

use squall::swap::{
    Cancel, Factory, Formats, New, RootFormats, State, Swap, SwapFailure, SwapPhase, arbitrate,
    arbitrate_method,
};
use squall::{At, ClusterSize, CoRef, Owned, Reason, Root, Vp};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

#[squall::interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    fn kind(&self) -> &'static str;
    /// Runs `f` within a call.
    fn within(&self, f: &mut dyn FnMut());
    /// The same, outside every operation.
    #[blocking]
    fn blocked(&self, f: &mut dyn FnMut());
}

/// One number for all.
#[derive(Default)]
struct Central(AtomicU64);

impl Hits for Central {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn kind(&self) -> &'static str {
        "central"
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn blocked(&self, f: &mut dyn FnMut()) {
        f();
    }
}

impl State for Central {
    fn formats(formats: &mut Formats<'_, Central>) {
        formats.export_part(|this| Ok(this.total())).import_part(|this, n| {
            this.add(n);
            Ok(())
        });
    }
}

/// One number for each cluster.
struct Spread;

struct Local {
    at: At<Spread>,
    n: AtomicU64,
}

impl Root for Spread {
    type Interface = dyn Hits;
    type Rep = Local;
    fn make_rep(&self, at: At<Spread>) -> Local {
        Local { at, n: AtomicU64::new(0) }
    }
    fn formats(formats: &mut RootFormats<'_, Spread>) {
        formats.export_part(|_, rep| Ok(rep.n.load(Relaxed))).import_part(|_, rep, n| {
            rep.add(n);
            Ok(())
        });
    }
}

impl Hits for Local {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.at.reps().map(|rep| rep.n.load(Relaxed)).sum()
    }
    fn kind(&self) -> &'static str {
        "spread"
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn blocked(&self, f: &mut dyn FnMut()) {
        f();
    }
}

fn central() -> New<dyn Hits> {
    New::stateful(Central::default())
}

fn spread() -> New<dyn Hits> {
    New::root(Spread, ClusterSize::Cpu)
}

#[test]
fn co_33_an_object_is_replaced_with_its_state_and_its_clients_see_no_difference() {
    let hits: Owned<dyn Hits> = squall::stateful(Central::default());
    let co = hits.co();
    co.add(5);
    let report = squall::swap::swap(co, spread()).unwrap();
    assert_eq!((report.parts, report.bytes, report.format), (1, 8, Some("u64")));
    assert_eq!((co.kind(), co.total()), ("spread", 5));
    co.add(1);
    assert_eq!(co.total(), 6);
    assert_eq!(squall::info_of(CoRef::id(co)).unwrap().class, std::any::type_name::<Spread>());
    squall::swap::swap(co, central()).unwrap();
    assert_eq!((co.kind(), co.total()), ("central", 6));
    Owned::destroy(hits).wait().unwrap();
    assert_eq!(co.try_total().unwrap_err().reason(), Reason::Destroyed);
    assert_eq!(squall::swap::swap(co, central()).unwrap_err().failure(), SwapFailure::Destroyed);
}

#[test]
fn co_33_no_call_is_lost_while_an_object_is_swapped_back_and_forth() {
    let hits: Owned<dyn Hits> = squall::stateful(Central::default());
    let co = hits.co();
    let stop = AtomicBool::new(false);
    let (calls, swaps) = thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut calls = 0;
                    while !stop.load(Relaxed) {
                        co.add(1);
                        co.blocked(&mut || {});
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let began = Instant::now();
        let mut swaps = 0;
        while began.elapsed() < Duration::from_millis(500) {
            for new in [spread(), central()] {
                if Swap::of(co).to(new).is_ok() {
                    swaps += 1;
                }
            }
        }
        stop.store(true, Relaxed);
        (callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>(), swaps)
    });
    assert_eq!(co.total(), calls);
    assert!(swaps > 0 && calls > 0);
}
