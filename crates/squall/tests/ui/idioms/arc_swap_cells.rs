//! Code for `arc_swap` that would have another meaning here. It must not compile.

use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use squall::rcu::Rcu;
use std::sync::Arc;

fn main() {
    let lists = read_mostly::shared(vec![1]);
    lists.get().push(2);
    let _ = lists.load();
    lists.store(Arc::new(vec![2]));
    let _old = lists.swap(Arc::new(vec![2]));
    lists.rcu(|list| list.clone());
    let cell = Rcu::new(Box::new(1));
    let _ = cell.load();
    cell.store(Arc::new(2));
}
