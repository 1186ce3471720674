//! Encrypted connections by the Noise protocol, with the key of a group.
//!
//! Problem: a connection crosses a network that others use. Its frames must stay secret and unchanged, and
//! only holders of the key of the group may send them.
//! Idea: the handshake `NNpsk0` makes a fresh key for each direction of each connection from two random
//! numbers and a secret. That is derived from the key of the group. The two messages carry the endpoints of
//! both sides. Afterwards the bytes of the frames travel in *records*: each one is encrypted, and numbered by
//! its place.
//!
//! - I1. Each side encrypts with a key of its own, and no number of a record is used twice: the counter lies
//!   beside the key.
//! - I2. Records are opened with the numbers 0, 1, 2 and so on. So a record that is changed, repeated, left
//!   out, or of another connection or direction does not open. It ends the connection.
//! - I3. The accepting side uses a connection only after the first record. So a copy of an old greeting
//!   opens none.
//! - I4. The dialling side uses a connection only if the other side claims the endpoint that was dialled. So
//!   bytes that are led to another holder of the key reach no frame of it.
//! - I5. The number of the group in a frame tells neither the key nor the secret. So a group that has sent
//!   frames without encryption may encrypt later with the same key.
//!
//! Not promised: an order between connections, and the arrival of a frame. The lengths and the times of
//! records stay visible. A holder of the key can claim any endpoint of its own address.
//! Cost: two operations on Curve25519 for each side and connection. Each record has 20 bytes more. Each byte
//! is encrypted and copied once on each side.
//! Source: Perrin, *The Noise Protocol Framework*, revision 34, 2018, by the crate `snow`.

use crate::frame::{Broken, LENGTH_BYTES, SEALED_MAGIC};
use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, StatelessTransportState};
use squall_fleet::__parts::library_secret;
use squall_fleet::GroupKey;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;

/// The pattern and its algorithms.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The purpose of the secret that is derived from the key of the group.
const PURPOSE: &str = "squall-net noise";
/// The bytes by which encryption makes a message longer.
const TAG_BYTES: usize = 16;
/// The bytes of a public number of Curve25519.
const PUBLIC_BYTES: usize = 32;
/// The bytes of the encrypted content of a greeting: the length of an endpoint, and the endpoint with zeros
/// behind it. So the length of a greeting does not tell the length of the endpoint.
const CONTENT_BYTES: usize = 65;
/// The bytes of a greeting behind the magic number.
const MESSAGE_BYTES: usize = PUBLIC_BYTES + CONTENT_BYTES + TAG_BYTES;
/// The bytes of a greeting.
pub(crate) const GREETING_BYTES: usize = SEALED_MAGIC.len() + MESSAGE_BYTES;
/// The bytes of the record without content that confirms a handshake.
pub(crate) const CONFIRM_BYTES: usize = LENGTH_BYTES + TAG_BYTES;
/// The most bytes of a record behind its length. Noise has no longer messages.
pub(crate) const RECORD_BYTES_MAX: usize = 65_535;

impl From<snow::Error> for Broken {
    fn from(_: snow::Error) -> Broken {
        Broken
    }
}

/// The secret that all sides share.
#[derive(Clone)]
pub(crate) struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(_)")
    }
}

/// A handshake of the dialling side that waits for its answer.
pub(crate) struct Asking(Box<HandshakeState>);

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asking(_)")
    }
}

impl Secret {
    /// Makes the secret of a group.
    pub(crate) fn new(key: GroupKey) -> Secret {
        Secret(library_secret(key, PURPOSE))
    }

    fn builder(&self) -> Result<Builder<'_>, Broken> {
        let pattern: NoiseParams = PATTERN.parse()?;
        Ok(Builder::new(pattern).prologue(&SEALED_MAGIC)?.psk(0, &self.0)?)
    }

    /// Begins a handshake. Returns the greeting of the dialling side, which tells its endpoint.
    pub(crate) fn ask(&self, endpoint: &str) -> Result<(Vec<u8>, Asking), Broken> {
        let mut state = self.builder()?.build_initiator()?;
        let greeting = greeting(&mut state, endpoint)?;
        Ok((greeting, Asking(Box::new(state))))
    }

    /// Answers the greeting of a dialling side. Returns the greeting to send, the keys, and the endpoint
    /// that the other side claims.
    pub(crate) fn answer(
        &self,
        endpoint: &str,
        greeted: &[u8],
    ) -> Result<(Vec<u8>, LinkKeys, String), Broken> {
        let mut state = self.builder()?.build_responder()?;
        let claimed = read(&mut state, greeted)?;
        let greeting = greeting(&mut state, endpoint)?;
        Ok((greeting, LinkKeys::new(state)?, claimed))
    }
}

