//! The encoding of requests and replies of the services.
//!
//! Decoding never panics, and reserves no more room than there are bytes.

use serde::{Serialize, de::DeserializeOwned};

/// Encodes a request or a reply. They always fit.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap_or_default()
}

/// Decodes all of the bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
