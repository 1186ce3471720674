//! The codes of a reply.

use squall_core::{CallErrorKind, Id, MessageError, Transport};

use crate::remote::Unserved;

/// Why a call had no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Transport(Transport),
    /// The exported object refused the call.
    Refused,
}

/// The method ran; its result follows.
pub(crate) const DONE: u32 = 0;
pub(crate) const DESTROYED: u32 = 1;
pub(crate) const REFUSED: u32 = 2;
pub(crate) const PANICKED: u32 = 3;
pub(crate) const DENIED: u32 = 4;
pub(crate) const NO_SUCH_OBJECT: u32 = 5;
/// The result is too large for a message.
pub(crate) const TOO_LARGE: u32 = 6;
/// The arguments could not be decoded. The method did not run.
pub(crate) const MALFORMED: u32 = 7;
pub(crate) const UNSUPPORTED: u32 = 8;
/// The server has ended the connection. The method did not run.
pub(crate) const DISCONNECTED: u32 = 9;
/// The object's own call of another object failed.
pub(crate) const NESTED: u32 = 10;
/// The server has no worker for the call now. The method did not run.
pub(crate) const BUSY: u32 = 11;
/// The result could not be encoded.
pub(crate) const UNENCODABLE: u32 = 12;

/// The codes of failures between the processes.
const TRANSPORT: [(u32, Transport); 11] = [
    (DESTROYED, Transport::Destroyed),
    (PANICKED, Transport::Panicked),
    (DENIED, Transport::Denied),
    (NO_SUCH_OBJECT, Transport::NoSuchObject),
    (TOO_LARGE, Transport::BadResult(MessageError::TooLarge)),
    (MALFORMED, Transport::BadArguments(MessageError::Undecodable)),
    (UNSUPPORTED, Transport::Unsupported),
    (DISCONNECTED, Transport::Disconnected),
    (NESTED, Transport::Nested),
    (BUSY, Transport::Busy),
    (UNENCODABLE, Transport::BadResult(MessageError::Unencodable)),
];

/// The code for a call of the exported object `object` without a result.
pub(crate) fn code_of(unserved: &Unserved, object: Id) -> u32 {
    match unserved {
        // The method has run. The id of a received error may be that of this object by chance.
        Unserved::Returned(_) => NESTED,
        Unserved::Call(error) if error.id() != object => NESTED,
        Unserved::Call(error) => match error.reason() {
            CallErrorKind::Destroyed | CallErrorKind::NotThere => DESTROYED,
            // The exported object is an imported one.
            CallErrorKind::Transport(_) => NESTED,
            _ => REFUSED,
        },
        Unserved::Arguments(_) => MALFORMED,
        Unserved::Result(malformed) if malformed.written() == MessageError::TooLarge => TOO_LARGE,
        Unserved::Result(_) => UNENCODABLE,
        Unserved::NoSuchMethod => UNSUPPORTED,
    }
}

/// A reply that no honest server gives.
pub(crate) const BROKEN: Transport = Transport::BadResult(MessageError::Undecodable);

/// Decodes the code of a reply, for the caller.
pub(crate) fn outcome(code: u32) -> Result<(), Failed> {
    match code {
        DONE => Ok(()),
        REFUSED => Err(Failed::Refused),
        code => {
            let known = TRANSPORT.iter().find(|(known, _)| *known == code);
            Err(Failed::Transport(known.map_or(BROKEN, |(_, transport)| *transport)))
        }
    }
}
