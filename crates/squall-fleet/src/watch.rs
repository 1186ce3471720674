//! The watchdog of a dispatcher: the names of its tasks, the step that runs now, and the long steps.
//!
//! Problem: tasks are cooperative, so one that does not wait holds up all others. Its dispatcher cannot tell
//! of it, because the task has its thread.
//! Idea: the dispatcher writes the task and the time into one word before each step. Another thread reads the
//! word at any moment. After the step, the dispatcher compares the time with a limit.
//!
//! - I1. The word has the label of the running step and its begin, or is 0. One store writes both.
//! - I2. A label is in the table before a step bears it, and stays there.
//!
//! Not promised: a thread that watches. The program asks from a thread of its own.
//! Cost: two stores, and one reading of the clock, for each step. One more reading for 33 turns of the
//! dispatcher without a step.
//! Source: Wentzlaff 2012, §3.3.2 (AD-11).

use crate::stats::{Counts, count};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, StdArc, lock};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The number of a name.
pub(crate) type Label = u16;

/// The idle work.
pub(crate) const IDLE: Label = 0;
/// Tasks without a name of their own.
pub(crate) const SPAWNED: Label = 1;
/// The task that sends replies which wait for room.
pub(crate) const LATE: Label = 2;
/// Further names, when the table is full.
const FURTHER: Label = 3;
const FIRST: [&str; 4] = ["idle work", "a spawned task", "replies that wait for room", "further tasks"];

/// The most names of a dispatcher.
const LABELS_MAX: usize = 1024;
/// Bits of the word that have the time, in microseconds: enough for 8 years.
const TIME_BITS: u32 = 48;

/// The most turns of a dispatcher without a step of a task before it reads the clock.
const TURNS_MAX: u32 = 32;

/// A step that runs now: see [`Control::running`](crate::Control::running).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The name of the task: that of its mailbox or method, or that given to
    /// [`spawn_named`](crate::Context::spawn_named).
    pub name: String,
    /// The time since the step began.
    pub time: Duration,
}

/// The long steps of the tasks with one name: see [`Control::long_steps`](crate::Control::long_steps).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongSteps {
    /// The name of the tasks: that of their mailbox or method, or that given to
    /// [`spawn_named`](crate::Context::spawn_named).
    pub name: String,
    /// The number of long steps.
    pub count: u64,
    /// The time of the longest one.
    pub longest: Duration,
}

pub(crate) struct Watch {
    /// The time 0 of the word.
    made: Instant,
    /// The label and 1 above the time of the begin (I1).
    running: AtomicU64,
    table: Mutex<Table>,
}

struct Table {
    /// By label.
    entries: Vec<LongSteps>,
    labels: HashMap<String, Label>,
}

impl Table {
    fn add(&mut self, name: &str) -> Label {
        let label = self.entries.len() as Label;
        self.entries.push(LongSteps { name: name.to_owned(), count: 0, longest: Duration::ZERO });
        self.labels.insert(name.to_owned(), label);
        label
    }
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let mut table = Table { entries: Vec::new(), labels: HashMap::new() };
        FIRST.iter().for_each(|name| _ = table.add(name));
        Watch { made: Instant::now(), running: AtomicU64::new(0), table: Mutex::new(table) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table, "the names of a dispatcher's tasks")
    }

    /// Returns the label of a name, and adds the name if it is new.
    pub(crate) fn label(&self, name: &str) -> Label {
        let mut table = self.table();
        match table.labels.get(name) {
            Some(label) => *label,
            None if table.entries.len() < LABELS_MAX => table.add(name),
            None => FURTHER,
        }
    }

    fn begin(&self, label: Label, at: Instant) {
        let time = at.saturating_duration_since(self.made).as_micros() as u64 & ((1 << TIME_BITS) - 1);
        // Relaxed: the word is all that a reader takes. The table has a lock, and the label was added before
        // (I2): a lock taken after this value was read comes after the lock of that addition.
        self.running.store((u64::from(label) + 1) << TIME_BITS | time, Ordering::Relaxed);
    }

    fn end(&self) {
        // Relaxed: as in `begin`.
        self.running.store(0, Ordering::Relaxed);
    }

    #[cold]
    fn note(&self, label: Label, time: Duration) {
        if let Some(entry) = self.table().entries.get_mut(usize::from(label)) {
            entry.count += 1;
            entry.longest = entry.longest.max(time);
        }
    }

    /// Returns the step that runs now.
    pub(crate) fn running(&self) -> Option<Running> {
        // Relaxed: see `begin`.
        let word = self.running.load(Ordering::Relaxed);
        let label = (word >> TIME_BITS).checked_sub(1)?;
        let begun = Duration::from_micros(word & ((1 << TIME_BITS) - 1));
        let time = self.made.elapsed().saturating_sub(begun);
        self.table().entries.get(label as usize).map(|entry| Running { name: entry.name.clone(), time })
    }

    /// Returns the names with long steps.
    pub(crate) fn long_steps(&self) -> Vec<LongSteps> {
        self.table().entries.iter().filter(|entry| entry.count > 0).cloned().collect()
    }
}

