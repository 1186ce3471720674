//! Connections of browsers.
//!
//! Problem: every user of the machine can connect to the port, and hold connections open without a request.
//! Idea: a connection without a complete head of a request is closed after a few seconds, and so many are
//! served at once that a browser soon gets one.
//!
//! - I1. At most [`CONNECTIONS_MAX`] connections are open. Further ones wait in the kernel.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Largest number of open connections.
const CONNECTIONS_MAX: usize = 256;
/// Longest time until the head of the next request is complete. A page asks more often.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Longest time for the last answers to be sent.
const ANSWERING_MAX: Duration = Duration::from_secs(2);
/// Pause after the system had no descriptor or memory for a connection.
const REST: Duration = Duration::from_millis(200);

/// Serves the port until `stop` is ready. Then sends the answers that are under way.
pub(crate) async fn serve<T>(listener: TcpListener, router: Router, stop: impl Future<Output = T>) -> T {
    let graceful = Arc::new(GracefulShutdown::new());
    let watching = Arc::clone(&graceful);
    let accepting = tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(REST).await;
                continue;
            };
            let service = TowerToHyperService::new(router.clone());
            let connection = watching.watcher().watch(http.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                // An error concerns this connection alone.
                let _ = connection.await;
                drop(place);
            });
        }
    });
    let end = stop.await;
    accepting.abort();
    // The task is gone then, and no new connection comes.
    let _ = accepting.await;
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(ANSWERING_MAX, graceful.shutdown()).await;
    }
    end
}