impl Asking {
    /// Ends the handshake with the greeting of the accepting side. Returns the keys, and the endpoint that
    /// the other side claims.
    pub(crate) fn finish(mut self, greeted: &[u8]) -> Result<(LinkKeys, String), Broken> {
        let claimed = read(&mut self.0, greeted)?;
        Ok((LinkKeys::new(*self.0)?, claimed))
    }
}

fn greeting(state: &mut HandshakeState, endpoint: &str) -> Result<Vec<u8>, Broken> {
    let mut content = [0; CONTENT_BYTES];
    content[0] = u8::try_from(endpoint.len()).map_err(|_| Broken)?;
    content[1..].get_mut(..endpoint.len()).ok_or(Broken)?.copy_from_slice(endpoint.as_bytes());
    let mut bytes = SEALED_MAGIC.to_vec();
    bytes.resize(GREETING_BYTES, 0);
    state.write_message(&content, &mut bytes[SEALED_MAGIC.len()..])?;
    Ok(bytes)
}

/// Reads a greeting. Returns its endpoint.
fn read(state: &mut HandshakeState, greeted: &[u8]) -> Result<String, Broken> {
    let message = greeted.strip_prefix(&SEALED_MAGIC).ok_or(Broken)?;
    let mut content = [0; MESSAGE_BYTES];
    if state.read_message(message, &mut content)? != CONTENT_BYTES {
        return Err(Broken);
    }
    let endpoint = content[1..CONTENT_BYTES].get(..content[0].into()).ok_or(Broken)?;
    String::from_utf8(endpoint.to_vec()).map_err(|_| Broken)
}

/// The keys of one connection.
pub(crate) struct LinkKeys {
    keys: StatelessTransportState,
    /// The number of the next record to send (I1).
    next: AtomicU64,
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKeys(_)")
    }
}

impl LinkKeys {
    fn new(state: HandshakeState) -> Result<LinkKeys, Broken> {
        Ok(LinkKeys { keys: state.into_stateless_transport_mode()?, next: AtomicU64::new(0) })
    }

