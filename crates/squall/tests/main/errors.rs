//! The texts of errors: what happened, to which object, and the remedy.

use squall::adapt::control;
use squall::lock::LockError;
use squall::objects::counter::{self, Counter};
use squall::objects::map::{self, MapExt, MapLimit};
use squall::parts::dhash::{Busy, FillError, Revoked};
use squall::parts::gate::{GateError, Rejected, ShutDown};
use squall::parts::replica::Master;
use squall::pervp::{CasError, OutOfMemory};
use squall::policy::attribute::{Attribute, ClassValues, Schema};
use squall::rcu::{PinError, WaitError};
use squall::swap::{SwapFailure, SwapPhase};
use squall::{
    CallErrorKind, ClusterSize, ClusterTree, CreateError, Handle, Id, Interrupted, LinkError, MessageError,
    NameError, Transport, Vp, VpSet, set_name, set_part_of,
};
use std::fmt::Display;
use std::io::ErrorKind;

/// Compares errors with their texts. A text is one sentence without a full stop.
#[track_caller]
fn check(texts: &[(&dyn Display, &str)]) {
    for (error, text) in texts {
        assert_eq!(error.to_string(), *text);
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
    }
}

#[test]
fn errors_of_calls_of_other_processes_say_what_happened_and_the_remedy() {
    check(&[
        (
            &CallErrorKind::Transport(Transport::PeerGone),
            "the process of the object ended or closed the connection during the call; import the object again",
        ),
        (
            &Transport::Deadline,
            "the deadline passed before the process of the object answered; allow more time, or call again",
        ),
        (
            &Transport::Denied,
            "the process of the object denies this caller the method; grant the right where the object is exported",
        ),
        (&Transport::NoSuchObject, "the process of the object no longer exports it; import it again"),
        (
            &Transport::Destroyed,
            "the process of the object destroyed it; import it again once it is exported again",
        ),
        (&Transport::Disconnected, "the connection had ended before the call; import the object again"),
        (
            &Transport::BadArguments(MessageError::TooLarge),
            "the arguments exceed 8,192 bytes, the limit of a message; split them over several calls",
        ),
        (
            &Transport::BadResult(MessageError::Unencodable),
            "the result could not be encoded; see the attributes of serde on their types",
        ),
        (
            &Transport::BadResult(MessageError::Undecodable),
            "the result could not be decoded; build both processes with the same types, without \
             `skip_serializing_if` and other attributes of serde that need a self-describing format",
        ),
        (
            &Transport::Panicked,
            "the method panicked in the process of the object; the panic's message is in the output of that process",
        ),
        (
            &Transport::Busy,
            "the process of the object did not begin the call in time; call again, or allow more time",
        ),
        (
            &Transport::Nested,
            "a call that the object made of another process failed; look for the cause there",
        ),
        (
            &Transport::Unsupported,
            "one of the two processes does not support the call; run both on Linux, with the same methods",
        ),
        (
            &Transport::WouldBlock,
            "the call would block the dispatcher of this thread, and did not begin; make it on another thread",
        ),
    ]);
}

