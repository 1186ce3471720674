//! The views of objects that are called between processes.

use serde::{Deserialize, Serialize};

/// An export of an object to other processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExportView {
    /// Name by which other processes import it. May contain control characters.
    pub name: String,
    /// Methods that no other process may call.
    pub denied: Vec<String>,
    /// The first open connections.
    pub callers: Vec<CallerView>,
    /// Number of all open connections.
    pub callers_count: usize,
}

/// A connection of another process that calls an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CallerView {
    /// Number of the connection. The program uses each number once.
    pub number: u64,
    /// Number of the calling process, as the kernel reports it. Absent if its pid namespace is not visible,
    /// or if it came over a pair of sockets.
    pub pid: Option<u32>,
    /// User of the calling process, as the kernel reports it. Absent if it came over a pair of sockets.
    pub uid: Option<u32>,
    /// Number of calls served.
    pub calls: u64,
    /// Methods that this process may not call: those of [`ExportView::denied`], and its own.
    pub denied: Vec<String>,
}

/// The other end of an imported object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ImportView {
    /// Name by which it was imported. May contain control characters.
    pub name: String,
    /// Number of the process that exports it, as the kernel reports it. Absent if its pid namespace is not
    /// visible, or if it was imported over a pair of sockets.
    pub pid: Option<u32>,
    /// User of that process, as the kernel reports it. Absent if it was imported over a pair of sockets.
    pub uid: Option<u32>,
    /// `true` while that process serves the object. Otherwise all calls return an error.
    pub is_connected: bool,
    /// Number of calls made.
    pub calls: u64,
}
