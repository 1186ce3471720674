//! `message`: a message of 8 bytes from one thread to another one.
//!
//! The variant fixes the threads: `threads-8-1` has eight that send and one that receives. An operation is
//! one message, and its time the time until all messages of a slice were received, divided by their number.
//! Both sides sleep while they cannot go on.
//!
//! Each rival has room for 1024 words of each sender. The mailbox of `squall` has the default sizes: room for
//! 1024 words in a lane. Its senders are clones of one, which have a lane on each processor, so in
//! `threads-8-1` they share fewer lanes than they are. `std-mpsc` is an older version of `crossbeam-channel`.

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_message::Words;
use crate::rivals::channels::{Crossbeam, Flume, Std, Tokio};
use crate::work::message::to_one;

pub(super) static CASE: Case = Case {
    name: "message",
    about: "a message of 8 bytes to the one thread that receives",
    variants: &[
        Variant { name: "threads-1-1", about: "one thread sends", threads: Some(2), ..PLAIN },
        Variant { name: "threads-8-1", about: "eight threads send", threads: Some(9), ..PLAIN },
    ],
    subjects: &[
        Spec::ours("squall", to_one::<Words>()),
        Spec::rival("crossbeam-channel", to_one::<Crossbeam>()),
        Spec::rival("flume", to_one::<Flume>()),
        Spec::rival("std-mpsc", to_one::<Std>()),
        Spec::rival("tokio-mpsc", to_one::<Tokio>()),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
