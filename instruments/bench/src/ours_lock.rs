//! Subjects `squall-*` of the cases `lock` and `lock-mix`, used as an application would.

use squall::lock::{ConfigurableLock, Lock};
use squall::objects::lock::AdaptiveLock;

use crate::rivals::locks::Exclusive;

impl Exclusive for Lock<u64> {
    fn new() -> Self {
        Lock::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        section(&mut self.lock())
    }
}

impl Exclusive for ConfigurableLock<u64> {
    fn new() -> Self {
        ConfigurableLock::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        section(&mut self.lock())
    }
}

impl Exclusive for AdaptiveLock<u64> {
    fn new() -> Self {
        AdaptiveLock::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        section(&mut self.lock())
    }
}
