//! What stands in a trait and is no method.

use squall::interface;

macro_rules! methods {
    () => {
        fn add(&self);
    };
}

#[interface]
trait Items: Send + Sync {
    const MAX: usize;
    type Value: Send;
    methods!();
}

fn main() {}
