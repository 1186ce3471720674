//! `net`: a round trip of a frame between two processes, over loopback or between two hosts.
//!
//! The number at the end of a variant is the size of the frame in bytes. In `loopback` both processes are on
//! one address; in `hosts` they are in two network namespaces with a pair of virtual devices, which need
//! root. The server sends each frame back. The client is a process too: it gets a number of round trips
//! through a pipe, does them one after the other, and answers. So all subjects pay for the pipe, once in a
//! slice.
//!
//! - `tcp` is the floor: a socket, one thread on each side, and frames of a fixed length.
//! - `squall-net` is our transport. Its receiver sends the next frame. In `squall-net-waiting` a thread sends
//!   it, which sleeps until the frame before came back. In `squall-net-noise` the connection is encrypted.
//! - `squall-node` is a whole call over our transport: a visitor calls a service by its name, and its thread
//!   waits for the result. A worker runs the service. In `squall-node-in-place` the thread that received the
//!   call runs it, as a receiver does in `squall-net`.
//! - `tarpc` calls a service with postcard as its encoding, on a runtime of one thread on each side.
//! - `zenoh` and `iroh` are the programs in `engines/`. They are looked for in their target folders below the
//!   current folder, or at the paths in `SQUALL_ENGINE_ZENOH` and `SQUALL_ENGINE_IROH`.
//!
//! Metrics of each subject: `threads` and `rss_mib` of the client, after the slice.
//!
//! `net-faults` measures the same engines when a link is cut (`cut`, between two hosts) and when the server
//! is killed (`kill`). `noticed` is the time until the client's engine has noticed. `healed` is the time from
//! the repair until a frame comes back: from the link's return, or the start of a new server at the same
//! address.
//!
//! Placement matters as much as the engine. On a busy machine, `taskset -c 1 squall bench net` puts both
//! sides on one processor, which makes the ratios steady.

mod echo;
mod faults;
mod hosts;
mod link;
mod node_echo;
mod plain;
mod program;
mod tarpc_echo;

use crate::case::{Case, PLAIN, Scale, Spec, Variant};

pub(super) static CASE: Case = Case {
    name: "net",
    about: "a round trip of a frame between two processes, over loopback or between two hosts",
    variants: &[
        Variant { name: "loopback-64", about: "64 bytes, on one host", threads: Some(1), ..PLAIN },
        Variant { name: "loopback-1024", about: "1 KiB, on one host", threads: Some(1), ..PLAIN },
        Variant { name: "hosts-64", about: "64 bytes, between two hosts", threads: Some(1), ..PLAIN },
        Variant { name: "hosts-1024", about: "1 KiB, between two hosts", threads: Some(1), ..PLAIN },
    ],
    subjects: &[
        Spec::rival("tcp", |setting| link::subject(&program::TCP, setting)),
        Spec::ours("squall-net", |setting| link::subject(&program::OURS, setting)),
        Spec::ours("squall-net-waiting", |setting| link::subject(&program::OURS_WAITING, setting)),
        Spec::ours("squall-net-noise", |setting| link::subject(&program::OURS_NOISE, setting)),
        Spec::ours("squall-node", |setting| link::subject(&program::NODE, setting)),
        Spec::ours("squall-node-in-place", |setting| link::subject(&program::NODE_IN_PLACE, setting)),
        Spec::rival("tarpc", |setting| link::subject(&program::TARPC, setting)),
        Spec::rival("zenoh", |setting| link::subject(&program::ZENOH, setting)),
        Spec::rival("iroh", |setting| link::subject(&program::IROH, setting)),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};

pub(super) static FAULTS: Case = Case {
    name: "net-faults",
    about: "the time until a cut link or a killed peer is noticed, and until frames pass again",
    variants: &[PLAIN],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(faults::measure),
    default_threads: &[1],
};

pub use program::{NET_PROGRAM, net_program};
