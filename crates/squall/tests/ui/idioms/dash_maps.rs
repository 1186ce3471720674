//! Code for `dashmap` that would have another meaning here. It must not compile.

use squall::objects::map::{self, MapExt};

fn main() {
    let counts = map::shared::<u64, u64>();
    *counts.get_mut(&1).unwrap() += 1;
    let (_key, _value) = counts.remove(&1).unwrap();
    counts.remove_if(&1, |_key, value| *value > 1);
    let _ = counts.get(&1).map(|entry| *entry.value());
    counts.iter().for_each(|entry| drop(entry.key()));
    counts.iter_mut().for_each(|mut entry| *entry += 1);
    counts.alter(&1, |_, value| value + 1);
    let _ = counts.try_get(&1).is_present();
}
