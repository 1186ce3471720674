//! A thread that brings pages in for threads that may not wait themselves: those inside an operation.
//!
//! Problem: a thread may touch a page within a call of an object, or within a `read` closure. There it may
//! not wait for a page that another thread fills. Idea: it passes the address to a
//! service thread, and sleeps until that has brought the page in.
//!
//! - I1. A request is FREE, or belongs to the thread that claimed it. That thread posts it, and frees it.
//!   Between POSTED and DONE or FAILED the service thread alone changes it.
//! - I2. Posting and waiting use static memory and futexes alone. So they are safe in a signal handler.
//!
//! Limits: a grace period waits for the thread meanwhile. So the source of the page must not wait for one.

use squall_sys::futex;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use super::handler::Panicked;
use super::maps;
use crate::access::Access;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const DONE: u32 = 3;
const FAILED: u32 = 4;

/// The number of threads that can wait at a time. Further ones wait for a place.
const REQUESTS: usize = 64;

struct Request {
    state: AtomicU32,
    address: AtomicUsize,
    is_write: AtomicU32,
}

static REQUEST: [Request; REQUESTS] = [const {
    Request { state: AtomicU32::new(FREE), address: AtomicUsize::new(0), is_write: AtomicU32::new(0) }
}; REQUESTS];
/// Counts the posts. The service thread sleeps on it.
static POSTS: AtomicU32 = AtomicU32::new(0);

/// Starts the service thread, once.
pub(super) fn start() -> io::Result<()> {
    static STARTED: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let builder = thread::Builder::new().name("squall-pager".to_owned());
        let started = squall_sys::signals::without_signals(|| builder.spawn(serve));
        started.map(drop).map_err(|error| error.kind())
    });
    started.map_err(io::Error::from)
}

/// Lets the service thread bring a page in, and waits for it. Returns false if the page cannot be brought in.
pub(super) fn bring(address: usize, access: Access) -> bool {
    let request = loop {
        // Acquire: pairs with the Release of the thread that freed it.
        let claim = |request: &&Request| {
            request.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(request) = REQUEST.iter().find(claim) {
            break request;
        }
        thread::yield_now();
    };
    request.address.store(address, Ordering::Relaxed);
    request.is_write.store(u32::from(access == Access::Write), Ordering::Relaxed);
    // Release: pairs with the Acquire of the service thread, which then sees the address.
    request.state.store(POSTED, Ordering::Release);
    // SeqCst: pairs with the load in `serve`. Either that sees this count, or its look sees the request.
    POSTS.fetch_add(1, Ordering::SeqCst);
    futex::wake(&POSTS, 1);
    loop {
        // Acquire: pairs with the Release of the service thread: the page is there.
        let state = request.state.load(Ordering::Acquire);
        if state != POSTED {
            request.state.store(FREE, Ordering::Release);
            return state == DONE;
        }
        futex::wait(&request.state, POSTED, None);
    }
}

fn serve() {
    loop {
        // SeqCst: pairs with the addition in `bring`.
        let posts = POSTS.load(Ordering::SeqCst);
        for request in &REQUEST {
            // Acquire: pairs with the Release of the post.
            if request.state.load(Ordering::Acquire) == POSTED {
                let access =
                    if request.is_write.load(Ordering::Relaxed) == 1 { Access::Write } else { Access::Read };
                let is_done = serve_one(request.address.load(Ordering::Relaxed), access);
                // Release: pairs with the Acquire of the thread that waits.
                request.state.store(if is_done { DONE } else { FAILED }, Ordering::Release);
                futex::wake(&request.state, 1);
            }
        }
        futex::wait(&POSTS, posts, None);
    }
}

/// Brings a page in. A panic of the source fails this request alone.
fn serve_one(address: usize, access: Access) -> bool {
    let resolve = || match maps::find(address) {
        Some(map) => map.resolve(address, access).inspect_err(|error| maps::tell(address, error)).is_ok(),
        // It was unmapped meanwhile: the thread repeats its access.
        None => true,
    };
    catch_unwind(AssertUnwindSafe(resolve)).unwrap_or_else(|payload| {
        maps::tell(address, &Panicked(&*payload));
        // Its drop may panic too.
        mem::forget(payload);
        false
    })
}
