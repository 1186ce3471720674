//! `message`: a message of 8 bytes from one thread to another one.
//!
//! The variant fixes the threads: `threads-8-1` has eight that send and one that receives. An operation is
//! one message, and its time the time until all messages of a slice were received, divided by their number.
//! Both sides sleep while they cannot go on.
//!
//! Each rival has room for 1024 words of each sender. The mailbox of `squall` has the default sizes: room for
//! 1024 words in a lane. Its senders are clones of one, which have a lane on each processor, so in
//! `threads-8-1` they share fewer lanes than they are. `std-mpsc` is an older version of `crossbeam-channel`.
//!
//! The variants `process` have two processes. An operation is a message of 64 bytes and its answer of 64
//! bytes. In `process` both sides run on one processor, and in `process-hot` on two, where they poll before
//! they sleep. `squall` is a link. `call-process` is a call of Squall's, as in the case of that name:
//! its variant `same-core` or `cross-hot`. `pipe` and `unix-socket` always sleep. Metric: `p99_us`.

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Variant};
use crate::cases::call_process::{CROSS_HOT, SAME_CORE, calling_as};
use crate::ours_call::SQUALL;
use crate::ours_link::LINK;
use crate::ours_message::Words;
use crate::rivals::calls::{Transport, streams};
use crate::rivals::channels::{Crossbeam, Flume, Std, Tokio};
use crate::work::message::{Channel, to_one};

pub(super) static CASE: Case = Case {
    name: "message",
    about: "a message of 8 bytes to the one thread that receives",
    variants: &[
        Variant { name: "threads-1-1", about: "one thread sends", threads: Some(2), ..PLAIN },
        Variant { name: "threads-8-1", about: "eight threads send", threads: Some(9), ..PLAIN },
        Variant {
            name: PROCESS,
            about: "a message to another process and its answer, both on one processor",
            threads: Some(1),
            ..PLAIN
        },
        Variant {
            name: PROCESS_HOT,
            about: "a message to another process and its answer, on two processors",
            threads: Some(1),
            ..PLAIN
        },
    ],
    subjects: &[
        Spec::ours("squall", |setting| match placed(setting) {
            Some(place) => calling_as(place, &LINK, setting),
            None => to_one::<Words>()(setting),
        }),
        Spec::rival("crossbeam-channel", between_threads::<Crossbeam>()),
        Spec::rival("flume", between_threads::<Flume>()),
        Spec::rival("std-mpsc", between_threads::<Std>()),
        Spec::rival("tokio-mpsc", between_threads::<Tokio>()),
        Spec::rival("call-process", |setting| between_processes(&SQUALL, setting)),
        Spec::rival(streams::PIPE.name, |setting| between_processes(&streams::PIPE, setting)),
        Spec::rival(streams::UNIX_SOCKET.name, |setting| between_processes(&streams::UNIX_SOCKET, setting)),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

const PROCESS: &str = "process";
const PROCESS_HOT: &str = "process-hot";

/// The variant of `call-process` that places its processes like this one. Two variants have two processes.
fn placed(setting: &Setting) -> Option<&'static str> {
    match setting.variant.name {
        PROCESS => Some(SAME_CORE),
        PROCESS_HOT => Some(CROSS_HOT),
        _ => None,
    }
}

fn between_processes(transport: &'static Transport, setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    placed(setting).map_or_else(|| Err(Missing::no_part()), |place| calling_as(place, transport, setting))
}

const fn between_threads<C: Channel>() -> Make {
    |setting| if placed(setting).is_some() { Err(Missing::no_part()) } else { to_one::<C>()(setting) }
}
