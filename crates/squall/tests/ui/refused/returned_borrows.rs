//! Results that would borrow from the object after the call.

use squall::interface;
use std::borrow::Cow;

#[interface]
trait Borrows: Send + Sync {
    fn plain(&self) -> &u8;
    fn exclusive(&self) -> &mut Vec<u8>;
    fn inside(&self) -> Option<&str>;
    fn deep(&self) -> Result<(u8, [Vec<&str>; 2]), ()>;
    fn cow(&self) -> Cow<'_, str>;
    fn call(&self) -> Box<dyn FnMut() + '_>;
    fn argument<'a>(&self, text: &'a str) -> (&'a str, &str);
    fn function<'a>(&self, text: &'a str) -> Box<dyn Fn(&'a u8) + '_>;
}

fn main() {}
