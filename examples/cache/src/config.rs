//! What can be set, and changed while the server serves.

/// The limits, and what is presumed. The cache has it in a read-mostly value: each request reads it, and a change takes effect with
/// the next request of every connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes that all entries together may take, keys and an allowance for the table included: see [`Item::bytes`](crate::Item::bytes).
    pub memory_bytes_max: u64,
    /// Bytes of one value.
    pub value_bytes_max: usize,
    /// Connections at once. Those beyond are told so, and closed.
    pub connections_max: usize,
    /// Seconds until an entry expires whose client says 0, which is "never" to memcached; 0: never.
    pub default_ttl_s: u64,
    /// Seconds for which a client may send nothing, or read nothing of its answers, before it loses its seat; 0: for ever.
    pub idle_s_max: u64,
    /// From 1 on, connections that end in an error are told on stderr.
    pub verbosity: u32,
}

impl Default for Config {
    /// memcached's.
    fn default() -> Config {
        Config {
            memory_bytes_max: 64 << 20,
            value_bytes_max: 1 << 20,
            connections_max: 1024,
            default_ttl_s: 0,
            idle_s_max: 0,
            verbosity: 0,
        }
    }
}
