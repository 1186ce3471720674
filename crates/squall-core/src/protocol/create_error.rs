//! The error of an object that could not be made.

use std::fmt;

use super::id::Id;

/// Why an object could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// There is no address space for the tables, or none left for ids.
    OutOfMemory(std::io::Error),
    /// Every id is in use.
    OutOfIds,
    /// The well-known id has an object already, or one that was destroyed and is not quiet yet.
    Taken(Id),
    /// This process is the child of a fork, which may only exec.
    Forked,
    /// From a signal handler that interrupted a cold path of Squall on this thread.
    Reentrant,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::OutOfMemory(cause) => {
                write!(f, "no address space for the tables of objects: {cause}")
            }
            CreateError::OutOfIds => f.write_str("every id is in use"),
            CreateError::Taken(id) => {
                write!(f, "the well-known object {id} exists, or is still being reclaimed")
            }
            CreateError::Forked => {
                f.write_str("no object can be made in the child of a fork, which may only exec")
            }
            CreateError::Reentrant => f.write_str("a signal handler interrupted a cold path on this thread"),
        }
    }
}

impl From<squall_rcu::PinError> for CreateError {
    fn from(error: squall_rcu::PinError) -> CreateError {
        match error {
            squall_rcu::PinError::Forked => CreateError::Forked,
            squall_rcu::PinError::Reentrant => CreateError::Reentrant,
        }
    }
}

impl std::error::Error for CreateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CreateError::OutOfMemory(cause) => Some(cause),
            _ => None,
        }
    }
}
