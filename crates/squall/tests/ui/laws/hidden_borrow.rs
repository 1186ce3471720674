//! A borrow that a type hides from the macro does not leave a call either.

use squall::interface;

#[interface]
trait Hits: Send + Sync {
    #[allow(mismatched_lifetime_syntaxes)]
    fn each(&self) -> std::slice::Iter<u64>;
}

fn main() {}
