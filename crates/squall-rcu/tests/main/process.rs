//! Tests that need a whole process: signal handlers, forks, stalls, threads that end in the middle, and the
//! fallbacks.

use super::forked::{End, in_child_ending, in_forked_child};
use super::reclaimer_rests;
use squall_rcu::{PinError, Rcu, WaitError, barrier, defer, pin, retire, stats, try_pin, wait};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Returns whether the test must be skipped: user-mode emulation ignores wipe-on-fork and seccomp.
fn needs_a_real_kernel(test: &str) -> bool {
    let emulated = std::env::var_os("SQUALL_TEST_RUNNER").is_some();
    if emulated {
        eprintln!("SKIP {test}: the emulator does not pass on what it needs");
    }
    emulated
}

/// Runs one test of this file in a process of its own, once per environment. Returns whether this is that
/// process.
fn alone(test: &str, environment: &[&[(&str, &str)]]) -> bool {
    if std::env::var("SQUALL_TEST_CHILD").is_ok_and(|name| name == test) {
        return true;
    }
    let name = format!("process::{test}");
    for environment in environment {
        // Under emulation the emulator must run this program (`SQUALL_TEST_RUNNER="qemu-aarch64 -L …"`).
        let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
        let this = std::env::current_exe().unwrap().into_os_string();
        let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([this]);
        let output = Command::new(words.next().unwrap())
            .args(words)
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env("SQUALL_TEST_CHILD", test)
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{name} does not exist");
        assert!(output.status.success(), "{test} under {environment:?}: {output:?}");
    }
    false
}

static CELL: OnceLock<Rcu<[u64; 8]>> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);
const SIGNALS: u64 = 1_000;

extern "C" fn read_in_handler(_signal: libc::c_int) {
    let cell = CELL.get().unwrap();
    pin(|o| {
        let outer = cell.load(o);
        let inner = pin(|o| *cell.load(o));
        assert_eq!(inner[0], inner[7], "a nested handler's operation saw what was freed");
        assert_eq!(outer[0], outer[7], "a handler saw what was freed");
    });
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn pitfall_05_a_signal_handler_may_open_operations_at_any_instruction() {
    const NAME: &str = "pitfall_05_a_signal_handler_may_open_operations_at_any_instruction";
    if !alone(NAME, &[&[], &[("SQUALL_MEMBARRIER", "off")]]) {
        return;
    }
    CELL.get_or_init(|| Rcu::new(Box::new([0; 8])));
    let stop = Arc::new(AtomicBool::new(false));
    let (id_tx, id) = std::sync::mpsc::channel();
    let reader = {
        let stop = stop.clone();
        thread::spawn(move || {
            // Registered before the first signal, as the contract asks.
            squall_rcu::register().unwrap();
            // SAFETY: the call has no preconditions.
            id_tx.send(unsafe { libc::pthread_self() }).unwrap();
            let cell = CELL.get().unwrap();
            while !stop.load(Ordering::Relaxed) {
                pin(|o| {
                    let value = cell.load(o);
                    assert_eq!(value[0], value[7], "a reader saw what was freed");
                    // The operation must do its owed work itself when it leaves. A handler that arrives just
                    // then must not do it.
                    retire(Box::new([0_u64; 4]));
                });
            }
            assert!(!squall_rcu::in_operation());
        })
    };
    let id = id.recv().unwrap();
    let handler: extern "C" fn(libc::c_int) = read_in_handler;
    // SAFETY: the handler only opens operations on a registered thread and touches atomics.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let mut version = 0;
    // Many enough that some signals arrive in the midst of a cold path.
    while HANDLED.load(Ordering::Relaxed) < SIGNALS {
        // SAFETY: the thread lives until it is joined below.
        unsafe { libc::pthread_kill(id, libc::SIGUSR1) };
        version += 1;
        CELL.get().unwrap().replace(Box::new([version; 8]));
        if version.is_multiple_of(16) {
            wait().unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    barrier().unwrap();
}

#[test]
fn pitfall_13_in_a_forked_child_cold_paths_are_refused() {
    const NAME: &str = "pitfall_13_in_a_forked_child_cold_paths_are_refused";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[]]) {
        return;
    }
    // For the child, another thread stays inside an operation forever.
    let (inside_tx, inside) = std::sync::mpsc::channel();
    let (done, done_rx) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        pin(|_| {
            inside_tx.send(()).unwrap();
            done_rx.recv().unwrap();
        });
    });
    inside.recv().unwrap();
    pin(|_| ());
    assert!(in_forked_child(|| wait() == Err(WaitError::Forked)));
    assert!(in_forked_child(|| barrier() == Err(WaitError::Forked)));
    assert!(in_forked_child(|| squall_rcu::reclaim() == Err(WaitError::Forked)));
    assert!(in_forked_child(|| { squall_rcu::Marker::set().update_and_check() == Err(WaitError::Forked) }));
    // The registration of the forking thread still works in the child. Retired values are leaked there, and
    // retiring does not hang.
    assert!(in_forked_child(|| pin(|_| true)));
    assert!(in_forked_child(|| {
        (0..10_000).for_each(|_| retire(Box::new(1_u64)));
        true
    }));
    // A thread that ended has left more than the bound. The child's first call waits for nothing.
    thread::spawn(|| (0..66).for_each(|_| retire(Box::new([0_u8; 256 << 10])))).join().unwrap();
    assert!(in_forked_child(|| {
        let throttled = stats().throttled;
        retire(Box::new(1_u64));
        stats().throttled == throttled
    }));
    done.send(()).unwrap();
    other.join().unwrap();
    // The parent goes on as before.
    wait().unwrap();
    barrier().unwrap();
    // An unregistered thread forks: its child cannot register.
    let refused = thread::spawn(|| in_forked_child(|| try_pin(|_| ()) == Err(PinError::Forked)));
    assert!(refused.join().unwrap());
}

