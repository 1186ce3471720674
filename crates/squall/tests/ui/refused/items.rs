//! Items of a trait other than methods.

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
