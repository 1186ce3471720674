//! Reserved names.

use squall::interface;

#[interface]
trait Names: Send + Sync {
    fn add(&self);
    fn try_add(&self) -> bool;
    fn r#type(&self);
    fn try_type(&self);
    fn handle(&self);
}

fn main() {}
