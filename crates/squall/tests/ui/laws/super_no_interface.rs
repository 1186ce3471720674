//! An interface extends interfaces only.

use squall::interface;

trait Plain {
    fn name(&self) -> String;
}

#[interface]
trait Hits: Plain + Send + Sync {
    fn add(&self, n: u64);
}

fn main() {}
