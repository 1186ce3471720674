//! A representative must implement its interface.

use squall::{Owned, interface, shared};

#[interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
}

struct Other;

fn main() {
    let _: Owned<dyn Hits> = shared(Other);
}
