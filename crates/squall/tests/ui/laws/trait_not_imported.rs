//! A method of an object needs its trait. The compiler names the path to import, which exists.

use squall::objects::{counter, map};

fn main() {
    counter::shared().inc();
    map::shared::<u64, u64>().set(1, 1);
}
