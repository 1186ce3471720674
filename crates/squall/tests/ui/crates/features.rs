//! Each item needs a feature that this program does not enable.

use squall::browse::serve;
use squall::call::Remote;
use squall::lock::ConfigurableLock;
use squall::objects::bag::Bag;
use squall::objects::directory::Directory;
use squall::objects::gate::Gate;
use squall::objects::lock::AdaptiveLock;
use squall::objects::queue::Queue;
use squall::parts::dhash::MasterTable;
use squall::parts::gate::SharedGate;
use squall::policy::governed;
use squall::policy::invoke::synchronous;
use squall::policy::monitor::subscribe;

#[squall::interface(remote)]
trait Called: Send + Sync {
    fn one(&self, n: u64) -> u64;
    fn other(&self);
}

fn main() {}
