//! Objects that hold handles of other objects and call them.

use std::sync::OnceLock;

use super::*;

/// A node of a list or of a ring.
#[interface]
pub trait Node: Send + Sync {
    /// Returns the next node.
    fn next(&self) -> Option<Handle<dyn Node>>;
    /// Sets the next node, once.
    fn link(&self, next: Handle<dyn Node>);
    /// Adds up the values of this node and of `steps` nodes after it.
    fn walk(&self, steps: u64) -> u64;
    /// Calls the next node, which must exist.
    fn ask(&self) -> Result<u64, CallError>;
}

struct Link {
    value: u64,
    next: OnceLock<Handle<dyn Node>>,
}

impl Node for Link {
    fn next(&self) -> Option<Handle<dyn Node>> {
        self.next.get().copied()
    }
    fn link(&self, next: Handle<dyn Node>) {
        self.next.set(next).expect("linked once");
    }
    fn walk(&self, steps: u64) -> u64 {
        match (steps, self.next()) {
            (1.., Some(next)) => self.value + next.walk(steps - 1),
            _ => self.value,
        }
    }
    fn ask(&self) -> Result<u64, CallError> {
        self.next().expect("linked").try_walk(0)
    }
}

fn node(value: u64) -> Owned<dyn Node> {
    shared(Link { value, next: OnceLock::new() })
}

#[test]
fn one_calls_another() {
    let (first, second) = (node(1), node(10));
    first.link(second.handle());
    assert_eq!(first.walk(5), 11);
    assert_eq!(first.next().expect("linked").walk(0), 10);
}

#[test]
fn a_ring_calls_the_same_object_again() {
    let (first, second, myself) = (node(1), node(10), node(100));
    first.link(second.handle());
    second.link(first.handle());
    assert_eq!(first.walk(4), 1 + 10 + 1 + 10 + 1);
    myself.link(myself.handle());
    assert_eq!(myself.walk(2), 300);
}

#[test]
fn a_destroyed_neighbour_is_an_error() {
    let (first, second) = (node(1), node(10));
    first.link(second.handle());
    Owned::destroy(second);
    assert_eq!(first.ask().unwrap_err().method(), "walk");
    assert!(panic_of(|| _ = first.walk(1)).contains("walk"));
    assert_eq!(first.walk(0), 1);
}

/// Handles of any interface, as a parameter.
#[interface]
pub trait Directory<I: ?Sized + 'static>: Send + Sync {
    /// Finds a handle by name.
    fn find(&self, name: &str) -> Option<Handle<I>>;
}

struct Known<I: ?Sized>(Vec<(&'static str, Handle<I>)>);

impl<I: ?Sized + 'static> Directory<I> for Known<I>
where
    Handle<I>: Send + Sync,
{
    fn find(&self, name: &str) -> Option<Handle<I>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, found)| *found)
    }
}

#[test]
fn a_directory_of_objects() {
    let (one, two) = (node(1), node(2));
    let all = Known(vec![("one", one.handle()), ("two", two.handle())]);
    let directory: Owned<dyn Directory<dyn Node>> = shared(all);
    assert_eq!(directory.find("two").expect("known").walk(0), 2);
    assert!(directory.find("three").is_none());
}

/// A handle implements its interface, so it can be the representative of another object.
#[test]
fn an_object_that_is_a_handle() {
    let counter: Owned<dyn Hits> = shared(Count::default());
    let front: Owned<dyn Hits> = shared(counter.handle());
    front.add(3);
    assert_eq!(counter.total(), 3);
    Owned::destroy(counter);
    // The object in front lives, and passes the error on.
    assert!(front.try_total().unwrap_err().to_string().contains("total"));
    assert!(panic_of(|| _ = front.total()).contains("total"));
}
