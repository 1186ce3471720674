//! Methods with qualifiers.

use squall::interface;

#[interface]
trait Qualified: Send + Sync {
    async fn later(&self) -> u8;
    unsafe fn trusting(&self);
    extern "C" fn foreign(&self);
    fn never(&self) -> !;
}

fn main() {}
