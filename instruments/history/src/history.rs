//! Histories: calls, their answers, and the order known between them.
//!
//! - I1. Each call is listed after all calls that were before it.
//! - I2. "Before" is transitive: calls known to the predecessors of a call are before that call. This is
//!   sound, because happens-before is transitive. It is needed, because a recorder that loads one word after
//!   another may miss such calls.
//! - I3. A call that never returned is before no call, not even before later calls of its thread, since it
//!   may still take effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::Log;

/// One call of a history.
#[derive(Clone, Debug)]
pub struct Call<O, R> {
    /// Number of the calling thread.
    pub thread: usize,
    /// Index of the call in its thread, from zero.
    pub index: u32,
    /// Operation.
    pub op: O,
    /// Answer; `None` if the call never returned.
    pub ret: Option<R>,
    /// Number of calls of each thread that were over when this call began.
    seen: Arc<[u32]>,
}

impl<O, R> Call<O, R> {
    /// Whether this call had returned when the other began.
    pub fn is_before(&self, other: &Call<O, R>) -> bool {
        self.ret.is_some() && self.index < other.seen[self.thread]
    }
}

/// Event of a handwritten history: calls and returns of numbered threads.
#[derive(Clone, Debug)]
pub enum Event<O, R> {
    /// The thread begins a call. If its previous call has not returned, it never will.
    Ask(usize, O),
    /// The thread's call returns.
    Answer(usize, R),
}

/// Calls of several threads.
#[derive(Clone, Debug)]
pub struct History<O, R> {
    calls: Vec<Call<O, R>>,
    threads: usize,
}

/// A call before it has its place: operation, answer, and number of calls seen per thread.
pub(crate) type Raw<O, R> = (O, Option<R>, Vec<u32>);

impl<O, R> History<O, R> {
    /// Builds the history from recorded logs.
    ///
    /// # Panics
    ///
    /// If these are not all logs of one call of [`logs`](crate::logs).
    pub fn from_logs(logs: Vec<Log<O, R>>) -> History<O, R> {
        let threads = logs.len();
        let mut raw: Vec<Vec<Raw<O, R>>> = (0..threads).map(|_| Vec::new()).collect();
        let ended = logs.first().map(|log| Arc::clone(&log.ended));
        for log in logs {
            let same = ended.as_ref().is_some_and(|ended| Arc::ptr_eq(ended, &log.ended));
            assert!(same && log.ended.len() == threads, "these are not the logs of one run");
            let seen = log.seen.chunks(threads).map(<[u32]>::to_vec);
            raw[log.thread] =
                log.lines.into_iter().zip(seen).map(|(line, seen)| (line.op, line.ret, seen)).collect();
        }
        History::assemble(raw)
    }

    /// Builds a history from events in order.
    ///
    /// # Panics
    ///
    /// If a thread returns without an open call.
    pub fn from_events(events: impl IntoIterator<Item = Event<O, R>>) -> History<O, R> {
        let events: Vec<_> = events.into_iter().collect();
        let thread = |event: &Event<O, R>| match *event {
            Event::Ask(thread, _) | Event::Answer(thread, _) => thread,
        };
        let threads = events.iter().map(thread).max().map_or(0, |last| last + 1);
        let mut raw: Vec<Vec<Raw<O, R>>> = (0..threads).map(|_| Vec::new()).collect();
        let mut ended = vec![0; threads];
        for event in events {
            match event {
                Event::Ask(thread, op) => {
                    let mut seen = ended.clone();
                    seen[thread] = raw[thread].len() as u32;
                    raw[thread].push((op, None, seen));
                }
                Event::Answer(thread, ret) => {
                    let open = raw[thread].last_mut().filter(|(_, ret, _)| ret.is_none());
                    open.expect("a thread returned from a call that it had not begun").1 = Some(ret);
                    ended[thread] = raw[thread].len() as u32;
                }
            }
        }
        History::assemble(raw)
    }

    /// Orders the calls (I1) and closes the sets of seen calls (I2).
    pub(crate) fn assemble(raw: Vec<Vec<Raw<O, R>>>) -> History<O, R> {
        let threads = raw.len();
        let mut closed: Vec<Vec<Arc<[u32]>>> = vec![Vec::new(); threads];
        let mut waiting: Vec<_> = raw.into_iter().map(|calls| calls.into_iter().peekable()).collect();
        let mut calls = Vec::new();
        loop {
            let before = calls.len();
            for thread in 0..threads {
                let ready = |closed: &[Vec<Arc<[u32]>>], seen: &[u32]| {
                    seen.iter().zip(closed).all(|(seen, closed)| *seen as usize <= closed.len())
                };
                while let Some((op, ret, mut seen)) =
                    waiting[thread].next_if(|(_, _, seen)| ready(&closed, seen))
                {
                    let index = closed[thread].len() as u32;
                    seen[thread] = index;
                    for other in 0..threads {
                        if let Some(last) = seen[other].checked_sub(1) {
                            join(&mut seen, &closed[other][last as usize]);
                        }
                    }
                    let seen: Arc<[u32]> = seen.into();
                    closed[thread].push(Arc::clone(&seen));
                    calls.push(Call { thread, index, op, ret, seen });
                }
            }
            if calls.len() == before {
                break;
            }
        }
        assert!(
            waiting.iter_mut().all(|rest| rest.peek().is_none()),
            "a call has seen the end of a later one"
        );
        History { calls, threads }
    }

    /// The calls, each after all calls that were before it.
    pub fn calls(&self) -> &[Call<O, R>] {
        &self.calls
    }

