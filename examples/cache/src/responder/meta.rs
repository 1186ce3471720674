//! The answers to meta commands: a code, and the flags that the client asked for, in its order.

use super::{NO_MEMORY, Responder, changed_text};
use crate::cache::{Changed, Count, Hit, StoreResult, Stored};
use crate::item::Item;
use crate::output::Output;
use crate::protocol::Meta;
use crate::protocol::base64::{self, DECODED_BYTES_MAX};
use crate::stats::Fact;
use crate::store::Store;

impl<S: Store> Responder<'_, S> {
    pub(super) fn meta_get(&mut self, meta: &Meta<'_>) {
        self.cache.stats().note(Fact::CmdMeta);
        let mut place = [0; DECODED_BYTES_MAX];
        let key = meta.key(&mut place);
        let (cache, output) = (self.cache, &mut self.output);
        let found = cache.meta_get(meta, key, &mut self.cas, |item, hit| {
            let now = cache.now();
            write_hit(output, meta, key, item, hit, now);
        });
        if found.is_none() && !meta.options.is_quiet {
            self.output.text(b"EN");
            self.end_line(meta, key);
        }
    }

    pub(super) fn meta_stored(&mut self, meta: &Meta<'_>, stored: Stored) {
        self.cache.stats().note(Fact::CmdMeta);
        let mut place = [0; DECODED_BYTES_MAX];
        let key = meta.key(&mut place);
        let Some(code) = code(stored.result) else { return self.output.text(NO_MEMORY) };
        if stored.result == StoreResult::Stored && meta.options.is_quiet {
            return;
        }
        let output = &mut self.output;
        output.text(code);
        for (letter, token) in meta.flags() {
            match letter {
                b'c' => output.flag(b" c", stored.cas),
                b's' => output.flag(b" s", stored.bytes as u64),
                _ => reflect(output, meta, key, letter, token),
            }
        }
        output.text(b"\r\n");
    }

    pub(super) fn meta_delete(&mut self, meta: &Meta<'_>) {
        self.cache.stats().note(Fact::CmdMeta);
        let mut place = [0; DECODED_BYTES_MAX];
        let key = meta.key(&mut place);
        let deleted = self.cache.meta_delete(meta, key, &mut self.cas);
        let Some(code) = code(deleted) else { return self.output.text(NO_MEMORY) };
        if deleted != StoreResult::Stored || !meta.options.is_quiet {
            self.output.text(code);
            self.end_line(meta, key);
        }
    }

    pub(super) fn meta_count(&mut self, meta: &Meta<'_>) {
        self.cache.stats().note(Fact::CmdMeta);
        let mut place = [0; DECODED_BYTES_MAX];
        let key = meta.key(&mut place);
        match self.cache.meta_count(meta, key, &mut self.cas) {
            Changed::Done(_) if meta.options.is_quiet => {}
            Changed::Done(count) => {
                let now = self.cache.now();
                write_count(&mut self.output, meta, key, &count, now);
            }
            Changed::NotFound => {
                self.output.text(b"NF");
                self.end_line(meta, key);
            }
            Changed::Exists => {
                self.output.text(b"EX");
                self.end_line(meta, key);
            }
            failed @ (Changed::NotANumber | Changed::NoMemory) => self.output.text(changed_text(&failed)),
        }
    }

    pub(super) fn meta_debug(&mut self, meta: &Meta<'_>) {
        self.cache.stats().note(Fact::CmdMeta);
        let mut place = [0; DECODED_BYTES_MAX];
        let key = meta.key(&mut place);
        let (now, output) = (self.cache.now(), &mut self.output);
        let found = self.cache.meta_debug(key, |item, hit| {
            output.text(b"ME ");
            output.key(key, item.has_binary_key());
            let expires =
                if item.expires() == 0 { -1 } else { item.expires().saturating_sub(now).cast_signed() };
            let (cas, fetched, size) =
                (item.cas, if hit.was_fetched { "yes" } else { "no" }, item.bytes(key));
            output.text(
                format!(" exp={expires} la={} cas={cas} fetch={fetched} cls=1 size={size}\r\n", hit.idle_s)
                    .as_bytes(),
            );
        });
        if found.is_none() {
            self.output.text(b"EN\r\n");
        }
    }

    /// Ends a line behind its code. Returns opaque tokens and keys alone.
    fn end_line(&mut self, meta: &Meta<'_>, key: &[u8]) {
        for (letter, token) in meta.flags() {
            reflect(&mut self.output, meta, key, letter, token);
        }
        self.output.text(b"\r\n");
    }
}

