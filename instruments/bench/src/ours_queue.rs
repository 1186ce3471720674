//! Subjects `squall-*` of the case of priority queues.

use squall::adapt::control::set_attribute;
use squall::objects::queue::{self as objects, QueueExt};
use squall::parts::queue::{Form, Queue};
use squall::{Handle, Owned};

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

/// `squall-object`: the queue as an object of a fixed form. Its attributes are set by name, to the defaults.
pub(crate) struct Object(Owned<dyn objects::Queue<u64>>);

impl Prioritized for Object {
    fn new(setting: &Setting) -> Result<Self, Missing> {
        let queue = match form(setting)? {
            Form::Strict => objects::strict(),
            Form::Relaxed => objects::relaxed(),
            Form::Local => objects::local(),
        };
        for (name, value) in [("topology", "ring"), ("insertion", "local-fragment"), ("balance-every", "2")] {
            set_attribute(Handle::id(queue.handle()), name, value)
                .map_err(|error| Missing(error.to_string()))?;
        }
        Ok(Object(queue))
    }

    fn access(&self, _: usize) -> impl QueueAccess + '_ {
        self.0.handle()
    }

    fn take_left(&self) -> Option<u64> {
        self.0.get().map(|(_, number)| number)
    }
}

impl QueueAccess for Handle<dyn objects::Queue<u64>> {
    #[inline(always)]
    fn put(&mut self, priority: u64, number: u64) {
        QueueExt::put(*self, priority, number).expect("the queue is never closed");
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        QueueExt::get(*self).map(|(_, number)| number)
    }
}
