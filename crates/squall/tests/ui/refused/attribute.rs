//! Arguments of the attribute, and its place.

use squall::interface;

#[interface(krate = squall)]
trait Misspelt: Send + Sync {}

#[interface(crate = squall, static)]
trait TooMuch: Send + Sync {}

#[interface(crate)]
trait TooLittle: Send + Sync {}

#[interface]
struct Counter;

#[interface]
/// Documented.
pub(crate) fn function() {}

#[interface]
impl Counter {}

fn main() {}
