//! Each item needs a feature that this program does not enable.

use squall::browse::serve;
use squall::lock::ConfigurableLock;
use squall::objects::bag::Bag;
use squall::objects::directory::Directory;
use squall::objects::gate::Gate;
use squall::objects::lock::AdaptiveLock;
use squall::parts::dhash::MasterTable;
use squall::parts::gate::SharedGate;
use squall::policy::governed;
use squall::policy::invoke::synchronous;
use squall::policy::monitor::subscribe;

fn main() {}
