//! Calls of destroyed objects.

use std::error::Error;
use std::io;
use std::sync::mpsc;

use super::*;

/// An error type of the user.
#[derive(Debug)]
pub enum Refusal {
    /// The object was destroyed.
    Gone(CallError),
    /// The store is empty.
    Empty,
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Refusal {
        Refusal::Gone(error)
    }
}

type Boxed = Box<dyn Error + Send + Sync>;
/// A result by another name.
pub type Answer<T> = Result<T, Refusal>;

/// Methods with errors of many types.
#[interface]
pub trait Fallible<E: From<CallError> + 'static, F: 'static>: Send + Sync {
    /// An error of the standard library.
    fn io(&self) -> io::Result<u64>;
    /// A boxed error.
    fn boxed(&self) -> Result<u64, Boxed>;
    /// The user's error, by an alias.
    fn own(&self) -> Answer<u64>;
    /// Squall's error.
    fn call(&self) -> Result<u64, CallError>;
    /// A parameter that can carry the error.
    fn open(&self) -> Result<(), E>;
    /// A parameter without bounds.
    fn closed(&self) -> Result<(), F>;
    /// A type that cannot carry the error.
    fn text(&self) -> Result<u64, String>;
    /// An option.
    fn option(&self) -> Option<u64>;
    /// A unit result.
    fn nothing(&self);
    /// A blocking method with an error.
    #[blocking]
    fn wait(&self) -> io::Result<()>;
}

impl<E: From<CallError> + 'static, F: 'static> Fallible<E, F> for Count {
    fn io(&self) -> io::Result<u64> {
        Ok(self.total())
    }
    fn boxed(&self) -> Result<u64, Boxed> {
        Err("boxed".into())
    }
    fn own(&self) -> Answer<u64> {
        Err(Refusal::Empty)
    }
    fn call(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn open(&self) -> Result<(), E> {
        Ok(())
    }
    fn closed(&self) -> Result<(), F> {
        Ok(())
    }
    fn text(&self) -> Result<u64, String> {
        Err("text".into())
    }
    fn option(&self) -> Option<u64> {
        None
    }
    fn nothing(&self) {}
    fn wait(&self) -> io::Result<()> {
        Ok(())
    }
}

type All = dyn Fallible<Refusal, CallError>;

fn gone() -> Handle<All> {
    let object: Owned<All> = shared(Count::default());
    object.handle()
}

#[test]
fn errors_of_the_method_pass_through() {
    let object: Owned<All> = shared(Count::default());
    assert_eq!(object.io().unwrap(), 0);
    assert_eq!(object.boxed().unwrap_err().to_string(), "boxed");
    assert!(matches!(object.own(), Err(Refusal::Empty)));
    assert_eq!(object.text().unwrap_err(), "text");
    assert!(matches!(object.try_own(), Ok(Err(Refusal::Empty))));
}

#[test]
fn results_that_can_carry_the_error_do() {
    // Inside an operation the slot keeps the class of the destroyed object.
    let object = squall::rcu::pin(|_| {
        let object = gone();
        let message = object.try_io().unwrap_err().to_string();
        assert_eq!(object.io().unwrap_err().to_string(), message);
        object
    });
    let boxed = object.boxed().unwrap_err();
    assert_eq!(boxed.downcast_ref::<CallError>().expect("ours").method(), "boxed");
    assert!(matches!(object.own(), Err(Refusal::Gone(error)) if error.method() == "own"));
    assert_eq!(object.call().unwrap_err().method(), "call");
    assert!(matches!(object.open(), Err(Refusal::Gone(error)) if error.method() == "open"));
    assert!(object.wait().unwrap_err().to_string().contains("wait"));
}

#[test]
fn others_panic() {
    squall::rcu::pin(|_| {
        let object = gone();
        // The bounds in the trait decide for all types, so a parameter without bounds carries no error.
        assert_eq!(panic_of(|| drop(object.closed())), object.try_closed().unwrap_err().to_string());
        assert_eq!(panic_of(|| drop(object.text())), object.try_text().unwrap_err().to_string());
        assert_eq!(panic_of(|| _ = object.option()), object.try_option().unwrap_err().to_string());
        assert_eq!(panic_of(|| object.nothing()), object.try_nothing().unwrap_err().to_string());
    });
}

/// Returns the file and line of the first panic of `call`, from the panic hook.
fn place_of(call: impl FnOnce() + Send + 'static) -> (String, u32) {
    let (tell, told) = mpsc::channel();
    let before = std::panic::take_hook();
    let thread = std::thread::Builder::new().name("place".into());
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|at| (at.file().to_owned(), at.line()));
        match std::thread::current().name() {
            Some("place") => tell.send(place).expect("the test waits for the place"),
            _ => before(info),
        }
    }));
    thread.spawn(call).expect("a thread").join().expect_err("a panic");
    let place = told.recv().expect("the hook was called");
    drop(std::panic::take_hook());
    place.expect("a location")
}

/// Only this test sets the panic hook, which belongs to the process.
#[test]
fn a_panic_is_at_the_callers_line() {
    const IN_GENERIC: u32 = line!() + 2;
    fn generic<H: Hits>(hits: &H) -> u64 {
        hits.total()
    }
    let object: Owned<dyn Hits> = shared(Count::default());
    let handle = object.handle();
    let failing = gone();
    drop(object);

    let line = line!();
    let plain = place_of(move || handle.add(1));
    assert_eq!(plain, (file!().into(), line + 1));
    let provided = place_of(move || handle.hit());
    assert_eq!(provided, (file!().into(), line + 3));
    let result = place_of(move || drop(failing.text()));
    assert_eq!(result, (file!().into(), line + 5));
    let through_generic = place_of(move || _ = generic(&handle));
    assert_eq!(through_generic, (file!().into(), IN_GENERIC));
    let through_a_function = place_of(move || {
        let call: fn(&Handle<dyn Hits>) = Hits::hit;
        call(&handle);
    });
    assert_ne!(through_a_function.0, "", "no caller is known there, and it is no less a panic");
}
