//! Programs to connect to, and the reasons why that fails.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::protocol::{Refusal, RefusalKind};

/// Program to connect to.
///
/// ```
/// use squall::browse::Target;
///
/// assert_eq!("4711".parse(), Ok(Target::Process(4711)));
/// assert_eq!("./my.sock".parse(), Ok(Target::Path("./my.sock".into())));
/// assert!("my-server".parse::<Target>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, by its number. Its socket is expected where [`serve`](crate::serve) creates it.
    Process(u32),
    /// The program that serves at this path.
    Path(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    /// Parses the number of a process, or a path that contains a slash.
    fn from_str(text: &str) -> Result<Target, String> {
        match text.parse::<u32>() {
            Ok(pid) if pid > 0 => Ok(Target::Process(pid)),
            _ if text.contains('/') => Ok(Target::Path(text.into())),
            _ => {
                Err("expected the number of a process, or the path of a socket with a slash in it".to_owned())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Process(pid) => write!(f, "process {pid}"),
            Target::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Reason why a program could not be reached, or rejected a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// No process has this number, or this user cannot see the process.
    NoProcess(u32),
    /// The program does not serve inspection.
    NotServing {
        /// The program.
        target: Target,
        /// Paths that were tried for its socket.
        tried: Vec<PathBuf>,
    },
    /// The process or the socket belongs to another user.
    NotAllowed(String),
    /// The connection has ended: the program ended or stopped serving.
    Gone,
    /// No answer came within this time. The connection is unusable from now on.
    NoAnswer(Duration),
    /// The program rejected the request.
    Refused(Refusal),
    /// The answer does not follow this protocol, or follows a newer version.
    Misunderstood(String),
    /// An error of the operating system.
    System(io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoProcess(pid) => write!(f, "there is no process {pid} that this user can see"),
            ClientError::NotServing { target, tried } => {
                write!(f, "{target} does not serve inspection: there is no socket")?;
                let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
                if *target != Target::Path(tried.first().map(PathBuf::from).unwrap_or_default()) {
                    write!(f, " at {}", tried.join(" or "))?;
                }
                f.write_str(" (a program enables it with squall::browse::serve())")
            }
            ClientError::NotAllowed(why) => f.write_str(why),
            ClientError::Gone => f.write_str("the program has ended, or no longer serves inspection"),
            ClientError::NoAnswer(waited) => write!(f, "the program did not answer within {waited:?}"),
            ClientError::Refused(refusal) => refusal.fmt(f),
            ClientError::Misunderstood(what) => write!(f, "the answer is not understood: {what}"),
            ClientError::System(error) => write!(f, "cannot talk to the program: {error}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Refused(refusal) => Some(refusal),
            ClientError::System(error) => Some(error),
            _ => None,
        }
    }
}

impl ClientError {
    /// Returns `true` if the connection can be used for another request: the program answered with a refusal.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ClientError::Refused(_))
    }

    /// Returns `true` if the program does not know the request or one of its fields.
    pub(crate) fn is_bad_request(&self) -> bool {
        matches!(self, ClientError::Refused(refusal) if refusal.kind == RefusalKind::BadRequest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_numbers_or_paths() {
        assert_eq!("17".parse(), Ok(Target::Process(17)));
        assert_eq!("./17".parse(), Ok(Target::Path("./17".into())));
        for bad in ["", "0", "-1", "4294967296", "name"] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
    }
}
