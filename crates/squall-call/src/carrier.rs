//! Calls over other ways than shared memory: a carrier brings the bytes of a call to the server, and its
//! result back.
//!
//! Problem: an object may be served by another thread's mailbox or by another machine. The stub of
//! `#[squall::interface(remote)]` knows how to encode a call, and nothing of the way.
//! Idea: a port sends through a [`Carrier`], and the server's end gives the bytes to [`serve_bytes`]. The
//! status that it returns travels with the result, as a number.
//!
//! - I1. Arguments and results have the limits of a call between processes ([`BYTES_MAX`]).
//! - I2. A panic of the method ends its call alone.
//! - I3. The method sees no attributes, deadline or caller of the code around [`serve_bytes`].
//!
//! Not promised: a call that failed may have run, as the carrier's error says.
//! Cost: a copy of the arguments and one of the result on each side, and an indirect call of the carrier.

use squall_core::{CreateError, Handle, InterfaceOf, Owned, Root, Transport};
use squall_machine::ClusterSize;
use squall_sys::panics::drop_payload;
use squall_sys::sync::StdArc as Arc;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::codec::{Full, Malformed, Reader, Sink, Writer};
use crate::layout::BULK_BYTES;
use crate::port::{Imported, Port, Way};
use crate::remote::Remote;
use crate::serving::Serving;
use crate::status::{self, Failed};

pub use crate::differs::first_difference;
pub use crate::port::deadline_in;

/// Most bytes of the arguments, and of the result (I1).
pub const BYTES_MAX: usize = BULK_BYTES;

/// A call as it travels.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// The number of the method.
    pub method: u32,
    /// The end of [`with_deadline`](crate::with_deadline), if the calling code has one.
    pub deadline: Option<Instant>,
    /// The index of the representative, below the number of processors. Calls with different ones run on
    /// different processors, so a carrier may keep state for each.
    pub region: usize,
    /// The arguments: at most [`BYTES_MAX`].
    pub input: &'a [u8],
}

/// The way of calls to an object elsewhere.
pub trait Carrier: Send + Sync + 'static {
    /// Carries a call: waits until the other end's [`serve_bytes`] has returned, appends its result to
    /// `output`, which is empty, and returns its status. Threads call it at the same time.
    ///
    /// # Errors
    /// The reason why there is no status. If it says that the method did not run, the method never runs.
    fn carry(&self, call: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport>;
}

/// Makes an object that calls another one through `carrier`. Dropping it drops the carrier, after its calls.
///
/// The carrier has checked that the other end serves this interface, with this
/// [`SCHEMA`](Remote::SCHEMA).
///
/// # Errors
/// There is no memory for a further object.
pub fn import_over<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
    carrier: Arc<dyn Carrier>,
) -> Result<Owned<I>, CreateError> {
    Imported::<I>::new(Way::Carrier(carrier)).try_create(ClusterSize::Cpu)
}

/// Serves a call that came as bytes: decodes the arguments, calls the method, and appends the result to
/// `output`. Returns the status for [`Carrier::carry`]. Without success, `output` is as before.
///
/// The bytes may be any. A panic of the method is a status.
pub fn serve_bytes<I: ?Sized + Remote>(
    object: Handle<I>,
    method: u32,
    input: &[u8],
    output: &mut Vec<u8>,
) -> u32 {
    if input.len() > BYTES_MAX {
        return status::MALFORMED;
    }
    let begin = output.len();
    let serve = || {
        let _serving = Serving::begin();
        let mut sink = Bounded { bytes: output, begin };
        I::__serve(object, method, &mut Reader::new(input), &mut Writer::new(&mut sink))
            .map_err(|unserved| status::code_of(&unserved, Handle::id(object)))
    };
    // Unwind safety of its own state is up to the object (I2).
    let served = catch_unwind(AssertUnwindSafe(|| squall_rcu::__run_served(serve)));
    let code = match served {
        Ok(Ok(())) => return status::DONE,
        Ok(Err(code)) => code,
        Err(payload) => {
            drop_payload(payload);
            status::PANICKED
        }
    };
    output.truncate(begin);
    code
}

/// Returns the status for a call of a method that the server's version of the interface does not have. The
/// method did not run.
pub fn unsupported() -> u32 {
    status::UNSUPPORTED
}

/// A vector as a sink, with the limit of a message.
struct Bounded<'a> {
    bytes: &'a mut Vec<u8>,
    /// The length before the message.
    begin: usize,
}

impl Sink for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if BYTES_MAX - (self.bytes.len() - self.begin) < bytes.len() {
            return Err(Full);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

std::thread_local! {
    /// Buffers for the arguments and the result of a call.
    static BUFFERS: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Calls a method through a carrier.
pub(crate) fn call<R>(
    carrier: &dyn Carrier,
    region: usize,
    method: u32,
    deadline: Option<Instant>,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), Malformed>,
    read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
) -> Result<R, Failed> {
    // Taken out while they are used: a user's type may make a call while it is encoded.
    let (mut input, mut output) = BUFFERS.take();
    input.clear();
    output.clear();
    let written = write(&mut Writer::new(&mut Bounded { bytes: &mut input, begin: 0 }));
    let result = written
        .map_err(|malformed| Failed::Transport(Transport::BadArguments(malformed.written())))
        .and_then(|()| {
            let call = Carried { method, deadline, region, input: &input };
            carrier.carry(call, &mut output).map_err(Failed::Transport)
        })
        .and_then(status::outcome)
        .and_then(|()| result_of(&output, read));
    // The other end may have sent more than it should have.
    if output.capacity() <= 2 * BYTES_MAX {
        BUFFERS.set((input, output));
    }
    result
}

/// Reads the result of a call.
fn result_of<R>(
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
) -> Result<R, Failed> {
    if bytes.len() > BYTES_MAX {
        return Err(Failed::Transport(status::BROKEN));
    }
    let bad = |malformed: Malformed| Failed::Transport(Transport::BadResult(malformed.read()));
    let mut reader = Reader::new(bytes);
    let result = read(&mut reader).map_err(bad)?;
    reader.end().map_err(bad)?;
    Ok(result)
}