/// Writes the answer to an `mg` that found an item.
fn write_hit(output: &mut Output, meta: &Meta<'_>, key: &[u8], item: &Item, hit: Hit, now: u64) {
    let has_value = meta.options.wants_value && meta.options.cas != Some(item.cas);
    if has_value {
        output.flag(b"VA ", item.data.len() as u64);
    } else {
        output.text(b"HD");
    }
    let mut expires = hit.expires_before;
    for (letter, token) in meta.flags() {
        match letter {
            b'T' => expires = item.expires(),
            b'N' if hit.is_new => expires = item.expires(),
            b'c' => output.flag(b" c", item.cas),
            b'f' => output.flag(b" f", item.flags.into()),
            b'h' => output.flag(b" h", hit.was_fetched.into()),
            b'l' => output.flag(b" l", hit.idle_s),
            b's' => output.flag(b" s", item.data.len() as u64),
            b't' => write_remaining(output, expires, now),
            b'k' => write_key(output, key, item.has_binary_key()),
            _ => reflect(output, meta, key, letter, token),
        }
    }
    if hit.was_token_sent {
        output.text(b" Z");
    }
    if item.is_stale() {
        output.text(b" X");
    }
    if hit.has_won {
        output.text(b" W");
    }
    output.text(b"\r\n");
    if has_value {
        output.data(&item.data);
        output.text(b"\r\n");
    }
}

/// Writes the answer to an `ma` that counted.
fn write_count(output: &mut Output, meta: &Meta<'_>, key: &[u8], count: &Count, now: u64) {
    let digits = count.number.to_string();
    if meta.options.wants_value {
        output.flag(b"VA ", digits.len() as u64);
    } else {
        output.text(b"HD");
    }
    let mut expires = count.expires_before;
    for (letter, token) in meta.flags() {
        match letter {
            b'T' | b'N' => expires = count.expires,
            b'c' => output.flag(b" c", count.cas),
            b't' => write_remaining(output, expires, now),
            _ => reflect(output, meta, key, letter, token),
        }
    }
    output.text(b"\r\n");
    if meta.options.wants_value {
        output.text(digits.as_bytes());
        output.text(b"\r\n");
    }
}

/// Writes a flag that every answer returns, if it is one.
fn reflect(output: &mut Output, meta: &Meta<'_>, key: &[u8], letter: u8, token: &[u8]) {
    match letter {
        b'O' => {
            output.text(b" O");
            output.text(token);
        }
        b'k' => write_key(output, key, meta.options.is_binary),
        _ => {}
    }
}

fn write_key(output: &mut Output, key: &[u8], is_binary: bool) {
    output.text(b" k");
    output.key(key, is_binary);
    if is_binary {
        output.text(b" b");
    }
}

/// Writes the seconds until an item expires.
fn write_remaining(output: &mut Output, expires: u64, now: u64) {
    match expires {
        0 => output.text(b" t-1"),
        date => output.flag(b" t", date.saturating_sub(now)),
    }
}

/// Returns the code of a result that is no error.
fn code(result: StoreResult) -> Option<&'static [u8]> {
    match result {
        StoreResult::Stored => Some(b"HD"),
        StoreResult::NotStored => Some(b"NS"),
        StoreResult::Exists => Some(b"EX"),
        StoreResult::NotFound => Some(b"NF"),
        StoreResult::NoMemory => None,
    }
}

impl Output {
    /// Appends a text and a number.
    fn flag(&mut self, text: &[u8], number: u64) {
        self.text(text);
        self.number(number);
    }

    /// Appends a key, in base64 if it may have any bytes.
    fn key(&mut self, key: &[u8], is_binary: bool) {
        if !is_binary {
            return self.text(key);
        }
        let mut text = Vec::with_capacity(key.len().div_ceil(3) * 4);
        base64::encode(key, &mut text);
        self.text(&text);
    }
}
