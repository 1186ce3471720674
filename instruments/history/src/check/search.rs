//! The search of one window.

use std::collections::HashSet;

use crate::history::Call;
use crate::spec::Spec;

/// What is asked of a call in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It must be done, and answered as it was.
    Returned,
    /// It may be done, whatever the answer.
    Pending,
    /// It may be done in a later window only.
    NotYet,
    /// It is not looked at.
    Left,
}

/// A call, and what is asked of it.
pub(super) type Marked<'h, S> = (&'h Call<<S as Spec>::Op, <S as Spec>::Ret>, Mark);

/// In what a window may begin or end: which of the calls that never returned are done, and the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Start<T> {
    pub(super) late: u64,
    pub(super) state: T,
}

/// What a search found.
pub(super) enum Found<T> {
    /// An order for each of these ends.
    Ends(Vec<Start<T>>),
    /// No order; and the longest beginning of one.
    None(Longest<T>),
    /// Neither, in the steps that were allowed.
    TooHard,
}

/// The longest beginning of an order: the calls in it, and the state that it leads to.
pub(super) struct Longest<T> {
    pub(super) calls: Vec<usize>,
    pub(super) done: u64,
    pub(super) state: T,
}

/// A call with what the search must know of it.
struct Item<'h, O, R> {
    op: &'h O,
    /// None if any answer is right.
    ret: Option<&'h R>,
    /// Its bit among the calls of its kind.
    bit: u64,
    /// The bits of the returned calls that were before it.
    before: u64,
    /// Where it stood in what the window was made of.
    place: usize,
}

/// Calls to be put into an order.
pub(super) struct Window<'s, 'h, S: Spec> {
    spec: &'s S,
    returned: Vec<Item<'h, S::Op, S::Ret>>,
    pending: Vec<Item<'h, S::Op, S::Ret>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Node<T> {
    done: u64,
    start: Start<T>,
}

/// How a node was reached: from which one, by which calls.
struct Way {
    from: usize,
    by: Vec<usize>,
}

impl<'s, 'h, S: Spec> Window<'s, 'h, S> {
    /// Of these calls. Those that never returned have their bits in the order in which they stand, whatever their mark, so that the
    /// bits mean the same in each window; those that did, and whose answer is forgiven, come after them.
    pub(super) fn new(spec: &'s S, calls: &[Marked<'h, S>]) -> Self {
        let bit = |index: usize| 1_u64 << index;
        let must: Vec<_> = calls.iter().filter(|(_, mark)| *mark == Mark::Returned).collect();
        let before = |call: &Call<S::Op, S::Ret>| {
            let earlier = must.iter().enumerate().filter(|(_, (other, _))| other.is_before(call));
            earlier.fold(0, |mask, (index, _)| mask | bit(index))
        };
        let mut window = Window { spec, returned: Vec::new(), pending: Vec::new() };
        let (mut late, mut forgiven) = (0, calls.iter().filter(|(call, _)| call.ret.is_none()).count());
        for (place, (call, mark)) in calls.iter().enumerate() {
            let item = |ret, bit| Item { op: &call.op, ret, bit, before: before(call), place };
            let count = if call.ret.is_none() { &mut late } else { &mut forgiven };
            match mark {
                Mark::Returned => {
                    window.returned.push(item(call.ret.as_ref(), bit(window.returned.len())));
                }
                Mark::Pending => window.pending.push(item(None, bit(*count))),
                Mark::NotYet | Mark::Left => {}
            }
            if call.ret.is_none() || *mark == Mark::Pending {
                *count += 1;
            }
        }
        window
    }

    /// All ends of all orders of the calls, begun in any of these states.
    pub(super) fn search(&self, starts: &[Start<S::State>], steps_max: u64) -> Found<S::State> {
        let all = self.returned.iter().fold(0, |mask, item| mask | item.bit);
        let mut ways: Vec<Way> = Vec::new();
        let mut known = HashSet::new();
        let mut ends = HashSet::new();
        let mut longest: Option<(Node<S::State>, usize)> = None;
        let mut open: Vec<(Node<S::State>, usize)> = Vec::new();
        let root = usize::MAX;
        for start in starts {
            open.push((Node { done: 0, start: start.clone() }, ways.len()));
            ways.push(Way { from: root, by: Vec::new() });
        }
        let mut steps = 0;
        while let Some((mut node, way)) = open.pop() {
            self.settle(&mut node, &mut ways[way].by);
            if !known.insert(node.clone()) {
                continue;
            }
            if steps == steps_max {
                return Found::TooHard;
            }
            steps += 1;
            if longest.as_ref().is_none_or(|(best, _)| best.done.count_ones() < node.done.count_ones()) {
                longest = Some((node.clone(), way));
            }
            if node.done == all {
                ends.insert(node.start);
                continue;
            }
            self.branch(&node, |next, place| {
                open.push((next, ways.len()));
                ways.push(Way { from: way, by: vec![place] });
            });
        }
        if !ends.is_empty() {
            return Found::Ends(ends.into_iter().collect());
        }
        let (node, mut way) = longest.expect("there is a start");
        let mut calls = Vec::new();
        while way != root {
            calls.extend(ways[way].by.iter().rev());
            way = ways[way].from;
        }
        calls.reverse();
        Found::None(Longest { calls, done: node.done, state: node.start.state })
    }

    /// Does what fits and only reads (`check/I3`).
    fn settle(&self, node: &mut Node<S::State>, by: &mut Vec<usize>) {
        loop {
            let before = node.done;
            for item in &self.returned {
                if !self.may_be_next(item, node.done) || !self.spec.only_reads(item.op) {
                    continue;
                }
                let (_, ret) = self.spec.apply(&node.start.state, item.op);
                if item.ret == Some(&ret) {
                    node.done |= item.bit;
                    by.push(item.place);
                }
            }
            if node.done == before {
                return;
            }
        }
    }

    /// All that may be next and changes something.
    fn branch(&self, node: &Node<S::State>, mut next: impl FnMut(Node<S::State>, usize)) {
        for item in self.returned.iter().filter(|item| self.may_be_next(item, node.done)) {
            let (state, ret) = self.spec.apply(&node.start.state, item.op);
            if item.ret == Some(&ret) {
                let start = Start { late: node.start.late, state };
                next(Node { done: node.done | item.bit, start }, item.place);
            }
        }
        for item in &self.pending {
            if node.start.late & item.bit != 0 || item.before & !node.done != 0 {
                continue;
            }
            let (state, _) = self.spec.apply(&node.start.state, item.op);
            // One that changes nothing here need not be done here.
            if state != node.start.state {
                let start = Start { late: node.start.late | item.bit, state };
                next(Node { done: node.done, start }, item.place);
            }
        }
    }

    fn may_be_next(&self, item: &Item<'h, S::Op, S::Ret>, done: u64) -> bool {
        done & item.bit == 0 && item.before & !done == 0
    }

    /// What the specification says to each call that may be next after this, and is not right: its place, and the answer.
    pub(super) fn refuses(&self, longest: &Longest<S::State>) -> Vec<(usize, S::Ret)> {
        let next = self.returned.iter().filter(|item| self.may_be_next(item, longest.done));
        next.map(|item| (item.place, self.spec.apply(&longest.state, item.op).1)).collect()
    }
}
