//! More extended interfaces than ids of an object.

use squall::interface;

macro_rules! bases {
    ($($base:ident)*) => { $(#[interface] trait $base: Send + Sync {})* };
}
bases!(A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15);

#[interface]
trait Fifteen: A0 + A1 + A2 + A3 + A4 + A5 + A6 + A7 + A8 + A9 + A10 + A11 + A12 + A13 + A14 + Send {}

#[interface]
trait Sixteen:
    A0 + A1 + A2 + A3 + A4 + A5 + A6 + A7 + A8 + A9 + A10 + A11 + A12 + A13 + A14 + Send + A15
{
}

fn main() {}
