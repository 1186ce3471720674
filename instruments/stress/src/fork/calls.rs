//! The calls of a child: each kind of call of each object in each form.

use std::any::Any;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::PoisonError;
use std::task::{Context, Waker};
use std::time::Duration;

use squall::fleet::{Link, LinkError};
use squall::lock::LockError;
use squall::objects::cached::{CachedMap as _, CachedMapExt as _};
use squall::objects::counter::{self, Counter};
use squall::objects::directory::{Directory as _, Parts as _};
use squall::objects::gate::{Gate, GateError, GateExt as _};
use squall::objects::map::{self, Compute, MapExt as _, OwnedMap};
use squall::objects::read_mostly::{ReadMostly as _, ReadMostlyExt as _};
use squall::rcu::{Marker, WaitError, barrier, pin, reclaim, retire, wait};
use squall::swap::Swap;
use squall::{CallError, CallErrorKind, CreateError, Handle, Owned};

use super::objects::{BITS, KEYS, Objects, Pair};
use crate::skeleton::expected_panic::{catch_silently, panic_message};

/// The outcome of a call in a child.
pub(super) enum Answer {
    Refused,
    Done,
    Wrong,
}

/// One call.
pub(super) struct Call<'a> {
    object: &'static str,
    form: &'static str,
    name: &'static str,
    /// Makes the call with a random number.
    pub(super) make: Box<dyn Fn(u64) -> Answer + Sync + 'a>,
}

impl Call<'_> {
    pub(super) fn describe(&self) -> String {
        format!("{} of the {} ({})", self.name, self.object, self.form)
    }
}

/// Longer than the time limit of a child.
const LONG: Duration = Duration::from_secs(3600);
/// Enough values to close batches of deferred calls.
const RETIRED: u64 = 200;

thread_local! {
    /// Objects that are dropped in the exit hooks of the forking thread, and in those of its children.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Leaves work to the exit hooks of the calling thread, which will fork.
pub(super) fn keep_until_exit(objects: &Objects) {
    let counter: Owned<dyn Counter> = counter::distributed();
    counter.add(1);
    let locked: OwnedMap<u64, u64> = map::locked();
    locked.set(1, 1);
    let mut kept: Vec<Box<dyn Any>> = vec![Box::new(counter), Box::new(locked)];
    for (_, cell) in &objects.cells {
        let mut changes = cell.subscribe();
        let _ = changes.poll_changed(&mut Context::from_waker(Waker::noop()));
        kept.push(Box::new(changes));
    }
    kept.extend(objects.gates.iter().map(|(_, gate)| -> Box<dyn Any> {
        Box::new(gate.request().unwrap_or_else(|_| unreachable!("no thread shuts the gates down")))
    }));
    retire(Box::new(Box::new(0_u64)));
    KEPT.with(|all| all.borrow_mut().extend(kept));
}

fn answer<T>(result: Result<T, CallError>, is_right: impl FnOnce(T) -> bool) -> Answer {
    match result {
        Ok(value) => done_if(is_right(value)),
        Err(error) => refused_if(error.reason() == CallErrorKind::Forked),
    }
}

/// Returns the answer of a call that panics instead of returning an error.
fn or_panic(call: impl FnOnce() -> bool) -> Answer {
    match catch_silently(call) {
        Ok(true) => Answer::Done,
        Err(payload) if panic_message(&*payload).contains("child of a fork") => Answer::Refused,
        _ => Answer::Wrong,
    }
}

fn done_if(is_right: bool) -> Answer {
    if is_right { Answer::Done } else { Answer::Wrong }
}

fn refused_if(is_refused: bool) -> Answer {
    if is_refused { Answer::Refused } else { Answer::Wrong }
}

/// Returns whether a key has a value of its writer.
fn fits(key: u64, value: u64) -> bool {
    value % KEYS == key
}

/// Collects the calls.
#[derive(Default)]
struct Calls<'a>(Vec<Call<'a>>);

impl<'a> Calls<'a> {
    fn add(
        &mut self,
        (object, form): (&'static str, &'static str),
        name: &'static str,
        make: impl Fn(u64) -> Answer + Sync + 'a,
    ) {
        self.0.push(Call { object, form, name, make: Box::new(make) });
    }
}

/// Returns the calls of the objects.
pub(super) fn calls(objects: &Objects) -> Vec<Call<'_>> {
    let mut calls = Calls::default();
    add_maps(&mut calls, objects);
    add_cached(&mut calls, objects);
    add_cells_and_counters(&mut calls, objects);
    add_directories_and_gates(&mut calls, objects);
    add_locks(&mut calls, objects);
    add_links(&mut calls, objects);
    add_reclamation(&mut calls, objects);
    add_creation(&mut calls, objects);
    calls.0
}

