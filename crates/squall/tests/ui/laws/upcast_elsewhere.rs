//! A handle can be upcast to extended interfaces only.

use squall::{Handle, interface};

#[interface]
trait Named: Send + Sync {
    fn name(&self) -> String;
}

#[interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
}

fn upcast(hits: Handle<dyn Hits>) -> Handle<dyn Named> {
    Handle::upcast::<dyn Named>(hits)
}

fn main() {
    let _ = upcast;
}
