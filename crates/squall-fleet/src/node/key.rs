//! The key of a group, and the secrets that are derived from it.
//!
//! Problem: a frame carries a number of its group, and a transport may send it without encryption. A
//! transport that encrypts needs a secret of the same group.
//! Idea: both are hashes of the key, each with a text of its own before it. So neither tells the other.
//!
//! - I1. No frame carries the key, or a hash from which another secret follows.
//! - I2. Secrets of the library and secrets of programs have different first bytes before the key. So no
//!   purpose of a program gives a secret of the library.
//!
//! Not promised: anything of a key that can be guessed. One with 128 random bits cannot.
//! Cost: one hash of a short text for each secret. A node makes one, and a transport that encrypts another.
//! Source: Aumasson and others, *BLAKE2: simpler, smaller, fast as MD5*, 2013.

use crate::capability::random;
use blake2::{Blake2s256, Digest};
use std::fmt;
use std::str::FromStr;

/// The text before each purpose of a program.
const CONTEXT: &[u8] = b"squall group key 1: ";
/// The text before each purpose of the library (I2).
const LIBRARY_CONTEXT: &[u8] = b"squall library key 1: ";
/// The purpose of the number in frames.
const FRAMES: &str = "frames";

/// The secret key of a group. Nodes drop the frames of other groups.
///
/// Frames carry a number that is derived from the key, and never the key. Without encryption, a program that
/// sees frames of a group can therefore send frames as its members do. It learns no
/// [derived](GroupKey::derive) secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GroupKey(u128);

impl GroupKey {
    /// Returns a random key, for a new group.
    ///
    /// # Panics
    /// If the system has no random bytes.
    pub fn random() -> GroupKey {
        GroupKey(random())
    }

    /// Derives a secret for a purpose: a transport that encrypts, for example.
    ///
    /// Equal keys and purposes give equal secrets. A secret tells neither the key nor the secret for
    /// another purpose, if the key is [random](GroupKey::random). Squall's own secrets have no purpose here:
    /// no text gives the number in frames, or the secret of `squall-net`.
    ///
    /// # Cost
    /// A hash of the purpose and 36 further bytes, without an allocation.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::GroupKey;
    ///
    /// let key = GroupKey::random();
    /// assert_eq!(key.derive("my transport"), key.derive("my transport"));
    /// assert_ne!(key.derive("my transport"), key.derive("my file"));
    /// ```
    pub fn derive(self, purpose: &str) -> [u8; 32] {
        self.hash(CONTEXT, purpose)
    }

    fn hash(self, context: &[u8], purpose: &str) -> [u8; 32] {
        // The key has a fixed length and stands last, so no two inputs are written alike.
        let hash = Blake2s256::new().chain_update(context).chain_update(purpose);
        hash.chain_update(self.0.to_be_bytes()).finalize().into()
    }

    /// Returns the number of the group in frames.
    pub(super) fn token(self) -> u128 {
        let half = &library_secret(self, FRAMES)[..16];
        half.iter().fold(0, |token, byte| token << 8 | u128::from(*byte))
    }
}

/// Derives a secret of a crate of Squall. No purpose of [`GroupKey::derive`] gives the same one (I2).
pub fn library_secret(key: GroupKey, purpose: &str) -> [u8; 32] {
    key.hash(LIBRARY_CONTEXT, purpose)
}

impl fmt::Display for GroupKey {
    /// Writes the secret, in a form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for GroupKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<GroupKey, &'static str> {
        let malformed = "the key of a group is 32 hexadecimal digits";
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed);
        }
        u128::from_str_radix(text, 16).map(GroupKey).map_err(|_| malformed)
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(_)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_purpose_of_a_program_gives_the_number_in_frames() {
        let key = GroupKey::random();
        let derived = key.derive(FRAMES);
        assert_ne!(key.token().to_be_bytes(), derived[..16]);
    }

    #[test]
    fn secrets_differ_by_key_and_purpose_and_are_stable() {
        let key: GroupKey = "1".repeat(32).parse().unwrap();
        let other: GroupKey = "2".repeat(32).parse().unwrap();
        let library = |key| library_secret(key, FRAMES);
        let of_key = [library(key), key.derive(FRAMES), key.derive(""), key.derive("frame")];
        let secrets = [&of_key[..], &[library(other), other.derive(FRAMES)]].concat();
        for (at, secret) in secrets.iter().enumerate() {
            assert!(secrets[at + 1..].iter().all(|other| other != secret), "{at}");
        }
        // Members of different builds form one group. The number is that of Python's `hashlib`.
        assert_eq!(key.token(), 0x8acb_e785_1adf_b9e2_b7f3_6f6a_c3b9_3cd8);
    }
}
