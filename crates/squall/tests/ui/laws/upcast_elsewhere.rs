//! A reference is upcast to what its interface extends.

use squall::{CoRef, interface};

#[interface]
trait Named: Send + Sync {
    fn name(&self) -> String;
}

#[interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
}

fn upcast(hits: CoRef<dyn Hits>) -> CoRef<dyn Named> {
    CoRef::upcast::<dyn Named>(hits)
}

fn main() {
    let _ = upcast;
}
