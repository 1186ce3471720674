//! Drops of users' types: a panic in one stops no other.
//!
//! Problem: a panic in a user's `Drop` would leave the remaining values of a container undropped. Idea: each
//! panic is caught, and the first one goes on at the end.

use squall_sys::panics::drop_payload;
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs drops, and keeps the first panic. Its own drop resumes that panic, unless the thread panics already.
/// Later panics end where they began; the panic hook has reported them.
#[derive(Default)]
pub struct Drops(Option<Box<dyn Any + Send>>);

impl Drops {
    /// Runs `f`, which drops a value of a user's type.
    pub fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
            self.keep(panic);
        }
    }

    /// Drops a value.
    #[inline]
    pub fn drop<T>(&mut self, value: T) {
        if std::mem::needs_drop::<T>() {
            self.run(|| drop(value));
        }
    }

    /// Keeps a panic that was caught.
    pub fn keep(&mut self, panic: Box<dyn Any + Send>) {
        match self.0 {
            None => self.0 = Some(panic),
            Some(_) => drop_payload(panic),
        }
    }

    /// Calls `f` for each item, and goes on after a call that panics.
    pub fn each<T>(&mut self, items: impl IntoIterator<Item = T>, mut f: impl FnMut(T)) {
        let mut items = items.into_iter();
        // Called again after a panic, so that items without a panic need no `catch_unwind` of their own.
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| items.by_ref().for_each(&mut f))) {
            self.keep(panic);
        }
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        if let Some(panic) = self.0.take() {
            if std::thread::panicking() {
                drop_payload(panic);
            } else {
                resume_unwind(panic);
            }
        }
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drops").field("has_panicked", &self.0.is_some()).finish()
    }
}

/// A vector that drops each item, even if the drop of one panics.
#[derive(Debug)]
pub struct DropEach<T>(pub Vec<T>);

impl<T> Drop for DropEach<T> {
    fn drop(&mut self) {
        Drops::default().each(self.0.drain(..), drop);
    }
}

/// A value with a drop that does not end the process if it panics while the thread panics.
#[derive(Debug)]
pub struct DropQuietly<T>(ManuallyDrop<T>);

impl<T> DropQuietly<T> {
    /// Returns the value, to be dropped with a panic caught.
    #[inline]
    pub fn new(value: T) -> DropQuietly<T> {
        DropQuietly(ManuallyDrop::new(value))
    }
}

impl<T> Deref for DropQuietly<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for DropQuietly<T> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: dropped once, here.
            Drops::default().run(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Loud<'a>(u32, &'a Cell<u32>);

    impl Drop for Loud<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            assert!(!self.0.is_multiple_of(3), "{} of the test", self.0);
        }
    }

    #[test]
    fn all_are_dropped_and_the_first_panic_goes_on() {
        let dropped = Cell::new(0);
        let items = || DropEach((1..=10).map(|n| Loud(n, &dropped)).collect());
        let panic = catch_unwind(AssertUnwindSafe(|| drop(items()))).unwrap_err();
        assert_eq!((panic.downcast_ref::<String>().unwrap().as_str(), dropped.get()), ("3 of the test", 10));
        // A thread that panics already goes on with its own panic.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _items = items();
            let _item = DropQuietly::new(Loud(3, &dropped));
            panic!("another");
        }));
        assert_eq!((panic.unwrap_err().downcast_ref::<&str>(), dropped.get()), (Some(&"another"), 21));
    }
}