#[test]
#[cfg_attr(squall_tsan, ignore = "the sanitizer's own locks may be held at the fork")]
fn pitfall_13_a_forked_child_that_exits_waits_for_no_lock() {
    const NAME: &str = "pitfall_13_a_forked_child_that_exits_waits_for_no_lock";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[], &[("SQUALL_RECLAIMER", "off")]]) {
        return;
    }
    // Other threads take each lock all the time, so that each is held at some fork: those of the registry and
    // of the orphans, and the lists of deferred calls.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                thread::spawn(|| (0..3).for_each(|_| retire(Box::new(1_u64)))).join().unwrap();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                barrier().unwrap();
            }
        });
        let all_ended = (0..500).all(|_| {
            // This thread has a call in its list, which the exit hook would take.
            retire(Box::new(1_u64));
            in_child_ending(End::Orderly, || {
                // Enough to close batches.
                (0..200).for_each(|_| retire(Box::new(1_u64)));
                let _ = (stats(), squall_rcu::set_reclaimer(true));
                wait() == Err(WaitError::Forked)
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(all_ended);
    });
    barrier().unwrap();
}

#[test]
fn pitfall_13_a_forked_child_refuses_calls_of_objects_also_after_the_operation_of_the_fork() {
    const NAME: &str =
        "pitfall_13_a_forked_child_refuses_calls_of_objects_also_after_the_operation_of_the_fork";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[], &[("SQUALL_MEMBARRIER", "off")]]) {
        return;
    }
    // SAFETY: the operation, if it opens, is closed at once.
    let refused = || unsafe { squall_rcu::__enter(7) }.map(drop) == Err(PinError::Forked);
    assert!(!refused());
    assert!(in_forked_child(refused));
    let parent = thread::current().id();
    // The fork happens in a nested operation. The child leaves both.
    let child = pin(|_| {
        pin(|_| {
            // SAFETY: the child ends below.
            let child = unsafe { libc::fork() };
            (child != 0 || refused()).then_some(child)
        })
        .filter(|child| *child != 0 || refused())
    });
    assert_eq!(thread::current().id(), parent);
    match child {
        Some(child @ 1..) => {
            let mut status = 0;
            // SAFETY: waits for the child just made, and writes to a live variable.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child was not refused");
        }
        // SAFETY: ends the child at once.
        _ => unsafe { libc::_exit(i32::from(child != Some(0) || !refused() || !pin(|_| true))) },
    }
    assert!(!refused());
}

/// Ends its process when it is dropped.
struct Exits;

impl Drop for Exits {
    fn drop(&mut self) {
        std::process::exit(7);
    }
}

