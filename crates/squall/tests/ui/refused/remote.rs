//! Interfaces that other processes cannot call.

use squall::{Handle, interface};

#[interface(version = 2)]
trait Versioned: Send + Sync {}

#[interface(remote)]
trait Map<K: Ord>: Send + Sync {}

#[interface(remote)]
trait Extended: Versioned {}

#[interface(remote)]
trait Hits: Send + Sync {
    fn exclusive(&self, to: &mut u64);
    fn closure(&self, f: &dyn Fn(u64) -> bool) -> bool;
    fn object(&self, other: Handle<dyn Hits>);
    fn function(&self, f: fn(u64) -> u64);
    fn pointer(&self, at: *const u8);
    fn lasting(&self, name: &'static str);
    fn borrowed<'a>(&self, from: &'a str) -> &'a str;
    fn name(&self) -> &'static str;
}

fn main() {}
