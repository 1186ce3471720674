//! One connection: the requests of a client, one after the other, and the answers in the same order.
//!
//! - I1. The connection keeps at most the input that the parser waits for, and one read more. output/I1
//!   bounds the output. While the client does not read its answers, the server does not read its requests.
//! - I2. A client's input, or its absence, ends only its own connection.

use std::io;
use std::sync::Arc;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::VERSION;
use crate::cache::{Cache, CasNumbers, Changed, StoreResult};
use crate::idle::IdleTimeout;
use crate::output::Output;
use crate::protocol::{Keys, Outcome, Parser, Request};
use crate::stats::Fact;
use crate::store::Store;

/// Minimum number of bytes to read at once.
const READ_BYTES: usize = 8 << 10;

/// Received input that the parser has not used yet.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    /// Number of bytes that are used.
    used: usize,
}

impl Input {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Makes room for `wanted` bytes beside the used ones, a part at a time. So a client that announces a
    /// large value and sends no byte of it gets no more memory than others.
    fn make_place(&mut self, wanted: usize) {
        self.bytes.drain(..self.used);
        self.used = 0;
        let missing = wanted.saturating_sub(self.bytes.len());
        let more = missing.min(self.bytes.len()).max(READ_BYTES);
        if self.bytes.len() + more < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(self.bytes.len() + more);
        }
        self.bytes.reserve_exact(more);
    }
}

/// Serves one client until it leaves or the connection breaks.
///
/// # Errors
/// The error of the stream.
pub async fn serve_client<S, T>(cache: &Arc<Cache<S>>, mut stream: T) -> io::Result<()>
where
    S: Store,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut responder = Responder { cache, cas: CasNumbers::default(), output: Output::default() };
    let (mut parser, mut input) = (Parser::new(), Input::default());
    loop {
        let (value_bytes_max, idle_s_max) =
            cache.config().read(|config| (config.value_bytes_max, config.idle_s_max));
        let timeout = IdleTimeout::new(cache.stats(), idle_s_max);
        let parsed = parser.next(input.rest(), value_bytes_max);
        let used = parsed.used;
        match parsed.outcome {
            Outcome::Request(Request::Get { keys, cas, exptime }) => {
                responder.get(keys, cas, exptime, &mut stream).await?;
            }
            Outcome::Request(Request::Quit) => {
                responder.send(&mut stream).await?;
                return Ok(());
            }
            Outcome::Request(request) => {
                responder.answer(request);
                if cache.is_reclaim_due() {
                    reclaim(cache).await;
                }
            }
            Outcome::Refused { refusal, noreply } => responder.reply(noreply, refusal.text()),
            Outcome::Wait { bytes } => {
                input.used += used;
                responder.send(&mut stream).await?;
                input.make_place(bytes);
                match timeout.wait(stream.read_buf(&mut input.bytes)).await? {
                    0 => return Ok(()),
                    read => cache.stats().add(Fact::BytesRead, read as u64),
                }
                continue;
            }
        }
        input.used += used;
        responder.send_if_full(&mut stream).await?;
    }
}

/// Waits until the memory of removed entries is free. Uses a thread for blocking calls if there is a
/// runtime.
async fn reclaim<S: Store>(cache: &Arc<Cache<S>>) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            let cache = cache.clone();
            // The closure does not panic.
            let _ = runtime.spawn_blocking(move || cache.store().reclaim()).await;
        }
        Err(_) => cache.store().reclaim(),
    }
}

/// The answering side of a connection.
struct Responder<'a, S> {
    cache: &'a Cache<S>,
    cas: CasNumbers,
    output: Output,
}

