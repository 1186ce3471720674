//! Code for `tokio::sync` that would have another meaning here. It must not compile.

use squall::objects::lock::AdaptiveLock;
use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};

async fn watch() {
    let value = read_mostly::shared(1);
    let mut changes = value.subscribe();
    let _ = value.send(2);
    changes.changed().await.unwrap();
    let _ = *changes.borrow_and_update();
    let _second = changes.clone();
}

async fn lock() {
    let lock = AdaptiveLock::new(1);
    *lock.lock().await += 1;
}

fn main() {
    drop((watch(), lock()));
}