    /// Splits the history by key.
    ///
    /// If the known order is that of a time line, a history of independent keys is linearizable if and only
    /// if each key's history is; Herlihy and Wing call this locality. A recorder may know less. Then one
    /// direction holds: if the history of a key is wrong, the object is wrong.
    pub fn split<K: Ord>(&self, key: impl Fn(&O) -> K) -> BTreeMap<K, History<O, R>>
    where
        O: Clone,
        R: Clone,
    {
        let mut keys: BTreeMap<K, History<O, R>> = BTreeMap::new();
        for call in &self.calls {
            let of_key = keys
                .entry(key(&call.op))
                .or_insert_with(|| History { calls: Vec::new(), threads: self.threads });
            of_key.calls.push(call.clone());
        }
        keys
    }

    /// Converts the operations of all calls.
    pub fn map<P>(self, op: impl Fn(&O) -> P) -> History<P, R> {
        let calls = self.calls.into_iter().map(|call| {
            let Call { thread, index, op: asked, ret, seen } = call;
            Call { thread, index, op: op(&asked), ret, seen }
        });
        History { calls: calls.collect(), threads: self.threads }
    }

    /// Divides the returned calls into windows. Every call before a boundary was over when every call after
    /// it began.
    pub(crate) fn windows(&self) -> Vec<Vec<&Call<O, R>>> {
        let returned: Vec<_> = self.calls.iter().filter(|call| call.ret.is_some()).collect();
        // At each index: the calls seen by all calls from that index on.
        let mut seen_by_rest = vec![vec![u32::MAX; self.threads]; returned.len() + 1];
        for (at, call) in returned.iter().enumerate().rev() {
            let (here, after) = seen_by_rest.split_at_mut(at + 1);
            for thread in 0..self.threads {
                here[at][thread] = after[0][thread].min(call.seen[thread]);
            }
        }
        let mut ended = vec![0; self.threads];
        let mut windows = Vec::new();
        let mut window = Vec::new();
        for (at, call) in returned.iter().enumerate() {
            window.push(*call);
            ended[call.thread] = call.index + 1;
            if ended.iter().zip(&seen_by_rest[at + 1]).all(|(ended, seen)| ended <= seen) {
                windows.push(std::mem::take(&mut window));
            }
        }
        windows
    }
}

fn join(seen: &mut [u32], more: &[u32]) {
    for (seen, more) in seen.iter_mut().zip(more) {
        *seen = (*seen).max(*more);
    }
}

#[cfg(test)]
mod tests {
    use super::Event::{Answer, Ask};
    use super::*;

    fn order(history: &History<char, ()>) -> Vec<(char, char)> {
        let calls = history.calls();
        let mut pairs: Vec<_> = calls
            .iter()
            .flat_map(|a| calls.iter().filter(|b| a.is_before(b)).map(|b| (a.op, b.op)))
            .collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn overlapping_calls_have_no_order() {
        let history = History::from_events([
            Ask(0, 'a'),
            Ask(1, 'b'),
            Answer(0, ()),
            Ask(0, 'c'),
            Answer(1, ()),
            Answer(0, ()),
        ]);
        assert_eq!(order(&history), [('a', 'c')]);
    }

    #[test]
    fn an_unreturned_call_is_before_no_other() {
        let history = History::from_events([
            Ask(0, 'a'),
            Ask(0, 'b'),
            Answer(0, ()),
            Ask(1, 'c'),
            Answer(1, ()),
            Ask(0, 'd'),
        ]);
        assert_eq!(order(&history), [('b', 'c'), ('b', 'd'), ('c', 'd')]);
    }

    #[test]
    fn seeing_is_transitive() {
        // Thread 2 reads the word of thread 0. Then threads 0 and 1 each make a call, and thread 2 reads the
        // word of thread 1.
        let raw = vec![
            vec![('a', Some(()), vec![0, 0, 0])],
            vec![('b', Some(()), vec![1, 0, 0])],
            vec![('c', Some(()), vec![0, 1, 0])],
        ];
        assert_eq!(order(&History::assemble(raw)), [('a', 'b'), ('a', 'c'), ('b', 'c')]);
    }

    #[test]
    fn windows_end_where_no_call_is_open() {
        let history = History::from_events([
            Ask(0, 'a'),
            Ask(1, 'b'),
            Answer(0, ()),
            Answer(1, ()),
            Ask(1, 'c'),
            Answer(1, ()),
            Ask(2, 'x'),
            Ask(0, 'd'),
            Ask(1, 'e'),
            Answer(1, ()),
            Answer(0, ()),
        ]);
        let windows: Vec<Vec<char>> =
            history.windows().iter().map(|window| window.iter().map(|call| call.op).collect()).collect();
        assert_eq!(windows.len(), 3);
        assert_eq!(windows[1], ['c']);
        let sorted = |at: usize| windows[at].iter().copied().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(sorted(0), ['a', 'b'].into());
        assert_eq!(sorted(2), ['d', 'e'].into());
    }

    #[test]
    fn a_recorded_run_orders_its_calls() {
        let mut logs = crate::logs(2, 4);
        let mut second = logs.pop().expect("two logs");
        let mut first = logs.pop().expect("two logs");
        first.call('a', |_| ());
        second.begin('b');
        first.call('c', |_| ());
        second.end(());
        first.call('d', |_| ());
        let history = History::from_logs(vec![first, second]);
        assert_eq!(order(&history), [('a', 'b'), ('a', 'c'), ('a', 'd'), ('b', 'd'), ('c', 'd')]);
    }

    #[test]
    #[should_panic(expected = "not the logs of one run")]
    fn a_missing_log_panics() {
        let mut logs = crate::logs::<(), ()>(2, 0);
        logs.pop();
        History::from_logs(logs);
    }
}