impl<S: Store> Responder<'_, S> {
    async fn send<T: AsyncWrite + Unpin>(&mut self, stream: &mut T) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let idle_s_max = self.cache.config().read(|config| config.idle_s_max);
        let sent = self.output.send(stream, IdleTimeout::new(self.cache.stats(), idle_s_max)).await?;
        self.cache.stats().add(Fact::BytesWritten, sent);
        Ok(())
    }

    async fn send_if_full<T: AsyncWrite + Unpin>(&mut self, stream: &mut T) -> io::Result<()> {
        if self.output.is_full() { self.send(stream).await } else { Ok(()) }
    }

    fn reply(&mut self, noreply: bool, text: &[u8]) {
        if !noreply {
            self.output.text(text);
        }
    }

    /// Answers a `get`. Sends between two values if needed: few values are held, for any number of keys.
    async fn get<T: AsyncWrite + Unpin>(
        &mut self,
        keys: Keys<'_>,
        cas: bool,
        exptime: Option<i64>,
        stream: &mut T,
    ) -> io::Result<()> {
        for key in keys {
            let moment = self.cache.moment();
            match exptime {
                None => {
                    let output = &mut self.output;
                    self.cache.get(key, moment, |item| output.value(key, item, cas));
                }
                Some(exptime) => {
                    if let Some(item) = self.cache.get_and_touch(key, exptime, moment) {
                        self.output.value(key, &item, cas);
                    }
                }
            }
            self.send_if_full(stream).await?;
        }
        self.output.text(b"END\r\n");
        Ok(())
    }

    /// Answers each request that never waits.
    fn answer(&mut self, request: Request<'_>) {
        match request {
            Request::Store { verb, key, flags, exptime, data, noreply } => {
                let stored = self.cache.store_value(verb, key, (flags, exptime), data, &mut self.cas);
                self.reply(noreply, stored_text(stored));
            }
            Request::TooLarge { verb, key, noreply } => {
                self.cache.refuse_value(verb, key);
                self.reply(noreply, stored_text(StoreResult::TooLarge));
            }
            Request::Delete { key, noreply } => {
                let found = self.cache.delete(key);
                self.reply(noreply, if found { b"DELETED\r\n" } else { NOT_FOUND });
            }
            Request::Count { key, up, by, noreply } => match self.cache.count(key, up, by, &mut self.cas) {
                Changed::Done(number) if !noreply => {
                    self.output.number(number);
                    self.output.text(b"\r\n");
                }
                Changed::Done(_) => {}
                Changed::NotFound => self.reply(noreply, NOT_FOUND),
                Changed::NotANumber => self.reply(noreply, NOT_A_NUMBER),
            },
            Request::Touch { key, exptime, noreply } => {
                let found = self.cache.touch(key, exptime);
                self.reply(noreply, if found { b"TOUCHED\r\n" } else { NOT_FOUND });
            }
            Request::FlushAll { delay, noreply } => {
                self.cache.flush(delay);
                self.reply(noreply, OK);
            }
            Request::Verbosity { level, noreply } => {
                self.cache.configure(|config| config.verbosity = level);
                self.reply(noreply, OK);
            }
            Request::MemoryLimit { mib, noreply } => {
                self.cache.configure(|config| config.memory_bytes_max = u64::from(mib) << 20);
                self.reply(noreply, OK);
            }
            Request::Version => self.output.text(format!("VERSION {VERSION}\r\n").as_bytes()),
            Request::Stats(of) => self.stats(of),
            Request::Get { .. } | Request::Quit => unreachable!("answered by the connection"),
        }
    }

    fn stats(&mut self, of: Option<&[u8]>) {
        let (cache, output) = (self.cache, &mut self.output);
        match of {
            None => {
                output.stat("pid", std::process::id());
                output.stat("uptime", cache.uptime_s());
                output.stat("time", cache.moment().now);
                output.stat("version", VERSION);
                output.stat("squall_version", env!("CARGO_PKG_VERSION"));
                output.stat("pointer_size", usize::BITS);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    output.stat("threads", runtime.metrics().num_workers());
                }
                output.stat("curr_connections", cache.connections());
                output.stat("max_connections", cache.config().read(|config| config.connections_max));
                cache.stats().all().for_each(|(name, total)| output.stat(name, total));
                output.stat("curr_items", cache.store().len());
                output.stat("bytes", cache.used_bytes());
                output.stat("limit_maxbytes", cache.config().read(|config| config.memory_bytes_max));
            }
            Some(b"settings") => {
                let config = cache.config().get_cloned();
                output.stat("maxbytes", config.memory_bytes_max);
                output.stat("maxconns", config.connections_max);
                output.stat("item_size_max", config.value_bytes_max);
                output.stat("default_ttl", config.default_ttl_s);
                output.stat("idle_timeout", config.idle_s_max);
                output.stat("verbosity", config.verbosity);
                output.stat("evictions", "on");
                output.stat("cas_enabled", "yes");
            }
            // There is one table and there are no slabs. A tool that asks for each class is told of one
            // class.
            Some(b"items") => {
                let items = cache.store().len();
                if items > 0 {
                    output.stat("items:1:number", items);
                    output.stat("items:1:mem_requested", cache.used_bytes());
                    output.stat("items:1:evicted", cache.stats().total(Fact::Evictions));
                    output.stat("items:1:outofmemory", cache.stats().total(Fact::StoreNoMemory));
                    output.stat("items:1:reclaimed", cache.stats().total(Fact::Reclaimed));
                }
            }
            Some(b"slabs") => {
                output.stat("active_slabs", 0);
                output.stat("total_malloced", cache.used_bytes());
            }
            Some(b"reset") => {
                cache.stats().reset();
                output.text(b"RESET\r\n");
                return;
            }
            Some(_) => {
                output.text(b"ERROR\r\n");
                return;
            }
        }
        output.text(b"END\r\n");
    }
}

const OK: &[u8] = b"OK\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

fn stored_text(stored: StoreResult) -> &'static [u8] {
    match stored {
        StoreResult::Stored => b"STORED\r\n",
        StoreResult::NotStored => b"NOT_STORED\r\n",
        StoreResult::Exists => b"EXISTS\r\n",
        StoreResult::NotFound => NOT_FOUND,
        StoreResult::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
        StoreResult::NoMemory => b"SERVER_ERROR out of memory storing object\r\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_room_is_made_for_received_bytes_not_for_announced_ones() {
        let mut input = Input::default();
        input.make_place(1 << 20);
        assert!(input.bytes.capacity() <= 2 * READ_BYTES);
        input.bytes.resize(100_000, 0);
        input.make_place(1 << 20);
        assert!((200_000..300_000).contains(&input.bytes.capacity()));
        // A large value that is used up leaves no large buffer behind.
        input.used = input.bytes.len();
        input.make_place(1);
        assert!(input.bytes.capacity() <= 2 * READ_BYTES);
        assert!(input.rest().is_empty());
    }
}