/// Retires a value that ends the process when it is dropped, so that it is dropped at the given place.
fn exit_in_a_drop(place: &str) -> ! {
    let reclaimer = place == "reclaimer";
    squall_rcu::set_reclaimer(reclaimer);
    let fill = || (0..4096).for_each(|_| retire(Box::new(Box::new(0_u64))));
    match place {
        "reclaimer" => retire(Box::new(Exits)),
        "reclaim" => {
            retire(Box::new(Exits));
            wait().unwrap();
            squall_rcu::reclaim().unwrap();
        }
        "barrier" => {
            retire(Box::new(Exits));
            barrier().unwrap();
        }
        "orphans" => {
            thread::spawn(|| retire(Box::new(Exits))).join().unwrap();
            wait().unwrap();
            squall_rcu::reclaim().unwrap();
        }
        "another thread's list" => {
            let (retired_tx, retired) = std::sync::mpsc::channel();
            thread::spawn(move || {
                retire(Box::new(Exits));
                retired_tx.send(()).unwrap();
                loop {
                    thread::park();
                }
            });
            retired.recv().unwrap();
            barrier().unwrap();
        }
        "a full batch" => {
            retire(Box::new(Exits));
            fill();
        }
        "the end of an operation" => {
            retire(Box::new(Exits));
            pin(|_| fill());
        }
        "the end of a scope" => {
            retire(Box::new(Exits));
            squall_rcu::without_callbacks(fill);
        }
        _ => unreachable!("no such place: {place}"),
    }
    loop {
        thread::park();
    }
}

#[test]
fn a_deferred_call_may_exit_the_process() {
    const NAME: &str = "process::a_deferred_call_may_exit_the_process";
    const PLACE: &str = "SQUALL_TEST_PLACE";
    if let Ok(place) = std::env::var(PLACE) {
        exit_in_a_drop(&place);
    }
    let places = [
        "reclaimer",
        "reclaim",
        "barrier",
        "orphans",
        "another thread's list",
        "a full batch",
        "the end of an operation",
        "the end of a scope",
    ];
    for place in places {
        let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
        let this = std::env::current_exe().unwrap().into_os_string();
        let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([this]);
        let output = Command::new(words.next().unwrap())
            .args(words)
            .args(["--exact", NAME, "--nocapture"])
            .env(PLACE, place)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(7), "{place}: {output:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn an_operation_that_slept_is_not_reported_in_a_forked_child() {
    const NAME: &str = "an_operation_that_slept_is_not_reported_in_a_forked_child";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[]]) {
        return;
    }
    // Registers the thread.
    pin(|_| ());
    squall_rcu::on_stall(|_| {
        // SAFETY: ends the child, which the test then sees.
        unsafe { libc::_exit(9) }
    });
    assert!(in_forked_child(|| {
        // Longer than the shortest operation that is reported.
        pin(|_| thread::sleep(Duration::from_millis(3)));
        true
    }));
}

#[test]
#[cfg(debug_assertions)]
fn a_wait_for_the_bound_is_not_reported() {
    const NAME: &str = "a_wait_for_the_bound_is_not_reported";
    // The emulator's own locks count as sleeps of this thread. Without the reclaimer, this thread shares no
    // lock with another one.
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[("SQUALL_RECLAIMER", "off")]]) {
        return;
    }
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let here = squall_sys::affinity::thread_id();
    squall_rcu::on_stall(move |stall| {
        if stall.has_blocked && stall.thread_id == here {
            REPORTED.store(true, Ordering::SeqCst);
        }
    });
    let (inside_tx, inside) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        pin(|_| {
            inside_tx.send(()).unwrap();
            is_done.recv().unwrap();
        });
    });
    inside.recv().unwrap();
    let throttled = stats().throttled;
    let retired = Vec::from_iter((0..66).map(|_| Box::new([0_u8; 256 << 10])));
    let switches = squall_sys::affinity::voluntary_switches;
    // Memory management of the kernel can make the operation itself sleep. Then the report is right.
    let slept = pin(|_| {
        let before = switches();
        retired.into_iter().for_each(retire);
        switches() != before
    });
    assert!(stats().throttled > throttled, "the end of the operation has waited");
    assert!(slept || !REPORTED.load(Ordering::SeqCst), "the wait was not the operation's");
    done.send(()).unwrap();
    reader.join().unwrap();
}

#[test]
fn a_stalled_grace_period_names_its_holder() {
    const NAME: &str = "a_stalled_grace_period_names_its_holder";
    if !alone(NAME, &[&[], &[("SQUALL_MEMBARRIER", "off")]]) {
        return;
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    squall_rcu::set_stall_timeout(Duration::from_millis(30));
    let (reported, is_reported) = std::sync::mpsc::channel();
    {
        let (told, reported) = (told.clone(), Mutex::new(reported));
        squall_rcu::on_stall(move |stall| {
            if stall.has_blocked {
                return;
            }
            told.lock().unwrap().push(stall.clone());
            reported.lock().unwrap().send(()).unwrap();
        });
    }
    let (inside_tx, inside) = std::sync::mpsc::channel();
    let here = line!() + 2;
    let reader = thread::Builder::new().name("the-culprit".into()).spawn(move || {
        pin(|_| {
            inside_tx.send(()).unwrap();
            is_reported.recv().unwrap();
        });
    });
    inside.recv().unwrap();
    wait().unwrap();
    reader.unwrap().join().unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "told once: {told:?}");
    assert_eq!(told[0].thread_name, "the-culprit");
    assert!(told[0].since >= Duration::from_millis(30));
    assert!(told[0].to_string().contains("the-culprit"));
    if cfg!(debug_assertions) {
        let began = told[0].began.expect("known in debug builds");
        assert!(began.file().ends_with("process.rs") && began.line() == here, "{began}");
    }
    assert_eq!(told[0].object, None);
}

