//! The configuration, which can change while the server runs.

/// Limits and defaults. The cache has them in a read-mostly value: each request reads it, and a change
/// takes effect with the next request of each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum size of all entries, in bytes, with keys and an allowance for the table: see
    /// [`Item::bytes`](crate::Item::bytes).
    pub memory_bytes_max: u64,
    /// Maximum size of one item as memcached counts it, in bytes: its value, its key and 59 bytes, and 4 more
    /// for client flags other than 0.
    pub item_bytes_max: usize,
    /// Maximum number of connections. Further ones get an error and are closed.
    pub connections_max: usize,
    /// Seconds until an entry expires if its client says 0, which means "never" to memcached. 0: never.
    pub default_ttl_s: u64,
    /// Seconds a client may neither send nor read before it is disconnected. 0: forever.
    pub idle_s_max: u64,
    /// From 1 on, the server prints connections that end in an error to stderr.
    pub verbosity: u32,
}

impl Default for Config {
    /// Returns the defaults of memcached.
    fn default() -> Config {
        Config {
            memory_bytes_max: 64 << 20,
            item_bytes_max: 1 << 20,
            connections_max: 1024,
            default_ttl_s: 0,
            idle_s_max: 0,
            verbosity: 0,
        }
    }
}
