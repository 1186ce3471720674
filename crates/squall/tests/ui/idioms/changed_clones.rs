//! Closures get shared references, and an entry's methods return clones. Code that would change these must
//! not compile.

use squall::objects::map::{self, MapExt};

fn main() {
    let lists = map::shared::<u64, Vec<u64>>();
    lists.entry(1).or_default().push(1);
    lists.entry(1).or_insert_with(Vec::new).push(1);
    let pairs = map::shared::<u64, [u64; 2]>();
    pairs.entry(1).or_insert([0, 0])[1] += 1;
    let counts = map::shared::<u64, u64>();
    *counts.entry(1).or_insert(0) += 1;
    *counts.entry(1).or_insert_with_key(|key| *key) += 1;
    counts.retain(|_, count| {
        *count += 1;
        true
    });
    if let Ok(mut count) = counts.entry(1).or_try_insert_with(|| Ok::<u64, ()>(1)) {
        *count += 1;
    }
}
