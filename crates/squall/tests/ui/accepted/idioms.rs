//! The control of `ui/idioms`: what one writes here instead.

use squall::objects::lock::AdaptiveLock;
use squall::objects::map::{self, Compute, MapExt};
use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};

fn main() {
    let lists = map::shared::<u64, Vec<u64>>();
    lists.entry(1).and_modify(|list| list.push(1)).or_insert_with(|| vec![1]);
    assert_eq!(lists.update_in_place(&1, |list| list.push(2)), Some(()));
    assert_eq!(lists.get_cloned(&1), Some(vec![1, 2]));
    let counts = map::shared::<u64, u64>();
    assert_eq!(*counts.entry(1).and_modify(|count| *count += 1).or_insert(5), 5);
    assert!(counts.update(&1, |count| count + 1));
    counts.alter_all(|_, count| count + 1);
    counts.compute(1, |count| Compute::Put(count.map_or(0, |count| count + 1)));
    assert_eq!(counts.get(&1), Some(8));
    assert!(counts.remove_if(&1, |count| *count == 8));
    let list = read_mostly::shared(vec![1]);
    list.update(|list| [list.as_slice(), &[2]].concat());
    list.set([list.get_cloned().as_slice(), &[3]].concat());
    assert_eq!(list.read(Vec::len), 3);
    let lock = AdaptiveLock::new(1);
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 2);
}
