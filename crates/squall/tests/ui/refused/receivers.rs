//! Receivers other than `&self`.

use squall::interface;
use std::pin::Pin;
use std::sync::Arc;

#[interface]
trait Receivers: Send + Sync {
    fn exclusive(&mut self);
    fn exclusively(self: &mut Self);
    fn value(self);
    fn boxed(self: Box<Self>);
    fn shared(self: Arc<Self>);
    fn pinned(self: Pin<&Self>);
    fn forever(&'static self);
    fn named<'a>(&'a self, into: &mut Vec<&'a u8>);
    fn nobody();
    fn made(from: u8);
}

fn main() {}
