//! A server on Tokio that answers the requests in flight before it ends, all on one thread.
//!
//! - Each request enters a gate by `request_async`, and leaves it when its task drops the guard.
//! - A reload stops the gate by `stop_async`: no request sees half of the change.
//! - The end is `shutdown_async` under the runtime's timer: later requests are rejected, and the requests in
//!   flight get their answers.
//!
//! `cargo run --release -p squall --example graceful_shutdown`
//!
//! Requests: `GET name`, `SLOW name` (waits until the backend answers).

use std::future::Future;
use std::time::Duration;

use squall::objects::counter::{self, Counter};
use squall::objects::gate::{self, Gate, GateExt};
use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use squall::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The time that requests in flight have after the end was asked for.
const LIMIT: Duration = Duration::from_secs(30);

/// The objects of the server. Handles are `Copy`, so each task has its own.
#[derive(Clone, Copy)]
struct Server {
    gate: Handle<dyn Gate>,
    served: Handle<dyn Counter>,
    greeting: Handle<dyn ReadMostly<String>>,
}

impl Server {
    /// Serves until `end` is ready. Then waits for the requests in flight, and returns how many were left at
    /// the limit.
    async fn run(self, listener: TcpListener, backend: watch::Receiver<bool>, end: impl Future) -> u64 {
        let accept = async {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.serve(stream, backend.clone()));
            }
        };
        tokio::select! {
            () = accept => {}
            _ = end => {}
        }
        match tokio::time::timeout(LIMIT, self.gate.shutdown_async()).await {
            Ok(drained) => drained.expect("only this task controls the gate"),
            Err(_elapsed) => eprintln!("the server ends with requests in flight"),
        }
        self.gate.inside()
    }

    async fn serve(self, stream: TcpStream, mut backend: watch::Receiver<bool>) -> std::io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await? {
            // Waits while the gate is stopped. Leaves when it is dropped, also if this task is cancelled.
            let Ok(_request) = self.gate.request_async().await else {
                return writer.write_all(b"the server ends\n").await;
            };
            if line.starts_with("SLOW") {
                let _ = backend.wait_for(|answers| *answers).await;
            }
            self.served.inc();
            let answer = self.greeting.read(|greeting| format!("{greeting} {line}\n"));
            writer.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }

    /// Changes the configuration while no request is inside.
    async fn reload(self, greeting: &str) {
        self.gate.stop_async().await.expect("only this task controls the gate");
        self.greeting.set(greeting.to_owned());
        self.gate.restart().expect("the gate is stopped");
    }
}

/// A client's connection.
struct Client {
    lines: tokio::io::Lines<BufReader<tokio::net::tcp::OwnedReadHalf>>,
    writer: tokio::net::tcp::OwnedWriteHalf,
}

impl Client {
    async fn connect(listener: std::net::SocketAddr) -> std::io::Result<Client> {
        let (reader, writer) = TcpStream::connect(listener).await?.into_split();
        Ok(Client { lines: BufReader::new(reader).lines(), writer })
    }

    async fn send(&mut self, line: &str) -> std::io::Result<()> {
        self.writer.write_all(format!("{line}\n").as_bytes()).await
    }

    async fn answer(&mut self) -> std::io::Result<String> {
        Ok(self.lines.next_line().await?.expect("the server answers"))
    }
}

/// Returns once `is_so` holds. Other tasks run meanwhile.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

async fn demo() -> std::io::Result<()> {
    let owners = (gate::distributed(), counter::adaptive(), read_mostly::adaptive("hello".to_owned()));
    let server = Server { gate: owners.0.handle(), served: owners.1.handle(), greeting: owners.2.handle() };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (answers, backend) = watch::channel(false);
    // In a service: `tokio::signal::ctrl_c()`.
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(listener, backend, ended));

    let (mut fast, mut slow) = (Client::connect(address).await?, Client::connect(address).await?);
    fast.send("GET ann").await?;
    assert_eq!(fast.answer().await?, "hello GET ann");
    server.reload("welcome").await;
    fast.send("GET bob").await?;
    assert_eq!(fast.answer().await?, "welcome GET bob");

    // A request is in flight when the server is told to end.
    slow.send("SLOW eve").await?;
    until(|| server.gate.inside() == 1).await;
    end.send(()).expect("the server runs");
    until(|| server.gate.state() == gate::GateState::ShutDown).await;
    fast.send("GET dan").await?;
    assert_eq!(fast.answer().await?, "the server ends");
    assert!(!running.is_finished(), "a request is in flight");
    answers.send(true).expect("the server waits for it");
    assert_eq!(slow.answer().await?, "welcome SLOW eve");
    assert_eq!(running.await?, 0);
    println!("{} requests served; the last one after the server was told to end", server.served.total());
    Ok(())
}

/// Runs the server and its clients on the calling thread.
pub(crate) fn main() -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(demo())
}
