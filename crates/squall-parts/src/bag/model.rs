//! Models of the emptiness that `get` reports, and their twins with one weakened site.

#[cfg(loom)]
use super::sites;
use super::{Bag, Client, Strategy};
#[cfg(loom)]
use squall_lock::ModelVp as Vp;
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::Vp;
use squall_sys::sync::Arc;
use squall_sys::sync::thread;

/// A bag with shards in a model, and these elements in the second one.
fn bag(strategy: Strategy, shards: usize, elements: &[u32]) -> Arc<Bag<u32>> {
    let bag = Bag::make(shards);
    bag.attributes().set_strategy(strategy);
    (0..shards).for_each(|at| _ = client(&bag, at));
    client(&bag, 1).put_batch(elements.iter().copied());
    Arc::new(bag)
}

fn client(bag: &Bag<u32>, at: usize) -> Client<'_, u32> {
    bag.client_with(at, |elements| VpLock::new(Vp::new(at as u32), elements))
}

/// A client puts an element into one shard and then takes one of another. The bag is never empty. The other
/// client looks at the shards in the order 2, 0, 1.
fn never_empty() {
    let bag = bag(Strategy::Distributed, 3, &[1]);
    let other = {
        let bag = bag.clone();
        thread::spawn(move || {
            client(&bag, 0).put(2);
            client(&bag, 1).shard.get()
        })
    };
    let got = client(&bag, 2).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    let all = usize::from(got.is_some()) + usize::from(other.join().unwrap().is_some()) + bag.len();
    assert_eq!(all, 2);
}

/// A client takes one of two elements and moves the other to its own shard. Meanwhile another client looks
/// for one.
fn in_transit() {
    let bag = bag(Strategy::BulkTransfer, 2, &[1, 2]);
    let mover = {
        let bag = bag.clone();
        thread::spawn(move || client(&bag, 0).get())
    };
    let got = client(&bag, 1).get();
    assert!(got.is_some(), "empty, although two elements were there and one client took one");
    assert!(mover.join().unwrap().is_some());
    assert_eq!(bag.len(), 0);
}

/// An idle client moves the only element to another shard. Meanwhile a third client looks for one.
fn pushed() {
    let bag = bag(Strategy::BackgroundPush, 3, &[1]);
    bag.attributes().set_push_above(0);
    let pusher = {
        let bag = bag.clone();
        thread::spawn(move || bag.balance(client(&bag, 1).shard))
    };
    let got = client(&bag, 2).get();
    pusher.join().unwrap();
    assert_eq!((got, bag.len()), (Some(1), 0));
}

/// A client that comes late makes its shard, puts an element there, and takes the only other one.
fn late() {
    let bag = Arc::new(Bag::make(2));
    client(&bag, 0).put(1);
    let other = {
        let bag = bag.clone();
        thread::spawn(move || {
            client(&bag, 1).put(2);
            client(&bag, 0).shard.get()
        })
    };
    let got = client(&bag, 0).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_none_or(|it| Some(it) != got));
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

models! { never_empty in_transit pushed late }

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