#[test]
fn errors_of_calls_and_swaps_say_what_happened_and_the_remedy() {
    check(&[
        (&CallErrorKind::Destroyed, "the object was destroyed; keep its owner as long as it is called"),
        (&CallErrorKind::NotThere, "the object is not installed yet; install it first (`WellKnown`)"),
        (&CallErrorKind::Refused("read-only"), "the call was refused: read-only"),
        (&CallErrorKind::Forked, "this is the child of a fork, which may only exec"),
        (
            &CallErrorKind::Reentrant,
            "a signal handler interrupted a slow path of Squall on this thread; call no object in a handler",
        ),
        (
            &CallErrorKind::InTransfer,
            "this thread moves the state of an object, and the call would wait for a swap; call after it",
        ),
        (&SwapFailure::Destroyed, "the object was destroyed; keep its owner as long as it is used"),
        (&SwapFailure::Busy, "another swap of the object is in progress; try again after it"),
        (
            &SwapFailure::Arbitrated,
            "another function arbitrates the calls of the object; drop its `Arbiter` first",
        ),
        (
            &SwapFailure::TimedOut(SwapPhase::Block),
            "the time limit expired in phase block; allow more time, or shorten the calls of the object",
        ),
        (&SwapFailure::Cancelled(SwapPhase::Forward), "the swap was cancelled in phase forward"),
        (
            &SwapFailure::OutOfMemory,
            "there is no memory for the new object or the tables; free memory or raise the limits",
        ),
        (
            &SwapFailure::NoFence,
            "grace periods have become impossible in this process; run it with SQUALL_MEMBARRIER=off",
        ),
        (
            &Interrupted,
            "the object was destroyed or swapped while a method of it waited; return from the method",
        ),
        (
            &CreateError::Reentrant,
            "squall cannot create an object: this signal handler interrupted a slow path of the thread; create it \
             outside handlers",
        ),
        (
            &CreateError::OutOfIds { used: 7, bound: 7 },
            "squall cannot create an object: 7 ids are in use, and the bound is 7; destroy objects first, or set \
             SQUALL_OBJECTS_MAX higher",
        ),
        (
            &"seven".parse::<Id>().unwrap_err(),
            "\"seven\" is not an id: an id is a slot and a generation, as in 17.3",
        ),
    ]);
}

#[test]
fn errors_name_the_object() {
    let hits = counter::shared().named("hits");
    let (handle, id) = (hits.handle(), Handle::id(hits.handle()));
    let not_adaptive = control::freeze(id, true).unwrap_err();
    let unknown = control::swap(id, "round").unwrap_err();
    let too_long = control::sample(id, std::time::Duration::from_secs(9)).unwrap_err();
    let class = squall::info_of(id).unwrap().class;
    drop(hits);
    let limited = map::limited(map::shared::<u64, u64>(), MapLimit::entries(0));
    let map = Handle::id(limited.handle());
    check(&[
        (
            &handle.try_total().unwrap_err(),
            &format!(
                "Counter#{id}.total() of \"hits\", class {class}: the object was destroyed; keep its owner as long as \
                 it is called"
            ),
        ),
        (
            &not_adaptive,
            &format!(
                "object {id} \"hits\" of class {class} does not adapt: its class is in no family; create an adaptive \
                 object"
            ),
        ),
        (
            &unknown,
            &format!(
                "Counter#{id} \"hits\" cannot become \"round\": no implementation of Counter was registered; register one \
                 first"
            ),
        ),
        (
            &too_long,
            &format!("calls of object {id} \"hits\" cannot be counted for 9s; count them for at most 1s"),
        ),
        (
            &control::freeze(id, true).unwrap_err(),
            &format!("there is no live object {id} \"hits\"; `squall::snapshot` lists those that live"),
        ),
        (
            &set_name(id, "clicks").unwrap_err(),
            &format!(
                "object {id} cannot be named: it was destroyed or never existed; name it while it lives"
            ),
        ),
        (
            &NameError::Forked(id),
            &format!("object {id} cannot be named: this is the child of a fork, which may only exec"),
        ),
        (
            &limited.set_or_full(1, 1).unwrap_err(),
            &format!(
                "map {map} is full: 1 more requested, 0 of 0 entries in use; remove entries or raise the limit"
            ),
        ),
        (
            &map::ResizeError::OneForAll(map),
            &format!(
                "the cluster size of map {map} is fixed: only a replicated or partitioned map has a choice"
            ),
        ),
    ]);
}

#[test]
fn errors_of_links_name_the_objects() {
    let ended = Handle::id(counter::shared().handle());
    let counter = counter::shared();
    let id = Handle::id(counter.handle());
    check(&[
        (
            &set_part_of(ended, id).unwrap_err(),
            &format!(
                "object {ended} cannot be linked: it was destroyed or never existed; link it while it lives"
            ),
        ),
        (
            &set_part_of(id, id).unwrap_err(),
            &format!("object {id} cannot be a part of itself; link it to another object"),
        ),
        (
            &LinkError::Circular { part: id, whole: ended },
            &format!(
                "object {id} cannot be a part of object {ended}, which is a part of it; remove that link first"
            ),
        ),
        (
            &LinkError::Forked(id),
            &format!("object {id} cannot be linked: this is the child of a fork, which may only exec"),
        ),
    ]);
}

