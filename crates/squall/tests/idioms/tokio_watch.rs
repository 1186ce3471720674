//! `tokio::sync::watch`.

use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use tokio::sync::watch;

/// A new subscriber has seen the present value. It then sees the last of several changes, once.
#[test]
fn changes_are_seen_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (theirs, _first) = watch::channel(1);
        let ours = read_mostly::shared(1);
        let (mut their_changes, mut our_changes) = (theirs.subscribe(), ours.subscribe());
        assert!(!their_changes.has_changed().expect("the sender is there"));
        assert_eq!(our_changes.poll_now(), Ok(None));
        for value in [2, 3] {
            theirs.send(value).expect("a receiver is there");
            ours.set(value);
        }
        their_changes.changed().await.expect("the sender is there");
        our_changes.changed().await.expect("the value is there");
        assert_eq!((*their_changes.borrow(), ours.get()), (3, 3));
        assert!(!their_changes.has_changed().expect("the sender is there"));
        assert_eq!(our_changes.poll_now(), Ok(None));
        drop(theirs);
        drop(ours);
        assert!(their_changes.changed().await.is_err() && our_changes.changed().await.is_err());
    });
}
