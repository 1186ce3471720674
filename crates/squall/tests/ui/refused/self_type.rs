//! The type `Self` in signatures.

use squall::interface;

#[interface]
trait Selves: Send + Sync {
    fn value(&self, other: Box<Self>);
    fn compare(&self, other: &Self) -> bool;
    fn copy(&self) -> Option<Box<Self>>;
    fn into(&self)
    where
        u8: Into<Self>,
        Self: Sized;
}

fn main() {}
