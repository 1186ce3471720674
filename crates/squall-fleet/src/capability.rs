//! Random names: aliases of mailboxes, and capabilities.

use std::fmt;

/// 16 random bytes of the kernel.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has no random bytes");
    u128::from_le_bytes(bytes)
}

/// The name of a mailbox, as it travels in messages: 16 bytes.
///
/// A mailbox has a *canonical* alias, which is random. Source: Wentzlaff 2012, §3.2.3 (FO-04, FO-08).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alias(u128);

impl Alias {
    pub(crate) fn random() -> Alias {
        Alias(random())
    }

    /// Returns the alias as bytes, for a message.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Makes an alias of the bytes of [`to_bytes`](Alias::to_bytes).
    pub fn from_bytes(bytes: [u8; 16]) -> Alias {
        Alias(u128::from_le_bytes(bytes))
    }
}

impl fmt::Display for Alias {
    /// Writes the first 8 digits, which suffice to tell the mailboxes of a program apart. With `{:#}`, writes
    /// all 32.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { write!(f, "{:032x}", self.0) } else { write!(f, "{:08x}", (self.0 >> 96) as u32) }
    }
}

impl fmt::Debug for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alias({self:#})")
    }
}

/// The right to send to a mailbox: a key of 128 random bits.
///
/// The key is all that a sender needs, so it travels in messages to the future senders. The owner of the
/// mailbox makes and ends capabilities, each alone. Source: Wentzlaff 2012, §3.2.2 (FO-07).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capability(u128);

impl Capability {
    pub(crate) fn random() -> Capability {
        Capability(random())
    }

    /// Returns the key, for a message to a future sender.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Makes a capability of the bytes of [`to_bytes`](Capability::to_bytes).
    pub fn from_bytes(bytes: [u8; 16]) -> Capability {
        Capability(u128::from_le_bytes(bytes))
    }
}

impl fmt::Debug for Capability {
    /// Does not write the key: logs are read by others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(..)")
    }
}