fn add_maps<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    for (form, map) in &objects.maps {
        let (of, map) = (("map", *form), map.handle());
        calls.add(of, "try_set", move |n| {
            let key = n % KEYS;
            answer(map.try_set(key, n), |_| map.get(&key) == Some(n))
        });
        calls.add(of, "try_compute", move |n| {
            answer(map.try_compute(n % KEYS, |_| Compute::Put(n)), |_| map.get(&(n % KEYS)) == Some(n))
        });
        calls.add(of, "try_for_each", move |_| {
            let mut all_fit = true;
            let done = map.try_for_each(|key, value| all_fit &= fits(*key, *value));
            answer(done, |()| all_fit)
        });
        calls.add(of, "get", move |n| {
            or_panic(|| map.get(&(n % KEYS)).is_some_and(|value| fits(n % KEYS, value)))
        });
        calls.add(of, "remove", move |n| or_panic(|| map.remove(&(n % KEYS)).is_some()));
        calls.add(of, "iter", move |_| or_panic(|| map.iter().all(|(key, value)| fits(key, value))));
        calls.add(of, "shrink_to_fit", move |_| or_panic(|| (map.shrink_to_fit(), true).1));
    }
    let table = &objects.table;
    let of = ("table", "alone");
    calls.add(of, "get", move |n| {
        or_panic(|| table.get(&(n % KEYS)).is_none_or(|value| fits(n % KEYS, value)))
    });
    calls.add(of, "set", move |n| or_panic(|| (table.set(n % KEYS, n), table.get(&(n % KEYS)) == Some(n)).1));
    calls.add(of, "remove", move |n| or_panic(|| (table.remove(&(n % KEYS)), true).1));
    calls.add(of, "reserve", move |n| or_panic(|| (table.reserve(n as usize % 4096), true).1));
}

fn add_cached<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    for (form, map) in &objects.cached {
        let (of, map) = (("cached map", *form), map.handle());
        calls.add(of, "try_form", move |_| answer(map.try_form(), |_| true));
        calls.add(of, "get", move |n| {
            or_panic(|| map.get(&(n % KEYS)).is_some_and(|value| fits(n % KEYS, value)))
        });
        calls.add(of, "set", move |n| or_panic(|| (map.set(n % KEYS, n), map.get(&(n % KEYS)) == Some(n)).1));
        calls.add(of, "compute", move |n| or_panic(|| (map.compute(n % KEYS, |_| Compute::Put(n)), true).1));
        calls.add(of, "remove", move |n| or_panic(|| (map.remove(&(n % KEYS)), true).1));
        calls.add(of, "iter", move |_| or_panic(|| map.iter().all(|(key, value)| fits(key, value))));
    }
}

fn add_cells_and_counters<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    for (form, cell) in &objects.cells {
        let (of, cell) = (("cell", *form), cell.handle());
        calls
            .add(of, "try_read", move |_| answer(cell.try_read(|pair| pair.is_whole()), |is_whole| is_whole));
        calls.add(of, "try_set", move |n| {
            answer(cell.try_set(Pair::new(n)), |_| cell.read(|pair| pair.is_whole()))
        });
        calls.add(of, "try_compare_and_update", move |n| {
            answer(cell.try_compare_and_update(n, Pair::new(n)), |_| true)
        });
        calls
            .add(of, "subscribe and wait_for", move |_| or_panic(|| cell.subscribe().wait_for(LONG).is_ok()));
    }
    let swapped = std::iter::once(("swapped", &objects.swapped));
    for (form, counter) in objects.counters.iter().map(|(form, counter)| (*form, counter)).chain(swapped) {
        let (of, counter) = (("counter", form), counter.handle());
        calls.add(of, "try_add", move |n| answer(counter.try_add(n), |()| true));
        calls.add(of, "try_total", move |_| answer(counter.try_total(), |_| true));
    }
}

fn add_directories_and_gates<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    for (form, directory) in &objects.directories {
        let (of, directory) = (("directory", *form), directory.handle());
        calls.add(of, "try_cluster_size", move |_| answer(directory.try_cluster_size(), |_| true));
        calls.add(of, "get_or_make", move |n| {
            or_panic(|| (directory.get_or_make(&(n % KEYS), || (), |(), part| *part += 1), true).1)
        });
        calls.add(of, "update", move |n| {
            or_panic(|| (directory.update(&(n % KEYS), |(), part| *part += 1), true).1)
        });
        calls.add(of, "gather", move |n| {
            or_panic(|| {
                directory
                    .gather(&(n % KEYS), 0, |sum, (), part| *sum += *part)
                    .is_none_or(|sum: u64| sum < n | u64::MAX)
            })
        });
    }
    for (form, gate) in &objects.gates {
        let (of, gate) = (("gate", *form), gate.handle());
        calls.add(of, "try_enter_now", move |_| answer(gate.try_enter_now(), |_| true));
        calls.add(of, "request", move |_| or_panic(|| gate.request().is_ok()));
        calls.add(of, "try_stop_for", move |_| {
            answer(gate.try_stop_for(LONG), |stopped| stopped == Err(GateError::Forked))
        });
        calls.add(of, "try_restart", move |_| answer(gate.try_restart(), |_| true));
        calls.add(of, "try_inside", move |_| answer(gate.try_inside(), |_| true));
    }
}

