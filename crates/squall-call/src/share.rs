//! The workers of one connection: which slots have one, and which wait for one.
//!
//! A worker frees its slot's desk first (`slot/I3`), and takes itself out of this list next. In between the
//! slot may get its next worker. So a slot can be listed twice for a moment.
//!
//! - I1. Each worker that was admitted is listed until it leaves. So each one can be told to look.
//! - I2. The connection has ended with all workers when the list is empty after [`Share::end`]. No worker is
//!   admitted from then on.

use squall_sys::sync::weaken::Site;
use std::collections::VecDeque;

/// Sites of this protocol. Each model twin weakens one of them and must fail.
pub(crate) mod sites {
    use super::Site;
    /// A worker that leaves takes one entry out, not the next worker's, too (I1).
    pub(crate) const ONE: Site = Site(243);
    /// A worker is not admitted after the end (I2).
    pub(crate) const ENDED: Site = Site(244);
}

/// The workers of a connection. Changed with the pool of workers locked.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Slots with a worker, or with one on its way.
    served: Vec<u32>,
    /// Slots that wait for a worker.
    waiting: VecDeque<u32>,
    /// Whether the connection is in the pool's list of those with waiting slots.
    pub(crate) is_listed: bool,
    has_ended: bool,
}

impl Share {
    /// Slots with a worker, or with one on its way.
    pub(crate) fn served(&self) -> &[u32] {
        &self.served
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && !sites::ENDED.is_weak()
    }

    /// A worker is sent to a slot.
    pub(crate) fn admit(&mut self, slot: u32) {
        self.served.push(slot);
    }

    /// A worker has left a slot. Returns true if the connection has ended and this was its last worker.
    pub(crate) fn leave(&mut self, slot: u32) -> bool {
        if sites::ONE.is_weak() {
            self.served.retain(|other| *other != slot);
        } else if let Some(at) = self.served.iter().position(|other| *other == slot) {
            self.served.swap_remove(at);
        }
        self.has_ended && self.served.is_empty()
    }

    /// A slot waits for a worker.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// The slot that has waited longest, unless the connection has ended.
    pub(crate) fn first_waiting(&self) -> Option<u32> {
        self.waiting.front().copied().filter(|_| !self.has_ended)
    }

    /// A slot waits no more. Returns whether it did.
    pub(crate) fn end_wait(&mut self, slot: u32) -> bool {
        let at = self.waiting.iter().position(|waiting| *waiting == slot);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The connection has ended: no slot gets a worker any more. Returns the slots with workers, which must
    /// be told. May be called again.
    pub(crate) fn end(&mut self) -> Vec<u32> {
        self.has_ended = true;
        self.waiting.clear();
        self.served.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_with_two_workers_keeps_one_when_the_other_leaves() {
        let mut share = Share::default();
        share.admit(7);
        share.admit(7);
        share.admit(3);
        assert!(!share.leave(7));
        assert_eq!(share.end(), [3, 7]);
        assert!(!share.leave(3), "one worker is left");
        assert!(share.leave(7) && share.served().is_empty());
    }

    #[test]
    fn slots_wait_in_their_order_and_not_after_the_end() {
        let mut share = Share::default();
        [3, 1, 2].into_iter().for_each(|slot| share.wait(slot));
        assert_eq!(share.first_waiting(), Some(3));
        assert!(share.end_wait(3) && !share.end_wait(3));
        assert_eq!(share.first_waiting(), Some(1));
        assert!(share.end().is_empty() && share.has_ended());
        assert_eq!((share.first_waiting(), share.has_waiting()), (None, false));
    }
}

/// Models of a connection's workers, and their twins.
#[cfg(all(test, any(loom, squall_model)))]
mod model {
    use super::{Share, sites};
    use crate::slot::model::Kernel;
    use crate::slot::{Desk, Issued, Next, Number, Seen, Service, Sleep, Words, serve};
    use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use squall_sys::sync::{Arc, Mutex, thread};

    const SLOT: u32 = 5;

    /// One slot of a connection, and the list of its workers.
    struct Server {
        call: AtomicU32,
        reply: AtomicU32,
        desk: Desk,
        share: Mutex<Share>,
        dead: AtomicBool,
        workers: Kernel,
        callers: Kernel,
        /// Workers that found the connection without others after its end.
        last: AtomicU32,
    }

    impl Server {
        fn words(&self) -> Words<'_> {
            Words { call: &self.call, reply: &self.reply }
        }

        /// The caller has asked for a worker. Starts one, unless one is there or the connection has ended.
        fn send(server: &Arc<Server>) -> Option<thread::JoinHandle<()>> {
            if !server.desk.ask() {
                return None;
            }
            let mut share = server.share.lock().unwrap();
            if share.has_ended() {
                return None;
            }
            share.admit(SLOT);
            drop(share);
            let server = server.clone();
            Some(thread::spawn(move || server.work()))
        }

        /// The life of a worker in the slot.
        fn work(&self) {
            assert!(!serve(self.words(), &self.desk, &Work(self), false));
            if self.share.lock().unwrap().leave(SLOT) {
                self.last.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// Ends the connection, and tells its workers.
        fn end(&self) {
            self.dead.store(true, Ordering::Relaxed);
            let served = self.share.lock().unwrap().end();
            if served.is_empty() {
                self.last.fetch_add(1, Ordering::Relaxed);
            } else {
                self.words().rouse(&self.workers);
            }
        }
    }

    struct Work<'a>(&'a Server);

    impl Service for Work<'_> {
        fn run(&self) {}

        fn next(&self) -> Next {
            if self.0.dead.load(Ordering::Relaxed) {
                Next::End
            } else if self.0.desk.is_idle() {
                Next::Leave
            } else {
                Next::Wait
            }
        }

        fn wait(&self, words: Words<'_>, seen: Seen) {
            words.sleep_for_call(seen, &self.0.workers);
        }

        fn sleep(&self) -> &impl Sleep {
            &self.0.callers
        }
    }

    fn server() -> Arc<Server> {
        Arc::new(Server {
            call: AtomicU32::new(0),
            reply: AtomicU32::new(0),
            desk: Desk::new(),
            share: Mutex::new(Share::default()),
            dead: AtomicBool::new(false),
            workers: Kernel::new(),
            callers: Kernel::new(),
            last: AtomicU32::new(0),
        })
    }

    /// An idle worker leaves its slot, and the next call brings another one. Then the connection ends. Each
    /// worker leaves, and exactly one thread finds that all have left.
    fn changes_workers() {
        let server = server();
        let first = Server::send(&server);
        assert!(server.desk.tick(), "the worker has served no call");
        server.words().rouse(&server.workers);
        let issued = server.words().issue(Number::from(1), &server.workers);
        let second = if issued == Issued::Absent { Server::send(&server) } else { None };
        server.end();
        first.into_iter().chain(second).for_each(|worker| worker.join().unwrap());
        assert_eq!(server.last.load(Ordering::Relaxed), 1);
    }

    /// The connection ends while the caller asks for a worker.
    fn ends() {
        let server = server();
        let ends = thread::spawn({
            let server = server.clone();
            move || server.end()
        });
        let worker = Server::send(&server);
        ends.join().unwrap();
        worker.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(server.last.load(Ordering::Relaxed), 1);
    }

    use squall_sys::models;
    models! { "share::model":
        changes_workers: ONE;
        ends: ENDED;
    }
}
