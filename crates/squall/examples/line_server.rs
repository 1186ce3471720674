//! A small server on Tokio, one request per line. Its statistics and its rate limiter are Squall objects.
//!
//! Handles are `Copy` and `Send`, so every task keeps its own across `.await`, without a lock or a guard. The
//! statistics and the limiter have one representative for each core that calls them. `LIMIT` destroys the
//! limiter and makes a new one while all tasks use it: a call through the old handle gets an error, and the
//! task takes the new handle.
//!
//! `cargo run --release -p squall --example line_server` serves on 127.0.0.1:7878 until interrupted
//!
//! `cargo run --release -p squall --example line_server -- --demo` calls itself and checks the counts
//!
//! Requests: `ECHO text`, `LIMIT requests-per-10-ms`, `STATS`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use squall::pervp::BiasedWord;
use squall::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Time between two refills of the limiter.
const PERIOD: Duration = Duration::from_millis(10);

/// Statistics, with a representative for each core.
#[squall::interface]
trait Stats: Send + Sync {
    fn served(&self);
    fn rejected(&self);
    /// Returns the numbers of served and rejected requests.
    fn totals(&self) -> (u64, u64);
}

struct PerCore;

struct Part {
    served: BiasedWord,
    rejected: BiasedWord,
    context: RepContext<PerCore>,
}

impl Root for PerCore {
    type Interface = dyn Stats;
    type Rep = Part;

    fn make_rep(&self, context: RepContext<PerCore>) -> Part {
        Part { served: BiasedWord::new(context.vp()), rejected: BiasedWord::new(context.vp()), context }
    }
}

impl Stats for Part {
    fn served(&self) {
        self.served.add(1);
    }

    fn rejected(&self) {
        self.rejected.add(1);
    }

    fn totals(&self) -> (u64, u64) {
        let own = |part: &Part| (part.served.load(), part.rejected.load());
        self.context.gather(own, |a, b| (a.0 + b.0, a.1 + b.1)).unwrap_or_default()
    }
}

/// A rate limiter: each core has its share of the tokens.
#[squall::interface]
trait Limiter: Send + Sync {
    /// Takes a token of this core; returns false if all are taken.
    fn admit(&self) -> bool;
    /// Gives every core its tokens for the next period.
    fn refill(&self);
}

/// The root: tokens per core and period.
struct Buckets(u64);

struct Bucket {
    left: AtomicU64,
    context: RepContext<Buckets>,
}

impl Root for Buckets {
    type Interface = dyn Limiter;
    type Rep = Bucket;

    fn make_rep(&self, context: RepContext<Buckets>) -> Bucket {
        Bucket { left: AtomicU64::new(self.0), context }
    }
}

impl Limiter for Bucket {
    fn admit(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn refill(&self) {
        let Buckets(tokens) = *self.context.root();
        self.context.broadcast(|bucket| bucket.left.store(tokens, Ordering::Relaxed));
    }
}

fn limiter(tokens_per_period: u64) -> Owned<dyn Limiter> {
    let cores = squall::machine().clusters(ClusterSize::Core).len() as u64;
    Buckets(tokens_per_period.div_ceil(cores)).create(ClusterSize::Core)
}

struct Server {
    stats: Owned<dyn Stats>,
    limiter: Mutex<Owned<dyn Limiter>>,
}

impl Server {
    fn new(tokens_per_period: u64) -> Arc<Server> {
        Arc::new(Server {
            stats: PerCore.create(ClusterSize::Core),
            limiter: Mutex::new(limiter(tokens_per_period)),
        })
    }

    fn limiter(&self) -> Handle<dyn Limiter> {
        self.limiter.lock().unwrap().handle()
    }

    /// Asks the limiter. If it was destroyed, takes the handle of the current one.
    fn admit(&self, limiter: &mut Handle<dyn Limiter>) -> bool {
        loop {
            match limiter.try_admit() {
                Ok(admitted) => return admitted,
                Err(_replaced) => *limiter = self.limiter(),
            }
        }
    }

    fn answer(&self, request: &str) -> String {
        match request.split_once(' ').unwrap_or((request, "")) {
            ("ECHO", text) => format!("{text}\n"),
            ("LIMIT", tokens) => {
                let Ok(tokens) = tokens.parse() else { return "ERROR LIMIT needs a number\n".to_owned() };
                // Destroys the old limiter, although tasks may be calling it.
                *self.limiter.lock().unwrap() = limiter(tokens);
                "OK\n".to_owned()
            }
            ("STATS", _) => {
                let (served, rejected) = self.stats.totals();
                format!("STATS served {served} rejected {rejected}\n")
            }
            _ => "ERROR unknown request: use ECHO, LIMIT or STATS\n".to_owned(),
        }
    }

    async fn serve(self: Arc<Server>, stream: TcpStream) -> std::io::Result<()> {
        let (stats, mut limiter) = (self.stats.handle(), self.limiter());
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(request) = lines.next_line().await? {
            let answer = if request.starts_with("LIMIT") || self.admit(&mut limiter) {
                stats.served();
                self.answer(&request)
            } else {
                stats.rejected();
                "BUSY\n".to_owned()
            };
            writer.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }

    async fn run(self: Arc<Server>, listener: TcpListener) -> std::io::Result<()> {
        let server = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PERIOD).await;
                // An error means that the limiter was replaced just now.
                let _ = server.limiter().try_refill();
            }
        });
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(self.clone().serve(stream));
        }
    }
}

/// Sends requests until `end`. Returns the numbers of answers and of rejections.
async fn client(to: SocketAddr, end: Instant) -> std::io::Result<(u64, u64)> {
    let (reader, mut writer) = TcpStream::connect(to).await?.into_split();
    let mut lines = BufReader::new(reader).lines();
    let (mut answers, mut rejections) = (0, 0);
    while Instant::now() < end {
        let text = format!("request {}", answers + rejections);
        writer.write_all(format!("ECHO {text}\n").as_bytes()).await?;
        match lines.next_line().await? {
            Some(answer) if answer == text => answers += 1,
            Some(answer) if answer == "BUSY" => rejections += 1,
            other => return Err(std::io::Error::other(format!("the answer to {text:?} is {other:?}"))),
        }
    }
    Ok((answers, rejections))
}

async fn demo() -> std::io::Result<()> {
    const CLIENTS: usize = 16;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::new(20);
    tokio::spawn(server.clone().run(listener));
    let end = Instant::now() + Duration::from_secs(1);
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client(address, end))).collect();
    // Changes the limit sixteen times under load. The last limit admits every request.
    for change in 1..=16 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let tokens = if change == 16 { 1_000_000 } else { 20 * change };
        assert_eq!(server.answer(&format!("LIMIT {tokens}")), "OK\n");
    }
    let (mut answers, mut rejections) = (0, 0);
    for client in clients {
        let (a, r) = client.await??;
        (answers, rejections) = (answers + a, rejections + r);
    }
    let (served, rejected) = server.stats.totals();
    println!("{CLIENTS} clients, 17 limiters, 1 second: {answers} answers and {rejections} rejections");
    println!("the server counted {served} served and {rejected} rejected");
    assert_eq!((served, rejected), (answers, rejections), "each request is counted once");
    Ok(())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    if std::env::args().any(|argument| argument == "--demo") {
        return demo().await;
    }
    let listener = TcpListener::bind("127.0.0.1:7878").await?;
    println!("serving on {}", listener.local_addr()?);
    Server::new(100_000).run(listener).await
}
