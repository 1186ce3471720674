//! Traits with qualifiers, bounds or parameters that are not allowed.

use squall::interface;

#[interface]
pub unsafe trait Unsafe: Send + Sync {}

#[interface]
trait Local: Send {
    fn add(&self);
}

#[interface]
trait Borrowing<'a, T>: Send + Sync + 'a {
    fn get(&self) -> T;
}

#[interface]
trait SizedOnly: Send + Sync + Sized {}

#[interface]
trait Conditional
where
    Self: Send,
{
}

#[interface]
trait Alike: PartialEq<Self> {}

#[interface]
trait Bound<T: PartialEq<Self>>: Send + Sync {
    fn get(&self) -> T;
}

trait Visit<'a> {}

#[interface]
trait Visitor: for<'a> Visit<'a> {}

#[interface]
#[blocking]
trait Misplaced: Send + Sync {
    fn wait(&self);
}

fn main() {}