#[test]
fn errors_of_parts_and_locks_say_what_happened_and_the_remedy() {
    let master = Master::new(5);
    let conflict = master.compare_and_set(7, 6, |_| ()).unwrap_err();
    check(&[
        (&ShutDown, "the gate was shut down, so the request was rejected; a shutdown is final"),
        (&Rejected::Stopped, "the gate is stopped, so the request was rejected; try again after the restart"),
        (&GateError::Stopped, "the gate is stopped already; restart it before the next stop"),
        (&GateError::NotStopped, "the gate is not stopped, so it cannot be restarted; stop it first"),
        (&GateError::ShutDown, "the gate was shut down; a shutdown is final"),
        (
            &GateError::NotShutDown,
            "the gate was not shut down, so its end cannot be awaited; shut it down first",
        ),
        (&GateError::Busy, "another control operation of the gate is at work; try again later"),
        (&GateError::TimedOut, "the limit passed before the last request left the gate; allow more time"),
        (&GateError::Interrupted, "the wait for the last request of the gate was interrupted; try again"),
        (&Busy, "the key is being filled: try again later, or wait for the fill"),
        (
            &Revoked(()),
            "the key was not filled: its reservation was revoked, or its table was dropped; reserve it again",
        ),
        (&FillError::from("the disk is gone"), "the key was not filled: the disk is gone"),
        (&conflict, "another update was faster: the value has version 1; read it again"),
        (&LockError::TimedOut, "the lock was not free in time; allow more time, or hold it for less"),
        (&LockError::Cancelled, "the wait for the lock was cancelled"),
    ]);
}

#[test]
fn errors_of_the_machine_and_of_read_sections_say_what_happened_and_the_remedy() {
    static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000);
    static SCHEMA: Schema = Schema::new("lock", &[&SPINS]);
    static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    check(&[
        (
            &CasError::Elsewhere(Vp::new(3)),
            "nothing was stored: the thread is on VP 3; read the current VP and try again",
        ),
        (&CasError::Changed(9), "nothing was stored: the word has changed to 9; try again with that value"),
        (
            &OutOfMemory { reserve_bytes: 64, cause: ErrorKind::OutOfMemory.into() },
            "cannot reserve 64 bytes for per-VP data; raise the limit of address space: out of memory",
        ),
        (
            &"huge".parse::<ClusterSize>().unwrap_err(),
            "`huge` is not a cluster size; use cpu, core, cache, node, machine, or fixed:4",
        ),
        (
            &"3-".parse::<VpSet>().unwrap_err(),
            "`3-` is neither a number nor a range; a list of processors looks like 0-3,8,10-11",
        ),
        (&ClusterTree::new(&[]).unwrap_err(), "a tree of clusters needs at least one size"),
        (
            &PinError::Forked,
            "squall-rcu: an operation cannot be opened in the child of a fork, which may only exec",
        ),
        (
            &WaitError::InOperation,
            "squall-rcu: a wait inside an operation would wait for itself; wait after the operation",
        ),
        (
            &WaitError::Timeout,
            "squall-rcu: the grace period did not end before the deadline; it is still under way",
        ),
        (
            &CLASS.set(&SPINS, 2_000).unwrap_err(),
            "attribute `spins` of class lock: 2000 is out of range; it takes a whole number from 0 to 1000",
        ),
    ]);
}

#[cfg(feature = "policies")]
#[test]
fn errors_of_policies_say_what_happened_and_the_remedy() {
    use squall::policy::GovernError;
    use squall::policy::invoke::InvokeError;
    check(&[
        (
            &InvokeError::TooLate,
            "the method did not run: its deadline passed before it began; allow more time",
        ),
        (&InvokeError::Cancelled, "the method did not run: its event was cancelled; invoke it again"),
        (
            &InvokeError::Dropped,
            "the method did not run: its executor or its policy dropped it; keep the call",
        ),
        (&InvokeError::Full, "the method did not run: its queue is full; invoke it again later"),
        (&InvokeError::InOperation, "the result was waited for inside an operation; wait for it outside"),
        (&GovernError::Refused("no room"), "the policy of the new object refused to create it: no room"),
    ]);
}
