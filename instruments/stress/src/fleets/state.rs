//! The state of a shard, as it moves and as it is read.

use std::collections::BTreeMap;

use super::spans::Spans;

/// The calls that a shard has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardState {
    /// The life of the shard: the time of the machine's clock at which it began, in nanoseconds.
    pub(super) life: u64,
    /// Calls counted.
    pub(super) count: u64,
    /// The numbers of the counted calls, by client.
    pub(super) calls: BTreeMap<u64, Spans>,
}

impl ShardState {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |word: u64| bytes.extend(word.to_le_bytes());
        put(self.life);
        put(self.count);
        for (client, spans) in &self.calls {
            let parts = spans.parts();
            put(*client);
            put(parts.len() as u64);
            for (first, last) in parts {
                put(first);
                put(last);
            }
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<ShardState> {
        let mut words = words(bytes)?.into_iter();
        let (life, count) = (words.next()?, words.next()?);
        let mut calls = BTreeMap::new();
        while let Some(client) = words.next() {
            let length = words.next()?;
            let parts: Option<Vec<(u64, u64)>> =
                (0..length).map(|_| Some((words.next()?, words.next()?))).collect();
            calls.insert(client, Spans::from_parts(parts?.into_iter()));
        }
        Some(ShardState { life, count, calls })
    }
}

/// Returns the words of a message, or `None` if its length is wrong.
pub(super) fn words(bytes: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_whole() {
        let spans = |numbers: &[u64]| {
            let mut spans = Spans::default();
            numbers.iter().for_each(|number| assert!(spans.add(*number)));
            spans
        };
        let calls = [(3, spans(&[1, 2, 7])), (9, spans(&[4]))].into();
        let state = ShardState { life: 77, count: 4, calls };
        let bytes = state.to_bytes();
        assert_eq!(ShardState::from_bytes(&bytes), Some(state));
        assert_eq!(ShardState::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(ShardState::from_bytes(&bytes[..bytes.len() - 8]), None);
    }
}
