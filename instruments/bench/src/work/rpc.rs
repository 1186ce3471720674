//! The subjects of `rpc`: a client sends a word to a server thread, and waits for a word that it sends back.
//!
//! - I1. A reply is the request's word plus one. The client checks each.

use std::hint::black_box;
use std::thread::JoinHandle;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// A server that adds one to each word. It ends when `stop` was called.
pub(crate) trait Server: Send + Sync + 'static {
    type Client: Client;

    /// Makes the server and its thread.
    fn start() -> (Self, JoinHandle<()>)
    where
        Self: Sized;

    /// Makes the access of a thread.
    fn client(&self) -> Self::Client;

    /// Lets the server's thread end.
    fn stop(&self);
}

/// The access of one thread to a server.
pub(crate) trait Client {
    fn call(&mut self, word: u64) -> u64;
}

/// A server for each measured thread.
struct Calls<S: Server> {
    servers: Vec<(S, Option<JoinHandle<()>>)>,
}

/// Makes the subject that calls this server.
pub(crate) const fn calls<S: Server>() -> Make {
    fn make<S: Server>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let start = |_| {
            let (server, thread) = S::start();
            (server, Some(thread))
        };
        Ok(Box::new(Calls { servers: (0..setting.threads).map(start).collect() }))
    }
    make::<S>
}

impl<S: Server> Subject for Calls<S> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut client = self.servers[thread].0.client();
        let mut call = move |word| {
            let reply = client.call(black_box(word));
            assert_eq!(reply, word + 1, "a reply to another request");
        };
        // Makes everything that the thread's first use makes.
        call(0);
        Box::new(move |ops| (0..ops).for_each(&mut call))
    }
}

impl<S: Server> Drop for Calls<S> {
    fn drop(&mut self) {
        for (server, thread) in &mut self.servers {
            server.stop();
            if let Some(thread) = thread.take() {
                thread.join().expect("the server panicked");
            }
        }
    }
}