/// The dispatcher's side of the watchdog: runs steps, and measures them.
pub(crate) struct Steps {
    pub(crate) watch: StdArc<Watch>,
    pub(crate) limit: Duration,
    counts: Rc<Counts>,
    /// The end of the last step, while the dispatcher goes from step to step.
    time: Option<Instant>,
    /// Turns of the dispatcher without a step of a task, since the clock was read.
    without_task: u32,
}

impl Steps {
    pub(crate) fn new(watch: StdArc<Watch>, counts: Rc<Counts>) -> Steps {
        Steps { watch, limit: Duration::from_millis(100), counts, time: None, without_task: 0 }
    }

    /// Returns the time, or an earlier one: the end of the last step, if no pause came after it.
    pub(crate) fn now(&mut self) -> Instant {
        *self.time.get_or_insert_with(Instant::now)
    }

    /// Says that the dispatcher pauses: the next step reads the clock.
    pub(crate) fn pause(&mut self) {
        self.time = None;
        self.without_task = 0;
    }

    /// Says that a turn of the dispatcher ends. After [`TURNS_MAX`] turns without a step of a task, the next
    /// look at the time reads the clock. So timers are due in a flood of messages without tasks too.
    pub(crate) fn end_turn(&mut self) {
        self.without_task += 1;
        if self.without_task > TURNS_MAX {
            self.pause();
        }
    }

    /// Says that a message of this size was copied. The copy of a large one is no part of the next step.
    pub(crate) fn received(&mut self, bytes: usize) {
        const LARGE: usize = 64 << 10;
        if bytes >= LARGE {
            self.pause();
        }
    }

    /// Runs a step of a task, which does not panic.
    pub(crate) fn run<R>(&mut self, label: Label, step: impl FnOnce() -> R) -> R {
        let begun = self.now();
        self.watch.begin(label, begun);
        let result = step();
        self.watch.end();
        let ended = Instant::now();
        self.time = Some(ended);
        self.without_task = 0;
        let time = ended.saturating_duration_since(begun);
        if time > self.limit {
            count(&self.counts.long_steps);
            self.watch.note(label, time);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_their_number_is_bounded() {
        let watch = Watch::new();
        let orders = watch.label("orders");
        assert_eq!(watch.label("orders"), orders);
        assert_eq!(watch.label(FIRST[0]), IDLE);
        let labels: Vec<Label> = (0..2 * LABELS_MAX).map(|n| watch.label(&n.to_string())).collect();
        assert_eq!(watch.table().entries.len(), LABELS_MAX);
        assert_eq!(labels.last(), Some(&FURTHER));
        assert_eq!(watch.label("orders"), orders);
    }

    #[test]
    fn a_step_above_the_limit_is_noted_under_its_name() {
        let (watch, counts) = (StdArc::new(Watch::new()), Rc::new(Counts::default()));
        let mut steps = Steps::new(watch.clone(), counts.clone());
        let orders = watch.label("orders");
        // As long as the clock needs to go on.
        let wait = || {
            let begun = Instant::now();
            while begun.elapsed().is_zero() {}
        };
        steps.limit = Duration::MAX;
        steps.run(orders, wait);
        assert!(watch.long_steps().is_empty());
        steps.limit = Duration::ZERO;
        steps.run(orders, wait);
        steps.run(orders, wait);
        let [long] = &watch.long_steps()[..] else { panic!("one name has long steps") };
        assert_eq!((&*long.name, long.count, counts.long_steps.get()), ("orders", 2, 2));
        assert!(!long.longest.is_zero());
    }

    #[test]
    fn the_clock_is_read_after_each_step_and_after_each_pause() {
        let mut steps = Steps::new(StdArc::new(Watch::new()), Rc::default());
        let go_on = |at: Instant| while Instant::now() == at {};
        let begin = steps.now();
        go_on(begin);
        assert_eq!(steps.now(), begin);
        steps.run(LATE, || ());
        let end = steps.now();
        assert!(end > begin);
        go_on(end);
        steps.received(100);
        assert_eq!(steps.now(), end);
        steps.received(1 << 20);
        assert!(steps.now() > end);
    }

    #[test]
    fn the_clock_is_read_after_some_turns_without_a_step() {
        let mut steps = Steps::new(StdArc::new(Watch::new()), Rc::default());
        steps.run(LATE, || ());
        let end = steps.now();
        while Instant::now() == end {}
        (0..TURNS_MAX).for_each(|_| steps.end_turn());
        assert_eq!(steps.now(), end);
        steps.end_turn();
        assert!(steps.now() > end);
    }

    #[test]
    fn the_running_step_is_named_during_the_step_only() {
        let watch = StdArc::new(Watch::new());
        let mut steps = Steps::new(watch.clone(), Rc::default());
        assert_eq!(watch.running(), None);
        let seen = steps.run(LATE, || watch.running());
        assert_eq!(seen.map(|running| running.name).as_deref(), Some(FIRST[usize::from(LATE)]));
        assert_eq!(watch.running(), None);
    }
}
