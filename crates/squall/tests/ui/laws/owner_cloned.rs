//! An owner is not cloned, and no copy of the handle is taken for a clone.

use squall::objects::counter::{self, Counter as _};
use squall::objects::map;

fn main() {
    let counter = counter::shared();
    let second = counter.clone();
    drop(counter);
    second.inc();
    let map = map::shared::<u64, u64>();
    let _ = map.clone();
}
