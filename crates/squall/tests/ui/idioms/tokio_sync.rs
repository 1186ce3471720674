//! Code for `tokio::sync` that would have another meaning here. It must not compile.

use squall::objects::lock::AdaptiveLock;
use squall::objects::read_mostly;

fn watch() {
    let value = read_mostly::shared(1);
    let _ = value.send(2);
    value.send_modify(|value| *value += 1);
}

async fn lock() {
    let lock = AdaptiveLock::new(1);
    *lock.lock().await += 1;
}

fn main() {
    watch();
    drop(lock());
}
