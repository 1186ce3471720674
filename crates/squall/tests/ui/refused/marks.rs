//! Misuse of `#[blocking]`, also under conditions.

use squall::interface;

#[interface]
trait Marks: Send + Sync {
    #[blocking(seconds = 3)]
    fn arguments(&self);
    #[blocking]
    #[blocking]
    fn twice(&self);
    #[cfg_attr(all(), blocking)]
    fn sometimes(&self);
    fn argument(&self, #[cfg(all())] n: u8);
}

fn main() {}
