//! The properties of a pool.

use squall_core::Owned;
use std::fmt;
use std::time::{Duration, Instant};

use super::pooled::Object;
use super::{Idle, ObjectPool};
use crate::bag::{self, Bag};

type Check<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;
type Reset<T> = Box<dyn Fn(&mut T) + Send + Sync>;

/// The functions and limits of a pool.
pub(super) struct Rules<T> {
    pub(super) make: Box<dyn Fn() -> T + Send + Sync>,
    check: Option<Check<T>>,
    reset: Option<Reset<T>>,
    pub(super) max_size: Option<usize>,
    max_age: Option<Duration>,
    /// Whether an idle object is lent as it is.
    is_plain: bool,
}

impl<T> Rules<T> {
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Returns an idle object if it may be lent, reset.
    pub(super) fn fit(&self, mut object: Box<Object<T>>, created: Instant) -> Option<Box<Object<T>>> {
        if let Some(max) = self.max_age
            && Duration::from_nanos(self.now(created).saturating_sub(object.made)) >= max
        {
            return None;
        }
        if self.check.as_ref().is_some_and(|check| !check(&mut object.value)) {
            return None;
        }
        if let Some(reset) = &self.reset {
            reset(&mut object.value);
        }
        Some(object)
    }

    /// Returns the time at which an object was made. Reads the clock only if the pool has a maximum age.
    pub(super) fn now(&self, created: Instant) -> u64 {
        match self.max_age {
            Some(_) => u64::try_from(created.elapsed().as_nanos()).unwrap_or(u64::MAX),
            None => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Shared,
    Distributed,
    Adaptive,
}

/// The properties of a pool to be created. Made by [`ObjectPool::builder`].
///
/// ```
/// use squall::objects::pool::ObjectPool;
///
/// let buffers = ObjectPool::builder(|| vec![0_u8; 4096]).reset(|buffer| buffer.fill(0)).build();
/// buffers.get()[0] = 1;
/// assert_eq!(buffers.get()[0], 0);
/// ```
#[must_use = "`build` creates the pool"]
pub struct PoolBuilder<T: Send + 'static> {
    form: Form,
    rules: Rules<T>,
}

impl<T: Send + 'static> PoolBuilder<T> {
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> PoolBuilder<T> {
        let rules = Rules {
            make: Box::new(make),
            check: None,
            reset: None,
            max_size: None,
            max_age: None,
            is_plain: true,
        };
        PoolBuilder { form: Form::Adaptive, rules }
    }

    /// Keeps the idle objects in one shard, at home on the VP of the thread that creates the pool.
    pub fn shared(mut self) -> PoolBuilder<T> {
        self.form = Form::Shared;
        self
    }

    /// Keeps the idle objects in a shard for each VP that uses the pool.
    pub fn distributed(mut self) -> PoolBuilder<T> {
        self.form = Form::Distributed;
        self
    }

    /// Changes the form with the load, as [`bag::adaptive`] does. The default. [`build`](PoolBuilder::build)
    /// then starts the thread `squall-adapt`, unless it runs.
    pub fn adaptive(mut self) -> PoolBuilder<T> {
        self.form = Form::Adaptive;
        self
    }

    /// Limits the number of objects. Callers wait while so many are in use. The default is no limit.
    ///
    /// # Panics
    /// If `max` is 0.
    pub fn max_size(mut self, max: usize) -> PoolBuilder<T> {
        assert!(max > 0, "a pool without objects has nothing to lend: its maximum size must be at least 1");
        self.rules.max_size = Some(max);
        self
    }

    /// Discards idle objects of this age instead of lending them. The default is no limit.
    /// No object is discarded while it stays idle.
    ///
    /// # Cost
    /// Each [`get`](ObjectPool::get) reads the clock.
    pub fn max_age(mut self, max: Duration) -> PoolBuilder<T> {
        self.rules.max_age = Some(max);
        self
    }

    /// Asks `check` before an idle object is lent. An object for which it returns false is discarded, and a
    /// new one is made.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let pool = ObjectPool::builder(|| 0).check(|uses| *uses < 2).build();
    /// for expected in [0, 1, 0] {
    ///     let mut uses = pool.get();
    ///     assert_eq!(*uses, expected);
    ///     *uses += 1;
    /// }
    /// ```
    pub fn check(mut self, check: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> PoolBuilder<T> {
        self.rules.check = Some(Box::new(check));
        self
    }

    /// Calls `reset` before an idle object is lent, after `check`; not when the object comes back.
    pub fn reset(mut self, reset: impl Fn(&mut T) + Send + Sync + 'static) -> PoolBuilder<T> {
        self.rules.reset = Some(Box::new(reset));
        self
    }

    /// Creates the pool, without objects.
    ///
    /// # Panics
    /// If the object of the bag cannot be created: see [`CreateError`](squall_core::CreateError).
    #[track_caller]
    pub fn build(self) -> ObjectPool<T> {
        let PoolBuilder { form, mut rules } = self;
        rules.is_plain = rules.check.is_none() && rules.reset.is_none() && rules.max_age.is_none();
        let bag: Owned<dyn Bag<Idle<T>>> = match form {
            Form::Shared => bag::shared(),
            Form::Distributed => bag::distributed(),
            Form::Adaptive => bag::adaptive(),
        };
        ObjectPool::with(bag, rules)
    }
}

impl<T: Send + 'static> fmt::Debug for PoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("form", &self.form)
            .field("max_size", &self.rules.max_size)
            .field("max_age", &self.rules.max_age)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_an_object_counts_from_its_making() {
        const HOUR: Duration = Duration::from_secs(3600);
        let rules = PoolBuilder::new(|| 0).max_age(HOUR).rules;
        // A pool that was created two hours ago. The clock of a machine that just started begins later.
        let Some(created) = Instant::now().checked_sub(2 * HOUR) else { return };
        let now = rules.now(created);
        assert!(u128::from(now) >= 2 * HOUR.as_nanos());
        let fit = |made| rules.fit(Box::new(Object { value: 0, made }), created).is_some();
        assert!(fit(now), "the object is new");
        assert!(!fit(0), "it is as old as the pool");
    }
}
