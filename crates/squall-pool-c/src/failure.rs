//! Failures of calls, and the last one of each thread.

use crate::ffi::{NoCancellation, SquallCode};
use pool::{PoolError, PoolErrorKind};
use squall_fleet::RequestError;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason why a call has not done its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: SquallCode,
    text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    pub(crate) fn new(code: SquallCode, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(SquallCode::Argument, text)
    }

    pub(crate) fn system(text: impl Into<String>) -> Failure {
        Failure::new(SquallCode::System, text)
    }

    /// The failure of a request to the group, for the object `object`.
    pub(crate) fn request(object: impl std::fmt::Display, error: RequestError) -> Failure {
        Failure::new(request_code(error), format!("{object}: {error}"))
    }
}

fn request_code(error: RequestError) -> SquallCode {
    match error {
        RequestError::Refused(_) => SquallCode::Refused,
        RequestError::NoMember => SquallCode::Closed,
        RequestError::TimedOut => SquallCode::TimedOut,
        _ => SquallCode::System,
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        let code = match error.kind {
            PoolErrorKind::NotJoined(request) => request_code(request),
            PoolErrorKind::LargeElement { .. } | PoolErrorKind::TooLarge { .. } => SquallCode::TooLarge,
            PoolErrorKind::TimedOut { .. } => SquallCode::TimedOut,
            PoolErrorKind::Unknown => SquallCode::Unknown,
            PoolErrorKind::Closed => SquallCode::Closed,
            _ => SquallCode::System,
        };
        Failure::new(code, error.to_string())
    }
}

struct Last {
    code: SquallCode,
    /// Absent after a success.
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { code: SquallCode::Ok, text: None }) };
}

fn note(code: SquallCode, text: Option<String>) {
    let text = text.map(|text| {
        let mut bytes = text.into_bytes();
        bytes.retain(|byte| *byte != 0);
        CString::new(bytes).unwrap_or_default()
    });
    // A thread that ends has no last failure any more.
    _ = LAST.try_with(|last| *last.borrow_mut() = Last { code, text });
}

/// Returns the code of this thread's last call.
pub(crate) fn last_code() -> SquallCode {
    LAST.try_with(|last| last.borrow().code).unwrap_or(SquallCode::Ok)
}

/// Returns the text of this thread's last failure, which is empty after a success. It stays until the next
/// call of this thread.
pub(crate) fn last_text() -> *const c_char {
    let of_thread = LAST.try_with(|last| last.borrow().text.as_ref().map(|text| text.as_ptr()));
    of_thread.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Runs a call of C: notes its failure for the thread, and turns it into the value that C gets (pool-c/I1).
pub(crate) fn border<T>(call: impl FnOnce() -> Result<T, Failure>, failed: impl FnOnce(&Failure) -> T) -> T {
    let _guard = NoCancellation::new();
    // The data behind handles has locks of its own, which ignore poison.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    match result {
        Ok(value) => {
            note(SquallCode::Ok, None);
            value
        }
        Err(failure) => {
            let value = failed(&failure);
            note(failure.code, Some(failure.text));
            value
        }
    }
}

fn panicked(payload: &(dyn Any + Send)) -> Failure {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Failure::new(SquallCode::Panic, format!("a fault of the library, please report it: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (SquallCode, Option<CString>) {
        LAST.with(|last| (last.borrow().code, last.borrow().text.clone()))
    }

    #[test]
    fn a_panic_becomes_the_value_of_a_failure() {
        let value = border(|| -> Result<i32, Failure> { panic!("by the test") }, |_| -7);
        assert_eq!((value, last_code()), (-7, SquallCode::Panic));
        assert!(last().1.unwrap().to_str().unwrap().ends_with("by the test"));
        assert_eq!(border(|| Ok(3), |_| -7), 3);
        assert_eq!(last(), (SquallCode::Ok, None));
    }

    #[test]
    fn the_last_failure_belongs_to_a_thread() {
        border(|| Err(Failure::argument("here\0 and there")), |_| ());
        std::thread::spawn(|| assert_eq!(last(), (SquallCode::Ok, None))).join().unwrap();
        assert_eq!(last(), (SquallCode::Argument, Some(c"here and there".to_owned())));
    }
}
