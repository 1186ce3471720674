//! The error of creating an object.

use std::fmt;

use super::id::Id;

/// The reason why an object could not be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// There is no memory for the object, or no address space for the tables.
    OutOfMemory(std::io::Error),
    /// Every id is in use.
    OutOfIds {
        /// Number of ids in use, or kept by other processors for their next objects.
        used: u32,
        /// Bound of that number.
        bound: u32,
    },
    /// The well-known id has an object already, or a destroyed one that is still being reclaimed.
    Taken(Id),
    /// The process is a forked child, which may only exec.
    Forked,
    /// The caller is a signal handler that interrupted a slow path of Squall on this thread.
    Reentrant,
}

impl CreateError {
    /// The error for a failed allocation. Does not allocate.
    pub(crate) fn no_memory() -> CreateError {
        CreateError::OutOfMemory(std::io::ErrorKind::OutOfMemory.into())
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::OutOfMemory(cause) => {
                write!(
                    f,
                    "squall cannot create an object: no memory for it or the tables; free memory or raise the limits: {cause}"
                )
            }
            CreateError::OutOfIds { used, bound } => {
                write!(
                    f,
                    "squall cannot create an object: {used} ids are in use, and the bound is {bound}; destroy objects first, or set SQUALL_OBJECTS_MAX higher"
                )
            }
            CreateError::Taken(id) => {
                write!(
                    f,
                    "the well-known object {id} exists, or is still being reclaimed; use another number, or wait"
                )
            }
            CreateError::Forked => {
                f.write_str("squall cannot create an object in the child of a fork, which may only exec")
            }
            CreateError::Reentrant => f.write_str(
                "squall cannot create an object: this signal handler interrupted a slow path of the thread; create it outside handlers",
            ),
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