    /// Appends the records of these bytes to `records`: at least one.
    pub(crate) fn seal(&self, mut bytes: &[u8], records: &mut Vec<u8>) -> Result<(), Broken> {
        loop {
            let (content, rest) = bytes.split_at(bytes.len().min(RECORD_BYTES_MAX - TAG_BYTES));
            let sealed = content.len() + TAG_BYTES;
            let length = u32::try_from(sealed).map_err(|_| Broken)?;
            records.extend_from_slice(&length.to_le_bytes());
            let start = records.len();
            records.resize(start + sealed, 0);
            // Relaxed: each number is given out once, by atomicity alone. The lock of the peer orders
            // records.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.keys.write_message(number, content, &mut records[start..])?;
            bytes = rest;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Opens the record of this number. Its content replaces that of `content`.
    fn open(&self, number: u64, record: &[u8], content: &mut Vec<u8>) -> Result<(), Broken> {
        content.resize(record.len().checked_sub(TAG_BYTES).ok_or(Broken)?, 0);
        self.keys.read_message(number, record, content)?;
        Ok(())
    }
}

/// The records that a connection receives, in their order (I2).
#[derive(Debug, Default)]
pub(crate) struct Opener {
    next: u64,
    content: Vec<u8>,
}

impl Opener {
    /// Opens the next record. Returns its content.
    pub(crate) fn open(&mut self, keys: &LinkKeys, record: &[u8]) -> Result<&[u8], Broken> {
        keys.open(self.next, record, &mut self.content)?;
        self.next += 1;
        Ok(&self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "tcp/127.0.0.1:7447";

    fn secret(key: &str) -> Secret {
        Secret::new(key.repeat(32).parse().unwrap())
    }

    /// Makes the keys of both sides.
    fn key_pair() -> (LinkKeys, LinkKeys) {
        let (asked, asking) = secret("1").ask(ENDPOINT).unwrap();
        let (answered, theirs, _) = secret("1").answer("tcp/127.0.0.1:1", &asked).unwrap();
        (asking.finish(&answered).unwrap().0, theirs)
    }

    /// Cuts records, which have their lengths in front.
    fn cut(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
            let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            records.push(record);
            bytes = rest;
        }
        records
    }

    fn sealed(keys: &LinkKeys, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        keys.seal(bytes, &mut records).unwrap();
        records
    }

    #[test]
    fn both_sides_learn_the_endpoints_and_open_each_other_s_records() {
        let (asked, asking) = secret("1").ask(ENDPOINT).unwrap();
        let (answered, theirs, claimed) = secret("1").answer("tcp/[::1]:7447", &asked).unwrap();
        assert_eq!((asked.len(), answered.len()), (GREETING_BYTES, GREETING_BYTES));
        assert_eq!(claimed, ENDPOINT);
        let (ours, claimed) = asking.finish(&answered).unwrap();
        assert_eq!(claimed, "tcp/[::1]:7447");
        for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
            let mut opener = Opener::default();
            for size in [0, 1, 65_518, 65_519, 65_520, 200_000] {
                let bytes: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
                let records = sealed(from, &bytes);
                let opened: Vec<u8> = cut(&records)
                    .iter()
                    .flat_map(|record| opener.open(to, record).unwrap().to_vec())
                    .collect();
                assert_eq!(opened, bytes);
            }
        }
        assert_eq!(sealed(&ours, b"").len(), CONFIRM_BYTES);
    }

    #[test]
    fn another_key_makes_no_connection() {
        let (asked, asking) = secret("1").ask(ENDPOINT).unwrap();
        assert!(secret("2").answer("", &asked).is_err());
        // An impostor may repeat the greeting of the dialling side, or make one with its own key.
        assert!(asking.finish(&asked).is_err());
        let (asked, asking) = secret("1").ask(ENDPOINT).unwrap();
        let (by_other, _) = secret("2").ask(ENDPOINT).unwrap();
        assert!(asking.finish(&by_other).is_err());
        assert!(secret("1").answer("", &asked[1..]).is_err());
    }

    #[test]
    fn each_changed_bit_of_a_greeting_or_record_is_noticed() {
        let (asked, _) = secret("1").ask(ENDPOINT).unwrap();
        let (ours, theirs) = key_pair();
        let records = sealed(&ours, b"twelve bytes");
        let record = cut(&records)[0];
        for bit in 0..8 * GREETING_BYTES {
            let mut changed = asked.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(secret("1").answer("", &changed).is_err(), "bit {bit} of a greeting");
        }
        for bit in 0..8 * record.len() {
            let mut changed = record.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Opener::default().open(&theirs, &changed).is_err(), "bit {bit} of a record");
        }
        for end in 0..record.len() {
            assert!(Opener::default().open(&theirs, &record[..end]).is_err(), "{end} bytes of a record");
        }
        assert_eq!(Opener::default().open(&theirs, record).unwrap(), b"twelve bytes");
    }

    #[test]
    fn records_open_once_in_their_order_and_on_their_own_connection() {
        let (ours, theirs) = key_pair();
        let (first, second) = (sealed(&ours, b"one"), sealed(&ours, b"two"));
        let (first, second) = (cut(&first)[0], cut(&second)[0]);
        let mut opener = Opener::default();
        assert!(opener.open(&theirs, second).is_err());
        assert_eq!(opener.open(&theirs, first).unwrap(), b"one");
        assert!(opener.open(&theirs, first).is_err());
        assert_eq!(opener.open(&theirs, second).unwrap(), b"two");
        // Sent back to its sender, and on another connection with the same key.
        assert!(Opener::default().open(&ours, first).is_err());
        assert!(Opener::default().open(&key_pair().1, first).is_err());
        assert!(Opener::default().open(&key_pair().0, first).is_err());
    }

    #[test]
    fn equal_bytes_have_different_records() {
        let (ours, _) = key_pair();
        assert_ne!(sealed(&ours, b"bytes"), sealed(&ours, b"bytes"));
    }

    #[test]
    fn a_secret_that_a_program_derives_is_not_that_of_connections() {
        let key = GroupKey::random();
        assert_ne!(Secret::new(key).0, key.derive(PURPOSE));
    }

    #[test]
    fn secrets_are_not_printed() {
        let (ours, _) = key_pair();
        assert_eq!(format!("{:?} {ours:?}", secret("1")), "Secret(_) LinkKeys(_)");
    }
}