#[test]
fn a_stall_report_translates_the_tag_of_the_outermost_operation() {
    const NAME: &str = "a_stall_report_translates_the_tag_of_the_outermost_operation";
    if !alone(NAME, &[&[], &[("SQUALL_MEMBARRIER", "off")]]) {
        return;
    }
    fn enter(tag: u64) -> squall_rcu::Entered {
        // SAFETY: each result is dropped at the end of a block of this thread, in reverse order.
        unsafe { squall_rcu::__enter(tag) }.unwrap()
    }
    // Opens an operation, as a reporting thread may, although the reported grace period is still under way.
    squall_rcu::__name_tags(|tag| pin(|_| format!("tag {tag}")));
    squall_rcu::set_stall_timeout(Duration::from_millis(1));
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    squall_rcu::on_stall(move |stall| {
        if !stall.has_blocked {
            _ = tell.lock().unwrap().send(stall.clone());
        }
    });
    let (inside_tx, inside) = std::sync::mpsc::channel();
    let (go_on, gone_on) = std::sync::mpsc::channel();
    let stay = move || {
        inside_tx.send(()).unwrap();
        gone_on.recv().unwrap();
    };
    let reader = thread::Builder::new().name("tagged".into()).spawn(move || {
        {
            let _outer = enter(7);
            let _inner = enter(8);
            pin(|_| stay());
        }
        pin(|_| stay());
        pin(|_| {
            let _inner = enter(9);
            stay();
        });
    });
    let mut waiters = Vec::new();
    for expected in [Some("tag 7"), None, None] {
        inside.recv().unwrap();
        // Joined at the end: it may need a grace period that the next operation delays.
        waiters.push(thread::spawn(|| wait().unwrap()));
        let stall = told.iter().find(|stall| stall.thread_name == "tagged").unwrap();
        assert_eq!(stall.object.as_deref(), expected.filter(|_| cfg!(debug_assertions)));
        assert_eq!(stall.began.is_some(), cfg!(debug_assertions));
        go_on.send(()).unwrap();
    }
    reader.unwrap().join().unwrap();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}

extern "C-unwind" fn end_inside(_argument: *mut libc::c_void) -> *mut libc::c_void {
    pin(|_| {
        pin(|_| {
            // SAFETY: the system call has no preconditions.
            unsafe { libc::syscall(libc::SYS_gettid) };
            ENDED.fetch_add(1, Ordering::SeqCst);
            pthread_exit_unwinding();
        });
    });
    std::ptr::null_mut()
}

static ENDED: AtomicUsize = AtomicUsize::new(0);

fn pthread_exit_unwinding() -> ! {
    unsafe extern "C-unwind" {
        fn pthread_exit(value: *mut libc::c_void) -> !;
    }
    // SAFETY: the calling thread was made by `pthread_create`. It ends here and its cleanups run. The frames
    // above hold an operation each, which is the subject of the test.
    unsafe { pthread_exit(std::ptr::null_mut()) }
}

#[test]
fn a_thread_that_ends_inside_nested_operations_delays_no_grace_period() {
    const NAME: &str = "a_thread_that_ends_inside_nested_operations_delays_no_grace_period";
    if !alone(NAME, &[&[]]) {
        return;
    }
    for _ in 0..20 {
        let mut thread = 0;
        // SAFETY: a plain thread with default attributes. The two function types differ only in unwinding,
        // and `pthread_exit` leaves the function by unwinding.
        let made = unsafe {
            let start: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void = end_inside;
            let start: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void = std::mem::transmute(start);
            libc::pthread_create(&raw mut thread, std::ptr::null(), start, std::ptr::null_mut())
        };
        assert_eq!(made, 0);
        // SAFETY: joins the thread just made, once.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        wait().unwrap();
    }
    assert_eq!(ENDED.load(Ordering::SeqCst), 20);
    assert_eq!(stats().threads, 0, "{:?}", stats());
}

