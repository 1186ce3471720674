//! Objects that hold references to objects, and methods that call them.

use std::sync::OnceLock;

use super::*;

/// One of a list, or of a ring.
#[interface]
pub trait Node: Send + Sync {
    /// The next one.
    fn next(&self) -> Option<Handle<dyn Node>>;
    /// Sets it, once.
    fn link(&self, next: Handle<dyn Node>);
    /// Asks that many nodes, from this one on, who they are, and adds that up.
    fn walk(&self, steps: u64) -> u64;
    /// Calls the next one, which has to be there.
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
fn a_gone_neighbour_is_an_error_and_no_more() {
    let (first, second) = (node(1), node(10));
    first.link(second.handle());
    Owned::destroy(second);
    assert_eq!(first.ask().unwrap_err().method(), "walk");
    assert!(panic_of(|| _ = first.walk(1)).contains("walk"));
    assert_eq!(first.walk(0), 1);
}

/// A reference that stands for an object itself: another interface, told by a parameter.
#[interface]
pub trait Directory<I: ?Sized + 'static>: Send + Sync {
    /// What is known by that name.
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

/// A reference is an implementor, so it can be the representative of another object.
#[test]
fn an_object_that_is_a_reference() {
    let counter: Owned<dyn Hits> = shared(Count::default());
    let front: Owned<dyn Hits> = shared(counter.handle());
    front.add(3);
    assert_eq!(counter.total(), 3);
    Owned::destroy(counter);
    // The object in front is there; what it does errs as the caller asked it to.
    assert!(front.try_total().unwrap_err().to_string().contains("total"));
    assert!(panic_of(|| _ = front.total()).contains("total"));
}