fn add_locks<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    let locks = &objects.locks;
    calls.add(("lock", "plain"), "lock", move |_| or_panic(|| locks.plain.lock().step()));
    calls.add(("lock", "biased"), "lock", move |_| or_panic(|| locks.biased.lock().step()));
    calls.add(("lock", "configurable"), "lock", move |_| or_panic(|| locks.configurable.lock().step()));
    calls.add(("lock", "adaptive"), "lock", move |_| or_panic(|| locks.adaptive.lock().step()));
    calls.add(("lock", "reader-writer"), "read", move |_| or_panic(|| locks.rw.read().is_whole()));
    calls.add(("lock", "reader-writer"), "write", move |_| or_panic(|| locks.rw.write().step()));
    calls.add(("lock", "two-bit"), "lock", move |_| or_panic(|| (BITS.lock(&locks.word), true).1));
    calls.add(("lock", "two-bit"), "try_lock_for", move |_| {
        BITS.try_lock_for(&locks.word, LONG).map_or(Answer::Refused, |_| Answer::Done)
    });
    calls.add(("lock", "pointer"), "lock", move |_| or_panic(|| (locks.pointer.lock(), true).1));
    calls.add(("lock", "plain"), "try_lock_for", move |_| {
        locks.plain.try_lock_for(LONG).map_or(Answer::Refused, |mut pair| done_if(pair.step()))
    });
    calls.add(("lock", "adaptive"), "lock_with", move |_| {
        match locks.adaptive.lock_with(&squall::lock::Request::new()) {
            Ok(mut pair) => done_if(pair.step()),
            Err(error) => refused_if(error == LockError::Forked),
        }
    });
    calls.add(("lock", "adaptive"), "history", move |_| or_panic(|| (locks.adaptive.history(), true).1));
}

fn add_links<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    let link = &objects.link;
    let refused = |error: Option<LinkError>| refused_if(matches!(error, Some(LinkError::Forked { .. })));
    let of = ("link", "of the parent");
    calls.add(of, "send", move |_| refused(link.sender.send(b"lost").err()));
    calls.add(of, "wait_to_send", move |_| refused(link.sender.wait_to_send(b"lost").block().err()));
    // The parent never holds the lock.
    let receiver = move || link.receiver.lock().unwrap_or_else(PoisonError::into_inner);
    calls.add(of, "receive", move |_| refused(receiver().receive().err()));
    calls.add(of, "wait", move |_| refused(receiver().wait().block().err()));
    calls.add(("link", "new"), "over", move |_| {
        let made = Link::pair().and_then(|(here, _there)| Link::over(here));
        refused_if(made.is_err_and(|error| error.kind() == ErrorKind::Unsupported))
    });
}

fn add_reclamation<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    let rcu = &objects.rcu;
    let of = ("reclamation", "of the process");
    calls.add(of, "retire", move |n| {
        (0..RETIRED).for_each(|i| retire(Box::new(n + i)));
        (0..RETIRED).for_each(|i| retire(Box::new(Box::new(n + i))));
        Answer::Done
    });
    calls.add(of, "retire in an operation", move |n| {
        pin(|_| (0..RETIRED).for_each(|i| retire(Box::new(n + i))));
        Answer::Done
    });
    calls.add(of, "load", move |_| or_panic(|| pin(|guard| rcu.load(guard).is_whole())));
    calls.add(of, "replace", move |n| or_panic(|| (rcu.replace(Box::new(Pair::new(n))), true).1));
    calls.add(of, "wait", move |_| refused_if(wait() == Err(WaitError::Forked)));
    calls.add(of, "barrier", move |_| refused_if(barrier() == Err(WaitError::Forked)));
    calls.add(of, "reclaim", move |_| refused_if(reclaim() == Err(WaitError::Forked)));
    calls.add(of, "a marker", move |_| refused_if(Marker::set().wait() == Err(WaitError::Forked)));
    calls.add(of, "stats", move |_| or_panic(|| squall::rcu::stats().records > 0));
}

fn add_creation<'a>(calls: &mut Calls<'a>, objects: &'a Objects) {
    let swapped = objects.swapped.handle();
    calls.add(("counter", "new"), "try_adaptive", move |_| {
        refused_if(matches!(counter::try_adaptive(), Err(CreateError::Forked)))
    });
    calls.add(("map", "new"), "shared", move |_| or_panic(|| (map::shared::<u64, u64>(), true).1));
    calls.add(("counter", "swapped"), "a swap", move |_| {
        refused_if(Swap::new(swapped).run(counter::new_distributed()).is_err())
    });
    calls.add(("objects", "all"), "snapshot", move |_| {
        or_panic(|| (squall::snapshot(), squall::info_of(Handle::id(swapped)), true).2)
    });
}
