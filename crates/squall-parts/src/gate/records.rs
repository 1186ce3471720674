//! Events of a gate's control, for the trace of the process.
//!
//! Problem: a service that stands still may have a stopped gate. Idea: the control emits each change of the
//! gate. Requests emit no event.
//!
//! - I1. `gate.close` comes after the state was set and waiting requests were rejected. `gate.open` comes
//!   after they were woken. `gate.drained` comes from the stop or shutdown that saw the last request leave.
//!
//! Cost: off, one load and a branch for each event of the control.
//! Source: KT-18 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.2).

use squall_sys::trace::{Kind, Subject, emit, is_on};

const STATES: &[&str] = &["stopped", "shut-down"];

static CLOSE: Kind = Kind::new("gate.close", ["state", "inside"]).with_codes(0, STATES);
static DRAINED: Kind = Kind::new("gate.drained", ["state", ""]).with_codes(0, STATES);
static OPEN: Kind = Kind::new("gate.open", ["by", ""]).with_codes(0, &["restart", "give-up"]);

/// State of a gate that admits no requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closed {
    Stopped,
    ShutDown,
}

/// Reason why a gate admits requests again.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Restart,
    /// A stop or a shutdown ended without success.
    GiveUp,
}

/// Emits that the gate is closed. `inside` counts the requests that have not left.
pub(super) fn closed<G>(gate: &G, state: Closed, inside: impl FnOnce() -> u64) {
    if is_on() {
        emit(&CLOSE, Subject::at(gate), [state as u64, inside()]);
    }
}

/// Emits that no request is inside the closed gate.
pub(super) fn drained<G>(gate: &G, state: Closed) {
    emit(&DRAINED, Subject::at(gate), [state as u64, 0]);
}

/// Emits that the gate admits requests again.
pub(super) fn opened<G>(gate: &G, by: By) {
    emit(&OPEN, Subject::at(gate), [by as u64, 0]);
}

#[cfg(all(test, not(any(loom, squall_model))))]
mod tests {
    use crate::gate::{GateError, Limits, SharedGate, SpreadRequests};
    use squall_sys::trace::{Kind, Subject, install, switch};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    type Event = (&'static str, &'static str, u64);

    static SEEN: Mutex<Vec<(Subject, Event)>> = Mutex::new(Vec::new());

    fn sink(kind: &'static Kind, subject: Subject, [code, value]: [u64; 2]) {
        let event = (kind.name(), kind.code_name(0, code).unwrap_or("?"), value);
        SEEN.lock().expect("no thread panics holding it").push((subject, event));
    }

    fn take<T>(gate: &T) -> Vec<Event> {
        let mut seen = SEEN.lock().expect("no thread panics holding it");
        let (ours, others) = seen.drain(..).partition(|(of, _)| *of == Subject::at(gate));
        *seen = others;
        ours.into_iter().map(|(_, event)| event).collect()
    }

    /// The operations of both sorts of gates.
    struct Operations<'a> {
        stop: &'a dyn Fn(Limits<'_>) -> Result<(), GateError>,
        restart: &'a dyn Fn() -> Result<(), GateError>,
        shutdown: &'a dyn Fn(Limits<'_>) -> Result<(), GateError>,
        enter: &'a dyn Fn(),
        leave: &'a dyn Fn(),
        take: &'a dyn Fn() -> Vec<Event>,
    }

    fn check(gate: &Operations<'_>) {
        let soon = || Limits::after(Duration::ZERO);
        (gate.stop)(Limits::NONE).expect("it is open");
        (gate.restart)().expect("it is stopped");
        assert_eq!((gate.take)(), [], "the trace is off");
        switch(true);
        (gate.stop)(Limits::NONE).expect("it is open");
        assert!((gate.stop)(Limits::NONE).is_err());
        assert_eq!((gate.take)(), [("gate.close", "stopped", 0), ("gate.drained", "stopped", 0)]);
        (gate.restart)().expect("it is stopped");
        assert!((gate.restart)().is_err());
        assert_eq!((gate.take)(), [("gate.open", "restart", 0)]);
        (gate.enter)();
        assert_eq!((gate.stop)(soon()), Err(GateError::TimedOut));
        assert_eq!((gate.take)(), [("gate.close", "stopped", 1), ("gate.open", "give-up", 0)]);
        assert_eq!((gate.shutdown)(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
        assert_eq!((gate.take)(), [("gate.close", "shut-down", 1), ("gate.open", "give-up", 0)]);
        assert_eq!((gate.shutdown)(soon()), Err(GateError::TimedOut));
        assert_eq!((gate.take)(), [("gate.close", "shut-down", 1)]);
        (gate.leave)();
        assert_eq!((gate.take)(), []);
        switch(false);
    }

    #[test]
    fn kt_18_each_change_of_a_gate_is_emitted_once() {
        assert!(install(sink));
        let gate = SharedGate::new();
        check(&Operations {
            stop: &|limits| gate.stop_within(limits),
            restart: &|| gate.restart(),
            shutdown: &|limits| gate.shutdown_within(limits),
            enter: &|| gate.enter().expect("it is open"),
            leave: &|| gate.leave(),
            take: &|| take(&gate),
        });
        let requests = SpreadRequests::new(|| AtomicU64::new(0));
        check(&Operations {
            stop: &|limits| requests.stop(limits),
            restart: &|| requests.restart(),
            shutdown: &|limits| requests.shutdown(limits),
            enter: &|| requests.first().try_enter().expect("it is open"),
            leave: &|| requests.first().leave(),
            take: &|| take(&*requests),
        });
        switch(true);
        let gate = SharedGate::new();
        gate.stop().expect("it is open");
        take(&gate);
        assert_eq!(gate.shutdown_within(Limits::NONE), Ok(()));
        assert_eq!(take(&gate), [("gate.close", "shut-down", 0), ("gate.drained", "shut-down", 0)]);
        switch(false);
    }
}
