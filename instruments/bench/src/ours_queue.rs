//! Subjects `squall-*` of the case of priority queues.

use squall::parts::queue::{Form, Queue};

use crate::case::{Missing, Setting};
use crate::rivals::bags::Direct;
use crate::work::queue::{Prioritized, QueueAccess, order};

/// Returns the form that a variant is about.
fn form(setting: &Setting) -> Result<Form, Missing> {
    match order(setting) {
        "strict" => Ok(Form::Strict),
        "relaxed" => Ok(Form::Relaxed),
        "local" => Ok(Form::Local),
        _ => Err(Missing::no_part()),
    }
}

/// `squall-part`: the queue without an object, with the default attributes.
impl Prioritized for Queue<u64> {
    fn new(setting: &Setting) -> Result<Self, Missing> {
        form(setting).map(Queue::new)
    }

    fn access(&self, _: usize) -> impl QueueAccess + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.here().get().map(|(_, number)| number)
    }
}

/// Each call finds out where the thread is, since it may have moved.
impl QueueAccess for Direct<'_, Queue<u64>> {
    #[inline(always)]
    fn put(&mut self, priority: u64, number: u64) {
        self.0.here().put(priority, number).expect("the queue is never closed");
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.here().get().map(|(_, number)| number)
    }
}

/// `squall-part-unbalanced`: the local form without moves between the heaps.
pub(crate) struct Unbalanced(Queue<u64>);

impl Prioritized for Unbalanced {
    fn new(setting: &Setting) -> Result<Self, Missing> {
        let form = form(setting)?;
        if form != Form::Local {
            return Err(Missing::no_part());
        }
        let queue = Queue::new(form);
        queue.attributes().set_balance_every(0);
        Ok(Unbalanced(queue))
    }

    fn access(&self, _: usize) -> impl QueueAccess + '_ {
        Direct(&self.0)
    }

    fn take_left(&self) -> Option<u64> {
        self.0.take_left()
    }
}
