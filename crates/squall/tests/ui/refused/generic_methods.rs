//! Generic methods.

use squall::interface;

#[interface]
trait Generic: Send + Sync {
    fn typed<T>(&self, value: T);
    fn bounded<'a, T: Ord + 'a>(&self, value: &'a T);
    fn constant<const N: usize>(&self, value: [u8; N]);
    fn argument(&self, call: impl Fn(u8), calls: &[&mut impl FnMut()]);
    fn returned(&self) -> impl Iterator<Item = u8>;
    fn inside(&self) -> Option<impl Fn() + '_>;
}

fn main() {}
