//! Code for `papaya` that would have another meaning here. It must not compile.

use squall::objects::map::{self, Compute, MapExt};

fn main() {
    let counts = map::shared::<u64, u64>();
    let pinned = counts.pin();
    drop(pinned);
    counts.update(1, |value| value + 1);
    counts.update_or_insert(1, |value| value + 1, 0);
    counts.compute(1, |entry| match entry {
        Some((_key, value)) => Compute::Put(value + 1),
        None => Compute::Put(0),
    });
    let _there: &u64 = counts.get(&1).unwrap();
}
