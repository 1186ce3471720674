//! A borrow hidden in a type cannot leave a call.

use squall::interface;

#[interface]
trait Hits: Send + Sync {
    #[allow(mismatched_lifetime_syntaxes)]
    fn each(&self) -> std::slice::Iter<u64>;
}

fn main() {}
