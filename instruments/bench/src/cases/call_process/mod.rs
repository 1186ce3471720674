//! `call-process`: a call of a method in another process, until its result is there.
//!
//! The number in `--threads` is the number of clients. Client `i` is pinned to processor `i`, or `i` modulo
//! the number of processors. The variant places the thread that serves it:
//!
//! - `same-core`: on the client's processor, where it sleeps between calls.
//! - `cross-hot`: on the next processor. Both sides poll before they sleep, if the subject can.
//! - `cross-asleep`: on the next processor, where it sleeps between calls. That processor may be idle.
//! - `bulk-8k`: as `same-core`. The argument has 8 KiB, and the result one word.
//!
//! A null call carries 64 bytes in each direction. The server copies each request into private memory before
//! it answers. The client checks each reply.
//!
//! Metrics of each subject: `p99_us`, of calls timed one by one. In `bulk-8k`, `null_ns` is a null call of
//! the subject in the same slices. `copies_ns` is the time of two copies of 8 KiB. `extra_copies` is the time
//! of a bulk call less that of a null call, in units of `copies_ns`.
//!
//! - `squall` has one import, which all clients share. In `cross-hot` its server is placed on the next
//!   processor. In `cross-asleep` it last ran there, and Squall brings it to the caller.
//! - `futex` is a pair of words in shared memory, written by hand. Its sides sleep at once; those of
//!   `futex-spin` poll for 20 us before they sleep.
//! - `iceoryx2` is its request and response with its event service, and `iceoryx2-polled` without.
//! - `pipe`, `unix-socket` and `ipc-channel` always sleep.
//!
//! The server of each subject is a process of its own. Its processor time is no foreign load. In exact runs
//! server and clients are threads of one process, so that an instrument can count the accesses of both.

mod server;
mod subject;

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
#[cfg(not(feature = "rivals"))]
use crate::case::{Missing, Setting, Subject};
use crate::ours_call::SQUALL;
use crate::rivals::calls::{futex, streams};
#[cfg(feature = "rivals")]
use crate::rivals::calls::{iceoryx, ipc_channels};
pub(super) use subject::{calling, calling_as};

pub use server::{CALL_SERVER, call_server};

pub(super) static CASE: Case = Case {
    name: "call-process",
    about: "a call of a method in another process, with 64 bytes each way, until its result is there",
    variants: &[
        Variant { name: SAME_CORE, about: "the server sleeps on the client's processor", ..PLAIN },
        Variant { name: CROSS_HOT, about: "the server polls on another processor", ..PLAIN },
        Variant { name: CROSS_ASLEEP, about: "the server sleeps on another processor", ..PLAIN },
        Variant {
            name: BULK,
            about: "an argument of 8 KiB; the server sleeps on the client's processor",
            ..PLAIN
        },
    ],
    subjects: &[
        Spec::ours(SQUALL.name, |setting| calling(&SQUALL, setting)),
        Spec::rival(futex::FUTEX.name, |setting| calling(&futex::FUTEX, setting)),
        Spec::rival(futex::FUTEX_SPIN.name, |setting| calling(&futex::FUTEX_SPIN, setting)),
        Spec::rival(streams::PIPE.name, |setting| calling(&streams::PIPE, setting)),
        Spec::rival(streams::UNIX_SOCKET.name, |setting| calling(&streams::UNIX_SOCKET, setting)),
        #[cfg(feature = "rivals")]
        Spec::rival(iceoryx::ICEORYX2.name, |setting| calling(&iceoryx::ICEORYX2, setting)),
        #[cfg(feature = "rivals")]
        Spec::rival(iceoryx::ICEORYX2_POLLED.name, |setting| calling(&iceoryx::ICEORYX2_POLLED, setting)),
        #[cfg(feature = "rivals")]
        Spec::rival(ipc_channels::IPC_CHANNEL.name, |setting| calling(&ipc_channels::IPC_CHANNEL, setting)),
        #[cfg(not(feature = "rivals"))]
        Spec::rival("iceoryx2", not_built),
        #[cfg(not(feature = "rivals"))]
        Spec::rival("ipc-channel", not_built),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};

pub(super) const SAME_CORE: &str = "same-core";
pub(super) const CROSS_HOT: &str = "cross-hot";
const CROSS_ASLEEP: &str = "cross-asleep";
const BULK: &str = "bulk-8k";

#[cfg(not(feature = "rivals"))]
fn not_built(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Err(Missing("squall was built without its feature `rivals`".to_owned()))
}
