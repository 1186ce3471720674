//! An object needs an interface: a plain trait is rejected.

use squall::Owned;

trait Hits {
    fn add(&self, n: u64);
}

fn call(_: Owned<dyn Hits>) {}

fn main() {
    let _ = call;
}
