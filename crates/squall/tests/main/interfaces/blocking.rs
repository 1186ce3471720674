//! Blocking methods.

use squall::rcu::WaitError;

use super::*;

/// A meeting of two.
#[interface]
pub trait Meeting: Send + Sync {
    /// Waits for the other thread.
    #[blocking]
    fn meet(&self) -> u64;
    /// Returns the number of arrivals.
    fn met(&self) -> u64;
}

struct Place(Barrier, AtomicU64);

impl Meeting for Place {
    fn meet(&self) -> u64 {
        self.0.wait();
        self.1.fetch_add(1, Relaxed)
    }
    fn met(&self) -> u64 {
        self.1.load(Relaxed)
    }
}

#[test]
fn two_meet() {
    let place: Owned<dyn Meeting> = shared(Place(Barrier::new(2), AtomicU64::new(0)));
    let handle = place.handle();
    let other = std::thread::spawn(move || handle.try_meet().unwrap());
    let mine = handle.meet();
    assert_eq!(mine + other.join().unwrap(), 1);
    assert_eq!(handle.met(), 2);
    Owned::destroy(place);
    assert_eq!(handle.try_meet().unwrap_err().method(), "meet");
    assert!(panic_of(|| _ = handle.meet()).contains("meet"));
}

/// Finds out whether a method runs inside an operation: there a wait for a grace period fails.
#[interface]
pub trait Whereabouts: Send + Sync {
    /// Not marked.
    fn plain(&self) -> Result<(), WaitError>;
    /// Marked.
    #[blocking]
    fn marked(&self) -> Result<(), WaitError>;
    /// Marked, and provided.
    #[blocking]
    fn provided(&self) -> Result<(), WaitError> {
        squall::rcu::wait()
    }
}

impl Whereabouts for Count {
    fn plain(&self) -> Result<(), WaitError> {
        squall::rcu::wait()
    }
    fn marked(&self) -> Result<(), WaitError> {
        squall::rcu::wait()
    }
}

#[test]
fn the_mark_alone_decides_whether_a_call_is_an_operation() {
    let object: Owned<dyn Whereabouts> = shared(Count::default());
    assert!(matches!(object.plain(), Err(WaitError::InOperation)));
    assert!(matches!(object.try_plain(), Ok(Err(WaitError::InOperation))));
    object.marked().unwrap();
    object.try_marked().unwrap().unwrap();
    object.provided().unwrap();
    object.try_provided().unwrap().unwrap();
}

/// The mark does not end an operation that is open around the call.
#[test]
fn a_marked_method_called_inside_an_operation() {
    let object: Owned<dyn Whereabouts> = shared(Count::default());
    let inside = squall::rcu::pin(|_| object.marked());
    assert!(matches!(inside, Err(WaitError::InOperation)));
}
