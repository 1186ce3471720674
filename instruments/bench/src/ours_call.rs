//! Subject `squall` of `call-process`, and the subjects of `call-counter`. All clients share one import.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use squall::call::{ExportOptions, ImportError, Remote, import_from, socket_pair};
use squall::{ClusterSize, Handle, Owned, RepContext, Root};
use squall_machine::{Vp, machine};

use crate::ours_machine::processors_count;
use crate::rivals::calls::streams::wrong_count;
use crate::rivals::calls::{
    Client, Connect, Form, LINE_BYTES, ServerEnd, Shared, Start, Transport, bulk_result,
};
use crate::rivals::counters::{Atomic, Count, Locked, Padded, Unpadded};

pub(crate) static SQUALL: Transport =
    Transport { name: "squall", connect: Connect::Shared(connect), serve, polls: false, leaves_files: false };

const fn counting(name: &'static str, serve: fn(Form, ServerEnd) -> io::Result<()>) -> Transport {
    Transport { name, connect: Connect::Shared(connect_counter), serve, polls: false, leaves_files: false }
}

/// A counter in another process: under a lock, or as an atomic word.
pub(crate) static LOCKED: Transport = counting("squall-locked", serve_counter::<Locked>);
pub(crate) static ATOMIC: Transport = counting("squall-atomic", serve_counter::<Atomic>);
/// A counter with a word for each processor, without and with padding.
pub(crate) static ARRAY: Transport = counting("squall-array", serve_counter::<Unpadded>);
pub(crate) static PADDED: Transport = counting("squall-padded", serve_counter::<Padded>);

/// Slots of a connection for each virtual processor.
const SLOTS: usize = 16;

/// The bytes of a null call, which are encoded as they are.
pub(crate) struct Line([u8; LINE_BYTES]);

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Line, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{LINE_BYTES} bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Line, E> {
                bytes.try_into().map(Line).map_err(|_| E::invalid_length(bytes.len(), &self))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// The methods of the case.
#[squall::interface(remote)]
pub(crate) trait Methods: Send + Sync {
    /// 64 bytes in each direction.
    fn null(&self, line: &Line) -> Line;
    /// An argument of 8 KiB.
    fn bulk(&self, bytes: &[u8]) -> u64;
}

struct Answers;

impl Methods for Answers {
    fn null(&self, line: &Line) -> Line {
        let mut reply = [0; LINE_BYTES];
        Form::Null.answer(&line.0, &mut reply);
        Line(reply)
    }

    fn bulk(&self, bytes: &[u8]) -> u64 {
        bulk_result(bytes)
    }
}

struct Import {
    object: Owned<dyn Methods>,
    /// The server ends when this is closed.
    _open: PipeWriter,
}

impl Shared for Import {
    fn client(&self, form: Form) -> Box<dyn Client> {
        Box::new(Caller { object: self.object.handle(), form })
    }
}

struct Caller {
    object: Handle<dyn Methods>,
    form: Form,
}

impl Client for Caller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        match self.form {
            Form::Null => {
                let line = Line(request.try_into().expect("a null call has a line"));
                reply.copy_from_slice(&self.object.null(&line).0);
            }
            Form::Bulk => reply.copy_from_slice(&self.object.bulk(request).to_ne_bytes()),
        }
    }
}

/// Makes an import, and sends the serving end to the server with this name.
fn open<T: Shared + 'static>(
    name: String,
    start: Start<'_>,
    import: impl FnOnce(OwnedFd, PipeWriter) -> Result<T, ImportError>,
) -> io::Result<Box<dyn Shared>> {
    let (ours, theirs) = socket_pair()?;
    let (closed, open) = pipe()?;
    start(ServerEnd { fds: vec![theirs, closed.into()], name })?;
    Ok(Box::new(import(ours, open).map_err(io::Error::other)?))
}

/// Workers stay in their slots. Under emulation a thread may pause for longer than the default, and each new
/// worker of a slot counts as a further thread that writes its lines.
fn options() -> ExportOptions {
    ExportOptions::new().idle(Duration::from_secs(60))
}

/// Serves an object until its import is dropped.
fn serve_object<I: ?Sized + Remote>(
    object: Handle<I>,
    options: &ExportOptions,
    fds: Vec<OwnedFd>,
) -> io::Result<()> {
    let Ok([socket, closed]) = <[_; 2]>::try_from(fds) else { return Err(wrong_count()) };
    let _export = options.export_on(object, socket).map_err(io::Error::other)?;
    PipeReader::from(closed).read_to_end(&mut Vec::new())?;
    Ok(())
}

fn connect(crosses: bool, start: Start<'_>) -> io::Result<Box<dyn Shared>> {
    // The number of processors, for a server on the next one.
    let name = if crosses { processors_count().to_string() } else { String::new() };
    open(name, start, |socket, open| Ok(Import { object: import_from::<dyn Methods>(socket)?, _open: open }))
}

/// The server's object has a representative for each processor.
struct AnswersEverywhere;

impl Root for AnswersEverywhere {
    type Interface = dyn Methods;
    type Rep = Answers;

    fn make_rep(&self, _: RepContext<Self>) -> Answers {
        Answers
    }
}

fn serve(_: Form, end: ServerEnd) -> io::Result<()> {
    let object = AnswersEverywhere.create(ClusterSize::Cpu);
    let mut options = options();
    if let Ok(count) = end.name.parse::<usize>() {
        // The slots of a processor follow each other.
        let next: Vec<usize> = (0..count * SLOTS).map(|slot| (slot / SLOTS + 1) % count).collect();
        options = options.processors(&next);
    }
    serve_object(object.handle(), &options, end.fds)
}

/// The counter of `call-counter`.
#[squall::interface(remote)]
pub(crate) trait Adds: Send + Sync {
    /// Adds one.
    fn add(&self);
}

/// The representative of a processor: all have one counter. A call counts itself in its representative, so
/// one for all processors would add an access of its own.
struct Counter<C>(Arc<C>);

struct CounterEverywhere<C>(Arc<C>);

impl<C: Count + 'static> Root for CounterEverywhere<C> {
    type Interface = dyn Adds;
    type Rep = Counter<C>;

    fn make_rep(&self, _: RepContext<Self>) -> Counter<C> {
        Counter(self.0.clone())
    }
}

impl<C: Count> Adds for Counter<C> {
    fn add(&self) {
        self.0.add(Vp::current().index(), 1, || ());
    }
}

struct CounterImport {
    object: Owned<dyn Adds>,
    /// The server ends when this is closed.
    _open: PipeWriter,
}

impl Shared for CounterImport {
    fn client(&self, _: Form) -> Box<dyn Client> {
        Box::new(Adder(self.object.handle()))
    }
}

struct Adder(Handle<dyn Adds>);

impl Client for Adder {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        self.0.add();
        Form::Null.answer(request, reply);
    }
}

fn connect_counter(_: bool, start: Start<'_>) -> io::Result<Box<dyn Shared>> {
    open(String::new(), start, |socket, open| {
        Ok(CounterImport { object: import_from::<dyn Adds>(socket)?, _open: open })
    })
}

fn serve_counter<C: Count + 'static>(_: Form, end: ServerEnd) -> io::Result<()> {
    let object = CounterEverywhere(Arc::new(C::new(machine().vp_limit()))).create(ClusterSize::Cpu);
    serve_object(object.handle(), &options(), end.fds)
}
