//! Objects that move, and calls that go to where an object lives.

use squall_core::swap::{Replacement, State, StateFormats};
use squall_core::{Handle, info_of, shared, swappable};
use squall_machine::{Cluster, ClusterSize, Vp, machine};
use squall_objects::ship::{MoveError, move_to, place_of, ship_to};
use squall_parts::ship::{PendingCall, serve, serve_here, ship};
use squall_policy::attribute::{Attribute, receive, with};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::alone;

#[squall_macros::interface(crate = squall_core)]
trait Cell: Send + Sync {
    fn add(&self, n: u64);
    fn get(&self) -> u64;
}

/// A count, with the number of values that were dropped.
struct Plain(AtomicU64, &'static AtomicU64);

impl Cell for Plain {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

impl State for Plain {
    fn formats(formats: &mut StateFormats<'_, Plain>) {
        formats.export_part(|this| Ok(this.get())).import_part(|this, n: u64| {
            this.add(n);
            Ok(())
        });
    }
}

fn vps() -> Vec<Vp> {
    machine().vps().iter().collect()
}

#[test]
fn hu_07_a_moved_object_keeps_its_home_and_is_found_there_in_one_step() {
    let _alone = alone();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let vps = vps();
    let home = vps[0];
    Vp::with_vp(home, || {
        let cell = swappable::<dyn Cell, _>(Plain(AtomicU64::new(1), &DROPPED));
        let id = Handle::id(cell.handle());
        assert_eq!(place_of(cell.handle()), Some(home));
        for (moves, vp) in (1..).zip(vps.iter().cycle().skip(1).take(2 * vps.len())) {
            let report =
                move_to(cell.handle(), *vp, || Replacement::swappable(Plain(AtomicU64::new(0), &DROPPED)));
            assert_eq!(report.unwrap().parts, 1);
            let misses = info_of(id).unwrap().misses;
            assert_eq!(cell.get(), 1);
            // The entry at the home leads to the new object: the call missed once, and no earlier object is
            // left to pass it on.
            let info = info_of(id).unwrap();
            let found = (info.id, info.home, info.place, info.misses - misses);
            assert_eq!(found, (id, Some(home), Some(*vp), 1));
            squall_rcu::barrier().unwrap();
            assert_eq!(DROPPED.load(Relaxed), moves, "an earlier place still has its object");
        }
    })
    .unwrap();
}

#[test]
fn to_04_a_call_goes_to_the_place_of_the_object() {
    let _alone = alone();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let vps = vps();
    Vp::with_vp(vps[0], || {
        let cell = swappable::<dyn Cell, _>(Plain(AtomicU64::new(0), &DROPPED));
        let last = *vps.last().unwrap();
        let node = machine().clusters(ClusterSize::Cpu).cluster_of(last);
        let make = || Replacement::swappable(Plain(AtomicU64::new(0), &DROPPED));
        move_to(cell.handle(), (ClusterSize::Cpu, node), make).unwrap();
        let call = ship_to(cell.handle(), |cell| {
            cell.add(2);
            (cell.get(), Vp::current())
        });
        assert_eq!(call.unwrap().wait().unwrap(), (2, last));
        let handle = cell.handle();
        drop(cell);
        assert_eq!(place_of(handle), None);
        assert!(ship_to(handle, |cell| cell.try_get()).unwrap().wait().unwrap().is_err());
    })
    .unwrap();
}

#[test]
fn an_object_that_cannot_move_stays() {
    let _alone = alone();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let cell = shared::<dyn Cell, _>(Plain(AtomicU64::new(3), &DROPPED));
    let before = place_of(cell.handle());
    let target = (ClusterSize::Machine, Cluster::new(0));
    let make = || Replacement::swappable(Plain(AtomicU64::new(0), &DROPPED));
    assert!(matches!(move_to(cell.handle(), target, make), Err(MoveError::Swap(_))));
    assert_eq!((place_of(cell.handle()), cell.get()), (before, 3));
}

#[test]
fn a_move_inside_an_operation_is_an_error_wherever_the_target_is() {
    let _alone = alone();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let cell = swappable::<dyn Cell, _>(Plain(AtomicU64::new(1), &DROPPED));
    for vp in vps() {
        let moved = squall_rcu::pin(|_| {
            move_to(cell.handle(), vp, || Replacement::swappable(Plain(AtomicU64::new(0), &DROPPED)))
        });
        let Err(MoveError::Swap(error)) = moved else { panic!("{vp}: it moved inside an operation") };
        assert!(error.to_string().contains("operation"), "{error}");
    }
    assert_eq!(cell.get(), 1);
}

#[squall_macros::interface(crate = squall_core)]
trait Service: Send + Sync {
    #[blocking]
    fn step(&self) -> (PendingCall<()>, bool);
}

/// Ships a call to the caller's own VP, which that thread serves.
struct Server(Arc<AtomicBool>);

impl Service for Server {
    fn step(&self) -> (PendingCall<()>, bool) {
        let ran = self.0.clone();
        // In an operation, so that the call is queued.
        let call = squall_rcu::pin(|_| ship(Vp::current(), move || ran.store(true, Relaxed)).unwrap());
        squall_rcu::pin(|_| ());
        (call, self.0.load(Relaxed) || serve() > 0)
    }
}

#[test]
fn no_shipped_call_runs_inside_a_method() {
    let _alone = alone();
    Vp::with_vp(vps()[0], || {
        let ran = Arc::new(AtomicBool::new(false));
        let server = shared::<dyn Service, _>(Server(ran.clone()));
        let _serving = serve_here();
        let (call, ran_inside) = server.step();
        assert!(!ran_inside);
        squall_rcu::pin(|_| ());
        assert!(ran.load(Relaxed) && call.is_finished());
    })
    .unwrap();
}

#[test]
fn a_shipped_closure_sees_no_attributes_of_the_code_around_it() {
    let _alone = alone();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    static PRIORITY: Attribute<u32> = Attribute::new("priority", 5);
    let here = vps()[0];
    Vp::with_vp(here, || {
        let cell = shared::<dyn Cell, _>(Plain(AtomicU64::new(0), &DROPPED));
        let handle = cell.handle();
        let received = move || receive(handle, |call| call.get(&PRIORITY));
        let look = move || {
            let mine = with(handle, (&PRIORITY, 1), |_| received()).unwrap();
            (received(), mine, std::thread::current().id())
        };
        let seen = (None, Some(1), std::thread::current().id());
        with(handle, (&PRIORITY, 9), |_| {
            let _serving = serve_here();
            // The thread serves the call when it leaves the operation.
            let served = squall_rcu::pin(|_| ship(here, look).unwrap());
            assert_eq!(served.wait().unwrap(), seen);
            assert_eq!(received(), Some(9));
            // This call runs at once.
            assert_eq!(ship(here, look).unwrap().wait().unwrap(), seen);
            assert_eq!(received(), Some(9));
        })
        .unwrap();
    })
    .unwrap();
}
