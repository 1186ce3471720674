//! Models of the emptiness that `get` reports, and their twins with one weakened site.

#[cfg(loom)]
use super::sites;
use super::{Bag, Strategy};
#[cfg(loom)]
use squall_lock::ModelVp as Vp;
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::Vp;
use squall_sys::sync::thread;
use squall_sys::sync::{Arc, StdArc};

/// A bag with shards in a model, and these elements in the second one.
fn bag(
    strategy: Strategy,
    shards: usize,
    elements: &[u32],
) -> (Arc<Bag<u32>>, Vec<StdArc<super::Shard<u32>>>) {
    let bag = Bag::with_places(shards);
    bag.attributes().set_strategy(strategy);
    let shards: Vec<_> = (0..shards)
        .map(|at| bag.shard_at(at, |elements| VpLock::new(Vp::new(at as u32), elements)))
        .collect();
    bag.put_batch(&shards[1], elements.iter().copied());
    (Arc::new(bag), shards)
}

/// A client puts an element into one shard and then takes one of another. The bag is never empty. The other
/// client looks at the shards in the order 2, 0, 1.
fn never_empty() {
    let (bag, shards) = bag(Strategy::Distributed, 3, &[1]);
    let other = {
        let (bag, first, second) = (bag.clone(), shards[0].clone(), shards[1].clone());
        thread::spawn(move || {
            bag.put(&first, 2);
            second.get()
        })
    };
    let got = bag.get(&shards[2]);
    assert!(got.is_some(), "empty, although an element was there all the time");
    let all = usize::from(got.is_some()) + usize::from(other.join().unwrap().is_some()) + bag.len();
    assert_eq!(all, 2);
}

/// A client takes one of two elements and moves the other to its own shard. Meanwhile another client looks
/// for one.
fn in_transit() {
    let (bag, shards) = bag(Strategy::BulkTransfer, 2, &[1, 2]);
    let mover = {
        let (bag, first) = (bag.clone(), shards[0].clone());
        thread::spawn(move || bag.get(&first))
    };
    let got = bag.get(&shards[1]);
    assert!(got.is_some(), "empty, although two elements were there and one client took one");
    assert!(mover.join().unwrap().is_some());
    assert_eq!(bag.len(), 0);
}

/// Makes a test of each model, which must hold.
macro_rules! models {
    ($($model:ident)*) => { $(
        mod $model {
            #[test]
            fn holds() {
                squall_sys::sync::weaken::check_within(2, super::$model);
            }
        }
    )* };
}

models! { never_empty in_transit }

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, model) in [
        (LEN, "never_empty"),
        (AGAIN, "never_empty"),
        (ARRIVE, "in_transit"),
        (LATE, "in_transit"),
        (EXPECT, "in_transit"),
        (INBOUND, "in_transit"),
        (ENDED, "in_transit"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("bag::model::{model}::holds"));
    }
}