#[test]
fn every_mode_reads_waits_and_reclaims() {
    const NAME: &str = "every_mode_reads_waits_and_reclaims";
    if !alone(
        NAME,
        &[
            &[],
            &[("SQUALL_MEMBARRIER", "off")],
            &[("SQUALL_RECLAIMER", "off")],
            &[("SQUALL_MEMBARRIER", "off"), ("SQUALL_RECLAIMER", "off")],
            &[("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2")],
        ],
    ) {
        return;
    }
    if std::env::var("SQUALL_MEMBARRIER").is_ok() && !squall_machine::asym::CHECKED {
        assert!(stats().fence.to_string().contains("SQUALL_MEMBARRIER=off"), "{:?}", stats().fence);
    }
    let cell = Rcu::new(Box::new([0_u64; 8]));
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..20_000 {
                    pin(|o| {
                        let value = cell.load(o);
                        assert_eq!(value[0], value[7]);
                    });
                    if i % 64 == 0 {
                        let ran = ran.clone();
                        pin(|_| {
                            defer(move || {
                                ran.fetch_add(1, Ordering::SeqCst);
                            });
                        });
                    }
                }
            });
        }
        scope.spawn(|| (1..20_000).for_each(|version| cell.replace(Box::new([version; 8]))));
    });
    barrier().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 3 * 20_000_usize.div_ceil(64));
    assert_eq!(stats().pending_calls, 0);
    let off = std::env::var("SQUALL_RECLAIMER").is_ok();
    let expected = if off { squall_rcu::ReclaimerState::Off } else { squall_rcu::ReclaimerState::Running };
    assert_eq!(squall_rcu::reclaimer_state(), expected);
    let vps = squall_machine::machine().vps().clone();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let each = squall_rcu::quiescent_do(&vps, squall_rcu::RunOn::Each, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    each.unwrap().wait().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), vps.len());
}

#[test]
fn pr_12_an_idle_process_makes_no_wake_ups() {
    const NAME: &str = "pr_12_an_idle_process_makes_no_wake_ups";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[]]) {
        return;
    }
    (0..10_000).for_each(|_| retire(Box::new([0_u8; 64])));
    barrier().unwrap();
    // The reclaimer may be in its last rounds. Then it sleeps until it is woken, so it makes no wake-ups.
    let begun = Instant::now();
    loop {
        match reclaimer_rests() {
            Some(true) => break,
            Some(false) => assert!(begun.elapsed() < Duration::from_secs(60), "the reclaimer never rests"),
            None => {
                eprintln!("SKIP {NAME}: this kernel does not say what threads wait for");
                return;
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(squall_rcu::reclaimer_state(), squall_rcu::ReclaimerState::Running);
    assert_eq!(stats().pending_calls, 0);
}

/// Forbids `membarrier` to the calling thread and the threads it starts, as a sandbox would.
fn forbid_membarrier() {
    let filter = [
        // Load the number of the call; if it is `membarrier`, answer EPERM; else allow.
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_membarrier as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program is a valid filter that outlives the call, which copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_membarrier_forbidden_from_the_start_leads_to_fences() {
    const NAME: &str = "a_membarrier_forbidden_from_the_start_leads_to_fences";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[]]) {
        return;
    }
    forbid_membarrier();
    let cell = Rcu::new(Box::new(1));
    assert_eq!(pin(|o| *cell.load(o)), 1);
    wait().unwrap();
    let fence = stats().fence.to_string();
    assert!(fence.starts_with("fence ("), "{fence}");
    cell.replace(Box::new(2));
    barrier().unwrap();
    assert_eq!(stats().pending_calls, 0);
}

#[test]
fn a_membarrier_forbidden_later_frees_nothing_and_says_so() {
    const NAME: &str = "a_membarrier_forbidden_later_frees_nothing_and_says_so";
    if needs_a_real_kernel(NAME) || !alone(NAME, &[&[("SQUALL_RECLAIMER", "off")]]) {
        return;
    }
    wait().unwrap();
    if stats().fence.to_string() != "membarrier" {
        // This mode does not use `membarrier`, so the test does not apply.
        return;
    }
    forbid_membarrier();
    let refused = wait().unwrap_err();
    assert!(matches!(refused, WaitError::NoFence(_)) && refused.to_string().contains("refused"), "{refused}");
    let ran = Arc::new(AtomicBool::new(false));
    let late = ran.clone();
    defer(move || late.store(true, Ordering::SeqCst));
    (0..5000).for_each(|_| retire(Box::new(0_u64)));
    assert!(matches!(barrier(), Err(WaitError::NoFence(_))));
    assert!(!ran.load(Ordering::SeqCst));
    assert_eq!(stats().pending_calls, 5001);
    // Readers go on working.
    assert_eq!(pin(|_| 7), 7);
}
