//! Work on values by a thread of its own.

use squall_sys::sync::{Mutex, StdArc as Arc, lock, thread};

/// Starts a thread that applies `act` to a value. Returns the value if no thread can be started.
pub(crate) fn on_thread<T: Send + 'static>(name: &str, value: T, act: fn(T)) -> Result<(), T> {
    // A closure that does not run would drop what it owns here.
    let kept = Arc::new(Mutex::new(Some(value)));
    let take = |kept: &Mutex<Option<T>>| lock(kept, "a value for another thread").take();
    let given = kept.clone();
    let started =
        thread::Builder::new().name(name.into()).spawn(move || take(&given).into_iter().for_each(act));
    match started {
        Ok(_) => Ok(()),
        Err(_) => take(&kept).map_or(Ok(()), Err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_value_goes_to_a_thread_of_that_name() {
        let (sender, names) = mpsc::channel();
        let act = |sender: mpsc::Sender<_>| {
            sender.send(thread::current().name().map(str::to_owned)).unwrap();
        };
        assert!(on_thread("squall-test", sender, act).is_ok());
        assert_eq!(names.recv().unwrap().as_deref(), Some("squall-test"));
    }
}
