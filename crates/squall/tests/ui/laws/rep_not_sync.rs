//! A representative must be `Sync`, since many threads call it.

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
