//! Search of one window.

use std::collections::HashSet;

use crate::history::Call;
use crate::spec::Spec;

/// Role of a call in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The call must be done with its recorded answer.
    Returned,
    /// The call may be done, with any answer.
    Pending,
    /// The call may be done in a later window only.
    NotYet,
    /// The call is ignored.
    Left,
}

/// A call with its role.
pub(super) type Marked<'h, S> = (&'h Call<<S as Spec>::Op, <S as Spec>::Ret>, Mark);

/// A state in which a window may begin or end: the set of unreturned calls that are done, and the object's
/// state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Start<T> {
    pub(super) late: u64,
    pub(super) state: T,
}

/// Result of a search.
pub(super) enum Found<T> {
    /// An order exists for each of these ends.
    Ends(Vec<Start<T>>),
    /// No order exists. Contains the longest partial order.
    None(Longest<T>),
    /// Undecided within the step limit.
    TooHard,
}

/// The longest partial order: its calls, and the state after them.
pub(super) struct Longest<T> {
    pub(super) calls: Vec<usize>,
    pub(super) done: u64,
    pub(super) state: T,
}

/// A call with the facts that the search needs.
struct Item<'h, O, R> {
    op: &'h O,
    /// Required answer; absent if any answer is right.
    ret: Option<&'h R>,
    /// Bit of the call in the set of its kind.
    bit: u64,
    /// Bits of the returned calls before it.
    before: u64,
    /// Index in the list that the window was built from.
    place: usize,
}

/// Calls to be ordered.
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

/// Path to a node: the previous node, and the calls between.
struct Way {
    from: usize,
    by: Vec<usize>,
}

impl<'s, 'h, S: Spec> Window<'s, 'h, S> {
    /// Builds a window. Calls that never returned get their bits in list order, independent of their role, so
    /// that a bit means the same call in each window. Returned calls with a forgiven answer come after them.
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

    /// Finds the ends of all orders of the calls, begun in any of these states.
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
        let (node, mut way) = longest.expect("the search has no start");
        let mut calls = Vec::new();
        while way != root {
            calls.extend(ways[way].by.iter().rev());
            way = ways[way].from;
        }
        calls.reverse();
        Found::None(Longest { calls, done: node.done, state: node.start.state })
    }

    /// Does all calls that fit and only read (`check/I3`).
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

    /// Continues with each call that may be next and changes the state.
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
            // A call that changes nothing here need not be done here.
            if state != node.start.state {
                let start = Start { late: node.start.late | item.bit, state };
                next(Node { done: node.done, start }, item.place);
            }
        }
    }

    fn may_be_next(&self, item: &Item<'h, S::Op, S::Ret>, done: u64) -> bool {
        done & item.bit == 0 && item.before & !done == 0
    }

    /// For each call that may be next after this partial order but does not fit: its index, and the answer it
    /// should have had.
    pub(super) fn expected_next(&self, longest: &Longest<S::State>) -> Vec<(usize, S::Ret)> {
        let next = self.returned.iter().filter(|item| self.may_be_next(item, longest.done));
        next.map(|item| (item.place, self.spec.apply(&longest.state, item.op).1)).collect()
    }
}
