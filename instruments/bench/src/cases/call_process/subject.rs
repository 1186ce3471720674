//! The work of a client: calls, one after the other.

use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::server::{Order, Server, go_to, places};
use super::{BULK, CASE, CROSS_ASLEEP, CROSS_HOT};
use crate::case::{Missing, Setting, SliceEnd, Subject, Worker};
use crate::harness::{median, quantile};
use crate::ours_call::{ARRAY, ATOMIC, LOCKED, PADDED, SQUALL};
use crate::ours_link::LINK;
use crate::rivals::calls::{BULK_BYTES, Client, Connect, Form, Shared, Transport, futex, put_word, streams};
#[cfg(feature = "rivals")]
use crate::rivals::calls::{iceoryx, ipc_channels};
use crate::uncounted::uncounted;

/// All transports, for the serving process.
pub(super) static TRANSPORTS: &[&Transport] = &[
    &SQUALL,
    &LOCKED,
    &ATOMIC,
    &ARRAY,
    &PADDED,
    &LINK,
    &futex::FUTEX,
    &futex::FUTEX_SPIN,
    &streams::PIPE,
    &streams::UNIX_SOCKET,
    #[cfg(feature = "rivals")]
    &iceoryx::ICEORYX2,
    #[cfg(feature = "rivals")]
    &iceoryx::ICEORYX2_POLLED,
    #[cfg(feature = "rivals")]
    &ipc_channels::IPC_CHANNEL,
];

/// Calls between two that are timed one by one. Reading the clock twice takes about 50 ns.
const TIMED_EVERY: u64 = 32;
/// Bulk calls between two measurements of the null call and of the copies, and their number.
const BULK_BATCH: u64 = 64;
/// Calls of a new connection before it is measured.
const FIRST_CALLS: u64 = 8;

struct Calling {
    transport: &'static Transport,
    /// The connection of all clients, if they share one. Dropped before the server.
    shared: Option<Box<dyn Shared>>,
    server: Server,
    form: Form,
    places: Vec<usize>,
    /// Distance from the client's place to the server's.
    distance: usize,
    counted: bool,
    figures: Mutex<Figures>,
}

/// Figures of the calls of one slice, in nanoseconds.
#[derive(Default)]
struct Figures {
    calls: Vec<f64>,
    /// Means of batches, in the variant with bulk calls.
    bulk: Vec<f64>,
    null: Vec<f64>,
    copies: Vec<f64>,
}

/// Makes the subject that calls through `transport` as in a variant of `call-process`, for another case.
pub(in crate::cases) fn calling_as(
    name: &str,
    transport: &'static Transport,
    setting: &Setting,
) -> Result<Box<dyn Subject>, Missing> {
    let variant = CASE.variants.iter().find(|variant| variant.name == name);
    let variant = variant.expect("`call-process` has the variant");
    calling(transport, &Setting { variant, ..setting.clone() })
}

/// Makes the subject that calls through `transport`.
pub(in crate::cases) fn calling(
    transport: &'static Transport,
    setting: &Setting,
) -> Result<Box<dyn Subject>, Missing> {
    let variant = setting.variant.name;
    if transport.polls && variant != CROSS_HOT {
        return Err(Missing::no_part());
    }
    if transport.leaves_files && setting.counted {
        return Err(Missing(
            "its files would remain, because nothing is dropped after an exact run".to_owned(),
        ));
    }
    let crosses = variant == CROSS_HOT || variant == CROSS_ASLEEP;
    let places = places();
    if crosses && places.len() < 2 {
        return Err(Missing("a server on another processor needs two processors".to_owned()));
    }
    let failed = |error| Missing(format!("the server cannot be started: {error}"));
    let server = if setting.counted { Ok(Server::Inside) } else { Server::start() }.map_err(failed)?;
    let shared = match transport.connect {
        Connect::PerClient(_) => None,
        Connect::Shared(connect) => {
            // An idle server is brought to its caller.
            let connected = connect(variant == CROSS_HOT, &mut |end| {
                server.serve(Order { transport, form: Form::Null, place: places[0], end })
            });
            Some(connected.map_err(failed)?)
        }
    };
    Ok(Box::new(Calling {
        transport,
        shared,
        server,
        form: if variant == BULK { Form::Bulk } else { Form::Null },
        places,
        distance: usize::from(crosses),
        counted: setting.counted,
        figures: Mutex::default(),
    }))
}

