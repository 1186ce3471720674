//! The answering side of a connection.

mod meta;
mod stats;

use std::io;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::io::AsyncWrite;

use crate::VERSION;
use crate::cache::{Cache, CasNumbers, Changed, StoreResult, Stored, Terms};
use crate::idle::IdleTimeout;
use crate::output::Output;
use crate::protocol::base64::DECODED_BYTES_MAX;
use crate::protocol::{Keys, Request, Storing, Unstored};
use crate::stats::Fact;
use crate::store::Store;

const OK: &[u8] = b"OK\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

/// Runs requests, and holds their answers until they are sent.
pub(crate) struct Responder<'a, S> {
    cache: &'a Cache<S>,
    cas: CasNumbers,
    output: Output,
    sent_bytes: u64,
}

impl<'a, S: Store> Responder<'a, S> {
    pub(crate) fn new(cache: &'a Cache<S>) -> Responder<'a, S> {
        Responder { cache, cas: CasNumbers::default(), output: Output::default(), sent_bytes: 0 }
    }

    /// Returns the size of all answers that were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Sends all answers.
    pub(crate) async fn send<T: AsyncWrite + Unpin>(&mut self, stream: &mut T) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let idle_s_max = self.cache.config().read(|config| config.idle_s_max);
        let sent = self.output.send(stream, IdleTimeout::new(self.cache.stats(), idle_s_max)).await?;
        self.cache.stats().add(Fact::BytesWritten, sent);
        self.sent_bytes += sent;
        Ok(())
    }

    pub(crate) async fn send_if_full<T: AsyncWrite + Unpin>(&mut self, stream: &mut T) -> io::Result<()> {
        if self.output.is_full() { self.send(stream).await } else { Ok(()) }
    }

    pub(crate) fn reply(&mut self, noreply: bool, text: &[u8]) {
        if !noreply {
            self.output.text(text);
        }
    }

    /// Answers a `get`, or a part of it. Sends between two values if needed: few values are held, for any
    /// number of keys.
    pub(crate) async fn get<T: AsyncWrite + Unpin>(
        &mut self,
        keys: Keys<'_>,
        cas: bool,
        exptime: Option<i64>,
        is_last: bool,
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
        if is_last {
            self.output.text(b"END\r\n");
        }
        Ok(())
    }

    /// Answers each request that never waits.
    pub(crate) fn answer(&mut self, request: Request<'_>) {
        match request {
            Request::Store { of, data } => self.store(&of, data),
            Request::Unstored { of, reason } => self.refuse_value(&of, reason),
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
                changed => self.reply(noreply, changed_text(&changed)),
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
            Request::Stats { of, words } => self.stats(of, words),
            Request::MetaGet(meta) => self.meta_get(&meta),
            Request::MetaDelete(meta) => self.meta_delete(&meta),
            Request::MetaCount(meta) => self.meta_count(&meta),
            Request::MetaDebug(meta) => self.meta_debug(&meta),
            Request::MetaNoOp => self.output.text(b"MN\r\n"),
            Request::Get { .. } | Request::Quit => unreachable!("answered by the connection"),
        }
    }

    fn store(&mut self, of: &Storing<'_>, data: &[u8]) {
        match of {
            Storing::Plain { key, noreply, .. } => {
                let Stored { result, .. } =
                    self.cache.store_value(key, &Terms::from(of), data, &mut self.cas);
                let text: &[u8] = match result {
                    StoreResult::Stored => b"STORED\r\n",
                    StoreResult::NotStored => b"NOT_STORED\r\n",
                    StoreResult::Exists => b"EXISTS\r\n",
                    StoreResult::NotFound => NOT_FOUND,
                    StoreResult::NoMemory => NO_MEMORY,
                };
                self.reply(*noreply, text);
            }
            Storing::Meta { meta, .. } => {
                let mut place = [0; DECODED_BYTES_MAX];
                let stored =
                    self.cache.store_value(meta.key(&mut place), &Terms::from(of), data, &mut self.cas);
                self.meta_stored(meta, stored);
            }
        }
    }

    fn refuse_value(&mut self, of: &Storing<'_>, reason: Unstored) {
        let mut place = [0; DECODED_BYTES_MAX];
        let (verb, key, noreply) = match of {
            Storing::Plain { verb, key, noreply, .. } => (*verb, *key, *noreply),
            // Errors are always returned.
            Storing::Meta { verb, meta } => (*verb, meta.key(&mut place), false),
        };
        let (fact, text) = match reason {
            Unstored::TooLarge => (Fact::StoreTooLarge, TOO_LARGE),
            Unstored::NoMemory => (Fact::StoreNoMemory, NO_MEMORY),
        };
        self.cache.refuse_value(verb, key, fact);
        self.reply(noreply, text);
    }
}

/// Returns the answer to a count that failed.
fn changed_text<T>(changed: &Changed<T>) -> &'static [u8] {
    match changed {
        Changed::NotANumber => NOT_A_NUMBER,
        Changed::NoMemory => NO_MEMORY,
        Changed::NotFound | Changed::Exists | Changed::Done(_) => NOT_FOUND,
    }
}
