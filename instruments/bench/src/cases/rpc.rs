//! `rpc`: a call of a server on another thread, until its result is there.
//!
//! A request and a reply carry a word each. `squall` is a blocking `Caller` and a server with a dispatcher:
//! each request has a method, a token and the address of its reply, and a task handles it. `squall-stub` is
//! an object that such a server serves, called through its stub over mailboxes of this process. In
//! `squall-stub-link` the stub calls over a link of shared memory, as it would call another process; the
//! server is a thread of this one, as in all subjects. `squall-pair` is a bare pair of messages through two
//! mailboxes. The rivals are pairs of their channels, and `tarpc` (feature `net`) with its transport of
//! channels and a runtime of one thread on each side. No subject tells the server where to run. The sides of
//! `flume` and `tokio-mpsc` sleep at once, and the other channels poll for a while before.

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_message::{Dispatched, Linked, Stubbed, Words};
use crate::rivals::channels::{Crossbeam, Flume, Pair, Std, Tokio};
#[cfg(feature = "net")]
use crate::rivals::tarpc::Tarpc;
use crate::work::rpc::calls;

pub(super) static CASE: Case = Case {
    name: "rpc",
    about: "a call of a server on another thread, with a word each way",
    variants: &[Variant { threads: Some(1), ..PLAIN }],
    subjects: &[
        Spec::ours("squall", calls::<Dispatched>()),
        Spec::ours("squall-stub", calls::<Stubbed>()),
        Spec::ours("squall-stub-link", calls::<Linked>()),
        Spec::ours("squall-pair", calls::<Pair<Words>>()),
        Spec::rival("crossbeam-channel", calls::<Pair<Crossbeam>>()),
        Spec::rival("flume", calls::<Pair<Flume>>()),
        Spec::rival("std-mpsc", calls::<Pair<Std>>()),
        Spec::rival("tokio-mpsc", calls::<Pair<Tokio>>()),
        #[cfg(feature = "net")]
        Spec::rival("tarpc", calls::<Tarpc>()),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
