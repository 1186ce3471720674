//! Objects in reports of stalled grace periods. One test, because the stall handler belongs to the process.

use squall_core::{Handle, Owned, RepContext, Root, shared};
use squall_machine::ClusterSize;
use squall_rcu::Stall;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

static INSIDE: Barrier = Barrier::new(2);
static GO_ON: Barrier = Barrier::new(2);

/// Stays in the current operation until its stall was reported.
fn stay() {
    INSIDE.wait();
    GO_ON.wait();
}

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self);
    fn stay(&self);
    fn call(&self, other: Handle<dyn Hits>);
    #[blocking]
    fn stay_in_operation(&self);
}

#[squall_macros::interface(crate = squall_core)]
trait ManyHits: Hits {
    fn stay_long(&self);
}

struct Central;

impl Hits for Central {
    fn add(&self) {}
    fn stay(&self) {
        stay();
    }
    fn call(&self, other: Handle<dyn Hits>) {
        other.stay();
    }
    fn stay_in_operation(&self) {
        squall_rcu::pin(|_| stay());
    }
}

impl ManyHits for Central {
    fn stay_long(&self) {
        stay();
    }
}

/// A root that stays in `make_rep` if its flag is set.
struct Spread(AtomicBool);
struct Local(RepContext<Spread>);

impl Root for Spread {
    type Interface = dyn Hits;
    type Rep = Local;
    fn make_rep(&self, at: RepContext<Spread>) -> Local {
        if self.0.load(Ordering::Relaxed) {
            stay();
        }
        Local(at)
    }
}

impl Hits for Local {
    fn add(&self) {}
    fn stay(&self) {
        // Nested on purpose: only the outermost operation counts.
        squall_rcu::pin(|_| self.0.handle().call(self.0.handle()));
    }
    fn call(&self, _: Handle<dyn Hits>) {
        stay();
    }
    fn stay_in_operation(&self) {}
}

/// Runs `body` on a thread with this name. Each time `body` stays, calls `meanwhile` and collects the report
/// of the stall. Only the first `meanwhile` is sure to run before the report, since the grace period of one
/// stay may last into the next.
fn stalls_of(
    name: &str,
    told: &mpsc::Receiver<Stall>,
    meanwhile: Vec<Box<dyn FnOnce() + '_>>,
    body: impl FnOnce() + Send,
) -> Vec<Stall> {
    let mut stalls = Vec::new();
    thread::scope(|scope| {
        thread::Builder::new().name(name.into()).spawn_scoped(scope, body).unwrap();
        for meanwhile in meanwhile {
            INSIDE.wait();
            meanwhile();
            // Not joined here: it may need a grace period that the next stay delays.
            scope.spawn(|| squall_rcu::wait().unwrap());
            // With a timeout this short, other stalls may be reported as well.
            stalls.push(told.iter().find(|stall| stall.thread_name == name).unwrap());
            GO_ON.wait();
        }
    });
    stalls
}

/// Returns facts that only builds with debug assertions record.
fn known<T>(what: T) -> Option<T> {
    cfg!(debug_assertions).then_some(what)
}

fn nothing<'a>() -> Box<dyn FnOnce() + 'a> {
    Box::new(|| ())
}

/// Receives the reports of stalled grace periods from now on.
fn reports() -> mpsc::Receiver<Stall> {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    squall_rcu::on_stall(move |stall| {
        if !stall.has_blocked {
            _ = tell.lock().unwrap().send(stall.clone());
        }
    });
    told
}

#[test]
fn a_stall_names_the_object_whose_call_it_is() {
    let told = reports();
    // Only `stalls_of` waits for grace periods then, so a report comes after its `meanwhile`.
    squall_rcu::set_reclaimer(false);
    squall_rcu::set_stall_timeout(Duration::from_millis(1));

    // A distributed object. Then, on the same thread, an operation that is no call, although a call is made
    // in it.
    let hits = Spread(AtomicBool::new(false)).create(ClusterSize::Machine);
    let (handle, here) = (hits.handle(), line!() + 2);
    let stalls = stalls_of("spread", &told, vec![nothing(), nothing(), nothing()], move || {
        handle.stay();
        squall_rcu::pin(|_| stay());
        squall_rcu::pin(|_| handle.stay());
    });
    let class = std::any::type_name::<Spread>();
    let object = format!("Hits#{} of class {class}", Handle::id(handle));
    assert_eq!(stalls[0].object, known(object.clone()));
    assert_eq!(stalls[1].object, None);
    assert_eq!(stalls[2].object, None);
    let text = stalls[0].to_string();
    let expected = if cfg!(debug_assertions) {
        format!("inside a call of {object} that began at {}:{here}:", file!())
    } else {
        String::from("inside an operation (build with debug assertions to see ")
    };
    assert!(text.contains("for thread \"spread\"") && text.contains(&expected), "{text}");
    let other = stalls[1].to_string();
    assert!(other.contains("inside an operation "), "{other}");

    // A representative that is being made, and the outer of two objects.
    let slow = Spread(AtomicBool::new(true)).create(ClusterSize::Machine);
    let outer = shared::<dyn Hits, _>(Central).named("outer\n");
    let (slow_handle, outer_handle) = (slow.handle(), outer.handle());
    let stalls = stalls_of("making", &told, vec![nothing(), nothing()], move || {
        slow_handle.add();
        outer_handle.call(slow_handle);
    });
    let central = std::any::type_name::<Central>();
    let slow_name = format!("Hits#{} of class {class}", Handle::id(slow_handle));
    assert_eq!(stalls[0].object, known(slow_name));
    let name = format!("Hits#{} \"outer\\n\" of class {central}", Handle::id(outer_handle));
    assert_eq!(stalls[1].object, known(name.clone()));

    // A blocking method is in no operation of its object.
    let stalls = stalls_of("blocking", &told, vec![nothing()], move || outer_handle.stay_in_operation());
    assert_eq!(stalls[0].object, None);

    // An object that is destroyed during the call.
    let meanwhile: Box<dyn FnOnce()> = Box::new(move || drop(outer));
    let stalls = stalls_of("dying", &told, vec![meanwhile], move || outer_handle.stay());
    assert_eq!(stalls[0].object, known(format!("{name} (destroyed meanwhile)")));

    // A call through an extended interface. While the object lives, the report names its own interface.
    let many: Owned<dyn ManyHits> = shared(Central);
    let (own, upcast) = (many.handle(), Handle::upcast::<dyn Hits>(many.handle()));
    let stalls = stalls_of("extended", &told, vec![nothing(), nothing()], move || {
        own.stay_long();
        upcast.stay();
    });
    let name = format!("ManyHits#{} of class {central}", Handle::id(own));
    assert_eq!(stalls[0].object, known(name.clone()));
    assert_eq!(stalls[1].object, known(name));
    let meanwhile: Box<dyn FnOnce()> = Box::new(move || drop(many));
    let stalls = stalls_of("extended dying", &told, vec![meanwhile], move || upcast.stay());
    let dying = format!("{} of class {central} (destroyed meanwhile)", Handle::id(upcast));
    assert_eq!(stalls[0].object, known(dying));
}
