//! `ResizeError`: the error of a change of cluster size.

use squall_core::Id;
use squall_core::swap::SwapError;
use std::fmt;

/// The reason why a cluster size is unchanged.
///
/// Returned by [`MapExt::set_cluster_size`](super::MapExt::set_cluster_size).
#[derive(Debug)]
#[non_exhaustive]
pub enum ResizeError {
    /// The map has one representative for all clusters, or its policy chooses the number.
    OneForAll(Id),
    /// The swap failed.
    Swap(SwapError),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResizeError::OneForAll(id) => {
                write!(
                    f,
                    "the cluster size of map {id} is fixed: only a replicated or partitioned map has a choice"
                )
            }
            ResizeError::Swap(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResizeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ResizeError::OneForAll(_) => None,
            ResizeError::Swap(error) => Some(error),
        }
    }
}
