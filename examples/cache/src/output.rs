//! Output that waits to be sent to one client.
//!
//! - I1. The writer sends the output when [`Output::is_full`] is true. Then it never holds more than that
//!   limit and one answer. Of large values it holds only the reference.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::data::Data;
use crate::idle::IdleTimeout;
use crate::item::Item;

/// Size at which the output is sent before another answer is made.
pub(crate) const FULL_BYTES: usize = 64 << 10;

/// Answers, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Large values, each with the position in `bytes` before which it belongs.
    large: Vec<(usize, Arc<[u8]>)>,
    large_bytes: usize,
}

impl Output {
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// Appends a decimal number.
    pub(crate) fn number(&mut self, mut number: u64) {
        // As many digits as the largest number has.
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[first..]);
    }

    /// Appends one entry of the answer to `get`.
    pub(crate) fn value(&mut self, key: &[u8], item: &Item, with_cas: bool) {
        self.text(b"VALUE ");
        self.text(key);
        self.text(b" ");
        self.number(item.flags.into());
        self.text(b" ");
        self.number(item.data.len() as u64);
        if with_cas {
            self.text(b" ");
            self.number(item.cas);
        }
        self.text(b"\r\n");
        self.data(&item.data);
        self.text(b"\r\n");
    }

    /// Appends a value.
    pub(crate) fn data(&mut self, data: &Data) {
        match data.shared() {
            Some(shared) => {
                self.large.push((self.bytes.len(), shared.clone()));
                self.large_bytes += shared.len();
            }
            None => self.text(data),
        }
    }

    /// Appends one line of the answer to `stats`.
    pub(crate) fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        self.text(format!("STAT {name} {value}\r\n").as_bytes());
    }

    /// Whether there is no output.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the size of all output.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// Whether the output must be sent before another answer (I1).
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= FULL_BYTES
    }

    /// Sends all output, and returns its size. Waits while the client does not read, up to the idle
    /// timeout.
    pub(crate) async fn send<T: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut T,
        timeout: IdleTimeout<'_>,
    ) -> io::Result<u64> {
        let sent = self.len() as u64;
        let mut from = 0;
        for (at, value) in self.large.drain(..) {
            write(stream, &self.bytes[from..at], timeout).await?;
            write(stream, &value, timeout).await?;
            from = at;
        }
        if from < self.bytes.len() {
            write(stream, &self.bytes[from..], timeout).await?;
        }
        self.large_bytes = 0;
        self.bytes.clear();
        self.bytes.shrink_to(FULL_BYTES);
        Ok(sent)
    }
}

/// Writes all bytes, with an idle timeout for each part that the client takes. So a slow client is not cut
/// off.
async fn write<T: AsyncWrite + Unpin>(
    stream: &mut T,
    mut bytes: &[u8],
    timeout: IdleTimeout<'_>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match timeout.wait(stream.write(bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 99, 1_234_567, u64::MAX] {
            let mut output = Output::default();
            output.number(number);
            assert_eq!(output.bytes, number.to_string().as_bytes());
        }
    }
}
