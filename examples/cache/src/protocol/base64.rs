//! Keys in base64, as the meta commands send them.
//!
//! Accepts the standard alphabet with padding, and no other byte. memcached skips other bytes, so that
//! several texts name one key.

use super::KEY_BYTES_MAX;

/// Maximum size of a decoded key, in bytes.
pub const DECODED_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value of each byte; 64 and more: the byte is not of the alphabet.
const VALUES: [u8; 256] = {
    let mut values = [64; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Decodes a text of at most [`KEY_BYTES_MAX`] bytes. Fails if the text is empty, too long
/// or not base64. Otherwise returns the bytes in `into`.
pub fn decode<'a>(text: &[u8], into: &'a mut [u8; DECODED_BYTES_MAX]) -> Option<&'a [u8]> {
    if text.is_empty() || !text.len().is_multiple_of(4) || text.len() > KEY_BYTES_MAX {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    if padding > 2 || digits.iter().any(|byte| VALUES[usize::from(*byte)] >= 64) {
        return None;
    }
    let mut used = 0;
    for group in digits.chunks(4) {
        let value = |at| group.get(at).map_or(0, |byte| u32::from(VALUES[usize::from(*byte)]));
        let bits = value(0) << 18 | value(1) << 12 | value(2) << 6 | value(3);
        // A digit has six bits, and a group of n digits has n - 1 bytes.
        let bytes = group.len() - 1;
        into[used..used + bytes].copy_from_slice(&bits.to_be_bytes()[1..=bytes]);
        used += bytes;
    }
    Some(&into[..used])
}

/// Appends the text of these bytes.
pub fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let byte = |at| group.get(at).map_or(0, |byte| u32::from(*byte));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            into.push(if digit <= group.len() { ALPHABET[value as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_as_it_was() {
        for length in 1..=DECODED_BYTES_MAX {
            let key: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            let mut text = Vec::new();
            encode(&key, &mut text);
            assert_eq!(decode(&text, &mut [0; DECODED_BYTES_MAX]), Some(&key[..]));
        }
        assert_eq!(decode(b"Zm9vYg==", &mut [0; DECODED_BYTES_MAX]), Some(&b"foob"[..]));
    }

    #[test]
    fn other_texts_are_refused() {
        let long = "Zm9v".repeat(63);
        for text in ["", "Z", "Zm9", "Z===", "====", "Zm9v====", "Zm=v", "Zm 9", "Zm-_", "Zm9\u{ff}", &long] {
            assert_eq!(decode(text.as_bytes(), &mut [0; DECODED_BYTES_MAX]), None, "{text:?}");
        }
    }
}
