//! Errors of page servers and their clients.

use super::PageNumber;
use crate::PoolError;
use squall_fleet::{Fate, Name, RequestError};
use std::fmt;

/// The reason why a call of a page client, or a page server, has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageErrorKind {
    /// The client does not have the page: it was freed before, was never given to this client, or belongs to
    /// another one. The call had no effect.
    NotHeld(PageNumber),
    /// The memory has fewer pages. The call had no effect.
    OutOfRange(PageNumber),
    /// The time is over. The client settles before its next call, so that no page is lost. Then a page that
    /// was allocated is the result of the next allocation. A page that was not freed is still held.
    TimedOut,
    /// No server accepts calls. The call did not run.
    NoServer(Fate),
    /// The client was ended by a server, and its pages are free.
    Ended,
    /// The fleet has as many clients as fit into its ledger.
    Full,
    /// The server speaks another version, or is no page server.
    OtherService,
    /// Other servers of the name have another ledger, so the server would give out their pages again.
    OtherLedger,
    /// The server is no member of the pool of free pages.
    Pool(PoolError),
    /// The name cannot be served.
    NotServed(RequestError),
    /// The name has no room for that of the pool below it.
    LongName,
}

/// A call of a page client, or a page server, without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageError {
    /// The name of the fleet.
    pub fleet: Name,
    /// The reason.
    pub kind: PageErrorKind,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page fleet {}: ", self.fleet)?;
        match &self.kind {
            PageErrorKind::NotHeld(page) => {
                write!(f, "this client does not have {page}; free each page once, where it was allocated")
            }
            PageErrorKind::OutOfRange(page) => {
                write!(f, "{page} does not exist; free only pages that an allocation returned")
            }
            PageErrorKind::TimedOut => f.write_str(
                "the time is over, and the call may have run; no page is lost, so call again with more time",
            ),
            PageErrorKind::NoServer(fate) => fate.fmt(f),
            PageErrorKind::Ended => {
                f.write_str("this client was ended, and its pages are free; connect a new client")
            }
            PageErrorKind::Full => f.write_str("all places of clients are in use; close other clients first"),
            PageErrorKind::OtherService => f.write_str(
                "the service under this name is no page server of this version; look whether the name is right",
            ),
            PageErrorKind::OtherLedger => f.write_str(
                "its servers have another ledger; open the file of theirs, or serve another name",
            ),
            PageErrorKind::Pool(error) => error.fmt(f),
            PageErrorKind::NotServed(error) => error.fmt(f),
            PageErrorKind::LongName => {
                f.write_str("the name is too long for the pool `free` below it; choose a shorter one")
            }
        }
    }
}

impl std::error::Error for PageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            PageErrorKind::NoServer(error) => Some(error),
            PageErrorKind::Pool(error) => Some(error),
            PageErrorKind::NotServed(error) => Some(error),
            _ => None,
        }
    }
}
