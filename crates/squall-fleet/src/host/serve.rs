//! The thread of a transport, which serves all its links.
//!
//! - I1. Each link has two cooperative tasks: one receives, and one sends the frames that wait. A task that
//!   has received [`BATCH`] messages lets the others run, so a peer that floods holds up no other one.
//! - I2. The end of a link is noted by its receiving task, after the last message. So it is told after all
//!   frames.

use super::backlog::Rest;
use super::peers::{Outlet, Served, Shared};
use super::pieces::{CONSENT, Halves, Joiner, write_piece};
use crate::link::{LinkError, LinkReceiver};
use crate::stats::Counts;
use crate::tasks::{New, Tasks, Wish};
use crate::transport::Receiver;
use squall_machine::unpark::Unpark;
use squall_sys::panics::end_panic;
use squall_sys::sync::{StdArc as Arc, thread};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

/// Messages of a link that are received at a time.
const BATCH: u32 = 32;

/// Serves links until the transport stops.
pub(super) fn serve(shared: &Arc<Shared>, receiver: Receiver) {
    let mut tasks = Tasks::new(shared.queue.clone(), Rc::new(Counts::default()));
    let (halves, waker) = (Halves::default(), Unpark::waker());
    let receiver = Rc::new(receiver);
    while shared.queue.wish() != Wish::Stop {
        if shared.queue.take_idle() {
            for served in shared.take_fresh() {
                add(&mut tasks, pump(served.outlet.clone()));
                let joiner = Joiner::new(halves.clone());
                add(&mut tasks, receive(shared.clone(), receiver.clone(), joiner, served));
            }
        }
        if let Some((task, _)) = tasks.next() {
            tasks.run(task);
        } else if shared.queue.sleep(&waker, Wish::Serve) {
            thread::park();
            shared.queue.awake();
        }
    }
    tasks.clear();
}

fn add(tasks: &mut Tasks, work: impl Future<Output = ()> + 'static) {
    tasks.add(New { work: Box::pin(work), label: 0, class: None });
}

/// Sends the frames that wait.
async fn pump(outlet: Arc<Outlet>) {
    let mut piece = Vec::new();
    while let Some(Rest { frame, mut sent }) = poll_fn(|cx| outlet.backlog.poll_next(cx.waker())).await {
        loop {
            sent = write_piece(&mut piece, &frame, sent, outlet.piece_bytes);
            if outlet.sender.wait_to_send(&piece).await.is_err() {
                // The receiving task notes the end.
                return outlet.end();
            }
            if sent == frame.len() {
                break;
            }
        }
    }
}

/// Receives all messages of a link.
async fn receive(shared: Arc<Shared>, receiver: Rc<Receiver>, mut joiner: Joiner, mut served: Served) {
    poll_fn(|cx| shared.poll_turn(&served, cx.waker())).await;
    let endpoint = served.endpoint.clone();
    let act = |frame: &[u8]| end_panic(|| receiver.receive(&endpoint, frame));
    let why = loop {
        match next_batch(&mut served.receiver, &mut joiner, &mut served.has_consent, &act).await {
            Ok(true) => yield_now().await,
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(joiner);
    let is_proof = match why {
        Some(LinkError::PeerGone { .. }) => true,
        // A peer without consent may have given up the greeting (`greet/I1`).
        Some(LinkError::Ended { .. }) => served.has_consent,
        _ => false,
    };
    shared.end(served, is_proof, |endpoint| end_panic(|| receiver.ended(endpoint)));
}

/// Receives some messages. Returns false if the peer broke the format.
async fn next_batch(
    link: &mut LinkReceiver,
    joiner: &mut Joiner,
    has_consent: &mut bool,
    act: &dyn Fn(&[u8]),
) -> Result<bool, LinkError> {
    link.wait().await?;
    for _ in 0..BATCH {
        let Some(message) = link.receive()? else { break };
        if message == CONSENT && !*has_consent {
            *has_consent = true;
        } else if joiner.take(message, act).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lets other tasks run.
async fn yield_now() {
    let mut has_run = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
