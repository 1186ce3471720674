//! `iceoryx2`: its request and response, polled, or with its event service for each direction.
//!
//! - I1. A client ends its server with a last request, which no other request equals. So both sides remove
//!   their files.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::client::Client as Requests;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::{LogLevel, PortFactory as _, ServiceName, SignalHandlingMode, ipc, set_log_level};
use iceoryx2::service::port_factory::request_response::PortFactory;

use super::{BULK_BYTES, Client, Connect, Form, ServerEnd, Start, Transport, put_word, word};
use crate::rivals::spin_or_yield;

/// Request and response with the event service.
pub(crate) static ICEORYX2: Transport = Transport {
    name: "iceoryx2",
    connect: Connect::PerClient(connect::<false>),
    serve: serve::<false>,
    polls: false,
    leaves_files: true,
};

/// Request and response, polled.
pub(crate) static ICEORYX2_POLLED: Transport = Transport {
    name: "iceoryx2-polled",
    connect: Connect::PerClient(connect::<true>),
    serve: serve::<true>,
    polls: true,
    leaves_files: true,
};

/// First word of the last request.
const END: u64 = u64::MAX;
/// Longest time for the server to appear.
const PATIENCE: Duration = Duration::from_secs(10);

type Service = ipc::Service;
type Calls = PortFactory<Service, [u8], (), [u8], ()>;

fn told(error: impl Debug) -> io::Error {
    io::Error::other(format!("iceoryx2: {error:?}"))
}

/// One side of a connection: its node, its call service, and its events if it sleeps.
struct Side {
    _node: Node<Service>,
    calls: Calls,
    events: Option<(Listener<Service>, Notifier<Service>)>,
}

impl Side {
    fn new<const POLLS: bool>(name: &str, hears: &str, tells: &str) -> io::Result<Side> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create::<Service>();
        let node = node.map_err(told)?;
        let named = |what: &str| ServiceName::new(&format!("{name}/{what}")).map_err(told);
        let event = |what| node.service_builder(&named(what)?).event().open_or_create().map_err(told);
        let events = if POLLS {
            None
        } else {
            let listener = event(hears)?.listener_builder().create().map_err(told)?;
            Some((listener, event(tells)?.notifier_builder().create().map_err(told)?))
        };
        let calls = node.service_builder(&named("calls")?).request_response::<[u8], [u8]>();
        let calls = calls.open_or_create().map_err(told)?;
        Ok(Side { _node: node, calls, events })
    }

    /// Waits for the other side, or polls.
    #[inline]
    fn wait(&self, tries: &mut u32) {
        match &self.events {
            Some((listener, _)) => {
                listener.blocking_wait(|_| {}).expect("the event service failed");
            }
            None => spin_or_yield(tries),
        }
    }

    #[inline]
    fn tell(&self) {
        if let Some((_, notifier)) = &self.events {
            notifier.notify().expect("the event service failed");
        }
    }
}

struct Caller {
    requests: Requests<Service, [u8], (), [u8], ()>,
    side: Side,
    form: Form,
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        let room = self.requests.loan_slice_uninit(request.len()).expect("iceoryx2 has no memory");
        let pending = room.write_from_slice(request).send().expect("the server has ended");
        self.side.tell();
        let mut tries = 0;
        let response = loop {
            if let Some(response) = pending.receive().expect("the server has ended") {
                break response;
            }
            self.side.wait(&mut tries);
        };
        reply.copy_from_slice(response.payload());
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let (mut request, mut reply) = (vec![0; self.form.request_bytes()], vec![0; self.form.reply_bytes()]);
        put_word(&mut request, END);
        self.call(&request, &mut reply);
    }
}

fn connect<const POLLS: bool>(form: Form, start: Start<'_>) -> io::Result<Box<dyn Client>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the numbers matter.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("squall-bench/{}/{number}", std::process::id());
    let side = Side::new::<POLLS>(&name, "replies", "requests")?;
    let requests = side.calls.client_builder().initial_max_slice_len(BULK_BYTES).create().map_err(told)?;
    start(ServerEnd { name, ..ServerEnd::default() })?;
    let began = Instant::now();
    while side.calls.dynamic_config().number_of_servers() == 0 {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("iceoryx2: the server did not appear"));
        }
        thread::yield_now();
    }
    Ok(Box::new(Caller { requests, side, form }))
}

fn serve<const POLLS: bool>(form: Form, end: ServerEnd) -> io::Result<()> {
    let side = Side::new::<POLLS>(&end.name, "requests", "replies")?;
    let server = side.calls.server_builder().initial_max_slice_len(BULK_BYTES).create().map_err(told)?;
    let (mut request, mut reply) = (vec![0; form.request_bytes()], vec![0; form.reply_bytes()]);
    let mut tries = 0;
    loop {
        let Some(active) = server.receive().map_err(told)? else {
            side.wait(&mut tries);
            continue;
        };
        tries = 0;
        request.copy_from_slice(active.payload());
        form.answer(&request, &mut reply);
        let room = active.loan_slice_uninit(reply.len()).map_err(told)?;
        room.write_from_slice(&reply).send().map_err(told)?;
        side.tell();
        if word(&request) == END {
            return Ok(());
        }
    }
}
