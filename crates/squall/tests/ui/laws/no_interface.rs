//! An object has an interface, and not any trait.

use squall::Owned;

trait Hits {
    fn add(&self, n: u64);
}

fn call(_: Owned<dyn Hits>) {}

fn main() {
    let _ = call;
}
