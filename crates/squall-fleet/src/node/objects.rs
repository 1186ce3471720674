//! Objects of remote interfaces under the names of a group.

use super::{NameOptions, Node, RequestError, block, route};
use crate::node::driver::Driver;
use crate::{CallLost, Fate, Name, NameCapability};
use squall_call::carrier::{self, Carried, Carrier};
use squall_call::{__macro::Port, Remote};
use squall_core::{Handle, InterfaceOf, MessageError, Owned, Transport};
use squall_sys::sync::StdArc as Arc;
use std::fmt;
use std::time::{Duration, Instant};

/// A call of an imported object has this limit, unless its code has a deadline.
const LIMIT: Duration = Duration::from_secs(30);
/// The method that returns the signature of the interface.
const SIGNATURE: u64 = u64::MAX;

/// The reason why an object was not registered.
pub type ExportError = RequestError;

/// The reason why an object was not imported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeImportError {
    /// No service with the name answered.
    Lost(CallLost),
    /// The service has another interface, or another version of it.
    OtherInterface {
        /// The name.
        name: Name,
        /// The first difference of the two.
        difference: String,
    },
    /// There is no memory for a further object.
    NoMemory,
}

impl fmt::Display for NodeImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeImportError::Lost(lost) => lost.fmt(f),
            NodeImportError::OtherInterface { name, difference } => {
                write!(f, "{name} serves another interface: {difference}")
            }
            NodeImportError::NoMemory => f.write_str("there is no memory for a further object"),
        }
    }
}

impl std::error::Error for NodeImportError {}

impl Node {
    /// Serves an object of a remote interface under a name. Any node of the group can import it, and calls it
    /// like one of its own.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn serve_object<I: ?Sized + Remote>(
        &self,
        name: &Name,
        parent: &NameCapability,
        options: NameOptions,
        object: Handle<I>,
    ) -> Result<NameCapability, ExportError> {
        let service = move |call: super::ServiceCall<'_>| {
            if call.method == SIGNATURE {
                return Some(I::SIGNATURE.as_bytes().to_vec());
            }
            // The high half is that of the schema: a method of another version does not run.
            let (schema, method) = ((call.method >> 32) as u32, call.method as u32);
            let mut output = vec![0; 4];
            let status = if schema == half::<I>() {
                carrier::serve_bytes(object, method, call.body, &mut output)
            } else {
                carrier::unsupported()
            };
            output[..4].copy_from_slice(&status.to_le_bytes());
            Some(output)
        };
        self.register(name, parent, options, 0, options.kind(Arc::new(service)))
    }

    /// Makes an object that calls the service of a name. It is nearest-first, and finds the service again if
    /// it moves or dies.
    ///
    /// # Errors
    /// [`NodeImportError`].
    pub fn import<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Owned<I>, NodeImportError> {
        let theirs = self.call_repeatable(name, SIGNATURE, b"", limit).map_err(NodeImportError::Lost)?;
        let theirs = String::from_utf8_lossy(&theirs);
        if theirs != I::SIGNATURE {
            let (there, here) = carrier::first_difference(&theirs, I::SIGNATURE);
            let difference = format!("{there} there, {here} here");
            return Err(NodeImportError::OtherInterface { name: name.clone(), difference });
        }
        let way = Way { driver: self.0.clone(), name: name.clone(), schema: half::<I>() };
        carrier::import_over::<I>(Arc::new(way)).map_err(|_| NodeImportError::NoMemory)
    }
}

fn half<I: ?Sized + Remote>() -> u32 {
    I::SCHEMA as u32
}

/// Carries the calls of an imported object.
struct Way {
    driver: Arc<Driver>,
    name: Name,
    schema: u32,
}

impl Carrier for Way {
    fn carry(&self, call: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport> {
        if crate::blocking::runs_tasks() {
            return Err(Transport::WouldBlock);
        }
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let limit = call.deadline.map_or(LIMIT, left);
        let method = u64::from(self.schema) << 32 | u64::from(call.method);
        let taker = self.driver.call(route(&self.name, None, false), method, call.input.to_vec(), limit);
        match block(taker).unwrap_or(Err(Fate::TimedOut)) {
            Ok(bytes) => match bytes.split_first_chunk() {
                Some((status, result)) => {
                    output.extend_from_slice(result);
                    Ok(u32::from_le_bytes(*status))
                }
                // A plain service has the name.
                None => Err(Transport::Unsupported),
            },
            Err(fate) => Err(transport(fate)),
        }
    }
}

fn transport(fate: Fate) -> Transport {
    match fate {
        Fate::NoService => Transport::NoSuchObject,
        Fate::NotAccepted => Transport::Busy,
        Fate::Closed => Transport::Disconnected,
        Fate::TooLarge => Transport::BadArguments(MessageError::TooLarge),
        Fate::TimedOut => Transport::Deadline,
        Fate::ServerLost => Transport::PeerGone,
        Fate::Dropped => Transport::Panicked,
        Fate::OwnShard => Transport::WouldBlock,
        Fate::NoResult => Transport::BadResult(MessageError::TooLarge),
    }
}
