//! `tarpc` as a rival of calls between threads. Its transport is a pair of channels without an encoding, and
//! each side has a runtime of one thread.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ::tarpc::client::Config;
use ::tarpc::context;
use ::tarpc::server::{BaseChannel, Channel};
use futures_core::Stream;
use tokio::runtime::{Builder, Runtime};

use crate::work::rpc::{Client, Server};

/// Generated code has no documentation.
#[allow(missing_docs)]
mod service {
    /// The service.
    #[::tarpc::service]
    pub(super) trait Next {
        /// Adds one.
        async fn next(word: u64) -> u64;
    }
}

use service::{Next, NextClient};

#[derive(Clone)]
struct Plain;

impl Next for Plain {
    async fn next(self, _: context::Context, word: u64) -> u64 {
        word + 1
    }
}

/// A server of tarpc. It ends with its client.
pub(crate) struct Tarpc {
    /// Lent to the client.
    lent: Lent,
}

type Lent = Arc<Mutex<Option<Stub>>>;

/// The client's stub, with its runtime.
struct Stub {
    runtime: Runtime,
    client: NextClient,
}

/// The access of a thread.
pub(crate) struct Access {
    stub: Option<Stub>,
    lender: Lent,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("the system has room for a runtime")
}

impl Server for Tarpc {
    type Client = Access;

    fn start() -> (Tarpc, JoinHandle<()>) {
        let (client, server) = ::tarpc::transport::channel::unbounded();
        let thread = thread::spawn(move || {
            let requests = BaseChannel::with_defaults(server).execute(Plain.serve());
            runtime().block_on(async {
                let mut requests = std::pin::pin!(requests);
                while let Some(request) =
                    std::future::poll_fn(|context| requests.as_mut().poll_next(context)).await
                {
                    request.await;
                }
            });
        });
        let runtime = runtime();
        let client = {
            let _entered = runtime.enter();
            NextClient::new(Config::default(), client).spawn()
        };
        (Tarpc { lent: Arc::new(Mutex::new(Some(Stub { runtime, client }))) }, thread)
    }

    fn client(&self) -> Access {
        let stub = self.lent.lock().expect("a thread panicked under the lock").take();
        assert!(stub.is_some(), "a server has one client at a time");
        Access { stub, lender: self.lent.clone() }
    }

    fn stop(&self) {
        // The server ends with its client.
        drop(self.lent.lock().expect("a thread panicked under the lock").take());
    }
}

impl Client for Access {
    fn call(&mut self, word: u64) -> u64 {
        let Stub { runtime, client } = self.stub.as_ref().expect("lent until the drop");
        runtime.block_on(client.next(context::current(), word)).expect("the server runs")
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        *self.lender.lock().expect("a thread panicked under the lock") = self.stub.take();
    }
}