impl Calling {
    /// Connects client `thread`, and makes everything that its first calls make.
    fn connect(&self, thread: usize, form: Form) -> io::Result<Line> {
        let place = self.places[(thread + self.distance) % self.places.len()];
        let client = match (&self.shared, &self.transport.connect) {
            (Some(shared), _) => shared.client(form),
            (None, Connect::PerClient(connect)) => connect(form, &mut |end| {
                self.server.serve(Order { transport: self.transport, form, place, end })
            })?,
            (None, Connect::Shared(_)) => return Err(io::Error::other("there is no connection")),
        };
        let mut line =
            Line { client, form, request: vec![1; form.request_bytes()], reply: vec![0; form.reply_bytes()] };
        (0..FIRST_CALLS).for_each(|number| line.call(number));
        Ok(line)
    }

    /// Times null calls and copies between bulk calls.
    fn compare(&self, null: &mut Line, buffers: &mut [Vec<u8>; 3]) {
        let began = Instant::now();
        (0..BULK_BATCH).for_each(|number| null.call(number));
        let called = Instant::now();
        for _ in 0..BULK_BATCH {
            let [from, through, to] = &mut *buffers;
            black_box(&mut *through).copy_from_slice(black_box(from));
            black_box(&mut *to).copy_from_slice(black_box(through));
        }
        let copied = Instant::now();
        self.note(|figures| {
            figures.null.push((called - began).as_nanos() as f64 / BULK_BATCH as f64);
            figures.copies.push((copied - called).as_nanos() as f64 / BULK_BATCH as f64);
        });
    }

    fn note(&self, note: impl FnOnce(&mut Figures)) {
        note(&mut self.figures.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A connection with its buffers.
struct Line {
    client: Box<dyn Client>,
    form: Form,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Line {
    #[inline]
    fn call(&mut self, number: u64) {
        put_word(&mut self.request, number);
        self.client.call(&self.request, &mut self.reply);
        self.form.check(&self.request, &self.reply);
    }

    /// Calls with these numbers. Pushes the nanoseconds of each timed call to `took`.
    fn calls(&mut self, numbers: Range<u64>, took: &mut Vec<f64>) {
        for number in numbers {
            if number.is_multiple_of(TIMED_EVERY) {
                let began = Instant::now();
                self.call(number);
                took.push(began.elapsed().as_nanos() as f64);
            } else {
                self.call(number);
            }
        }
    }
}

impl Subject for Calling {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let place = |distance| self.places[(thread + distance) % self.places.len()];
        if self.shared.is_some() && self.distance > 0 {
            // The server has last run elsewhere.
            go_to(place(self.distance));
            self.connect(thread, self.form).expect("the server cannot be reached");
        }
        go_to(place(0));
        let connect = |form| self.connect(thread, form).expect("the server cannot be reached");
        let mut line = connect(self.form);
        let compared = self.form == Form::Bulk && !self.counted;
        let mut null = compared.then(|| (connect(Form::Null), [(); 3].map(|()| vec![1; BULK_BYTES])));
        Box::new(move |ops| {
            if self.counted {
                return (0..ops).for_each(|number| line.call(number));
            }
            let mut calls = Vec::with_capacity((ops / TIMED_EVERY) as usize + 1);
            let Some((null, buffers)) = &mut null else {
                line.calls(0..ops, &mut calls);
                return self.note(|figures| figures.calls.append(&mut calls));
            };
            let mut number = 0;
            while number < ops {
                let batch = BULK_BATCH.min(ops - number);
                let began = Instant::now();
                line.calls(number..number + batch, &mut calls);
                let took = began.elapsed().as_nanos() as f64 / batch as f64;
                number += batch;
                uncounted(|| {
                    self.note(|figures| figures.bulk.push(took));
                    self.compare(null, buffers);
                });
            }
            self.note(|figures| figures.calls.append(&mut calls));
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        let figures = std::mem::take(&mut *self.figures.lock().unwrap_or_else(PoisonError::into_inner));
        let mut metrics = vec![("p99_us", quantile(&figures.calls, 0.99) / 1e3)];
        if !figures.null.is_empty() {
            let (null, copies) = (median(&figures.null), median(&figures.copies));
            metrics.push(("null_ns", null));
            metrics.push(("copies_ns", copies));
            metrics.push(("extra_copies", (median(&figures.bulk) - null) / copies));
        }
        SliceEnd { done: None, metrics }
    }

    fn busy_elsewhere_ns(&self) -> u64 {
        self.server.busy_ns()
    }
}
