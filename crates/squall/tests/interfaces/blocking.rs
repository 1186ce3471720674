//! Methods that wait.

use super::*;

/// A meeting of two.
#[interface]
pub trait Meeting: Send + Sync {
    /// Waits for the other.
    #[blocking]
    fn meet(&self) -> u64;
    /// How often somebody came.
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
    let reference = place.co();
    let other = std::thread::spawn(move || reference.try_meet().unwrap());
    let mine = reference.meet();
    assert_eq!(mine + other.join().unwrap(), 1);
    assert_eq!(reference.met(), 2);
    place.destroy();
    assert_eq!(reference.try_meet().unwrap_err().method(), "meet");
    assert!(panic_of(|| _ = reference.meet()).contains("meet"));
}
