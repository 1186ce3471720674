//! A representative is called by many threads, so it is `Sync`.

use squall::interface;
use std::cell::Cell;

#[interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
}

struct Plain(Cell<u64>);

impl Hits for Plain {
    fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
    }
}

fn main() {}
