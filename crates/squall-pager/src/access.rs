//! The kinds of access to a page.

/// The use for which a page is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The page is read.
    Read,
    /// The page is written.
    Write,
}
