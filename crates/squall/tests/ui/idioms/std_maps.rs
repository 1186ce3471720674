//! Code for `std`'s maps that would have another meaning here. It must not compile.

use squall::objects::map::{self, MapExt};

fn main() {
    let lists = map::shared::<u64, Vec<u64>>();
    lists.get(&1).unwrap().push(2);
    lists.get_mut(&1).unwrap().push(2);
    lists.entry(1).and_modify(|list| *list + 1).or_default();
    let counts = map::shared::<u64, u64>();
    *counts.get(&1).unwrap() += 1;
    let _ = counts[&1];
    for (_, count) in counts.iter_mut() {
        *count += 1;
    }
    for count in counts.values_mut() {
        *count += 1;
    }
    match counts.entry(1) {
        std::collections::hash_map::Entry::Occupied(_) => {}
        std::collections::hash_map::Entry::Vacant(_) => {}
    }
    let second = counts.clone();
    drop(second);
}
