//! Subproblems of the search, with the bound and the branching of Little, Murty, Sweeney and Karel.
//!
//! Problem: the best-first search needs a lower bound of all tours that keep to some decisions.
//! Idea: subtract from each row of the weights its minimum, and then from each column. Each tour loses these
//! sums, so their total is a bound. Branch at the zero with the highest penalty: the least weight that a tour
//! without this arc adds. One child includes the arc, the other excludes it.
//!
//! - I1. Each row and each column of `matrix` has a zero. All entries are exact.
//! - I2. Each tour that keeps to the decisions weighs `bound` plus its entries of `matrix`. A tour that
//!   breaks one has an entry [`NEVER`], or an arc outside the rows and columns.
//! - I3. The included arcs are paths. The arc from a path's end to its start is `NEVER`, except in the last
//!   two rows, where the two paths join to a tour.
//! - I4. The tours of a node are those of its children, each in one of them.
//!
//! Cost: a branch takes time in proportion to the entries, and allocates both children.
//! Source: J. Little, K. Murty, D. Sweeney, C. Karel, 1963; KTK (AD-01).

use std::mem;

use crate::{Instance, Tour};

/// An arc that no tour of the node has. Weights are at most half of it.
const NEVER: u32 = u32::MAX;
/// The end of a path.
const END: u16 = u16::MAX;

/// A subproblem: all tours that include some arcs and exclude others.
///
/// ```
/// use squall_tsp::{Instance, Node};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let root = Node::root(&instance).unwrap();
/// assert!(root.bound() <= 3 && root.open() == 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    bound: u64,
    /// Cities without an arc from them.
    rows: Vec<u16>,
    /// Cities without an arc to them.
    columns: Vec<u16>,
    matrix: Vec<u32>,
    /// The included arc from each city.
    next: Vec<u16>,
    /// The included arc to each city.
    previous: Vec<u16>,
}

/// Result of a branch.
#[derive(Debug)]
pub enum Branch {
    /// The node had one tour left.
    Tour(Tour),
    /// At most two subproblems with all tours of the node: with an arc, and without it. A child without tours
    /// is left out.
    Children(Vec<Node>),
}

/// A zero to branch at.
struct Pivot {
    row: usize,
    column: usize,
    penalty: u64,
}

impl Node {
    /// Makes the subproblem of all tours. A complete matrix always has one.
    #[must_use]
    pub fn root(instance: &Instance) -> Option<Node> {
        let cities = instance.cities();
        let entry = |from, to| if from == to { NEVER } else { instance.weight(from, to) };
        let all: Vec<u16> = (0..cities as u16).collect();
        let node = Node {
            bound: 0,
            rows: all.clone(),
            columns: all,
            matrix: (0..cities).flat_map(|from| (0..cities).map(move |to| entry(from, to))).collect(),
            next: vec![END; cities],
            previous: vec![END; cities],
        };
        node.reduced()
    }

    /// The lower bound of all its tours.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The number of undecided arcs of a tour.
    #[must_use]
    pub fn open(&self) -> usize {
        self.rows.len()
    }

    /// The memory of a node with all arcs undecided, in bytes.
    #[must_use]
    pub fn bytes_max(cities: usize) -> usize {
        mem::size_of::<Node>() + cities * cities * mem::size_of::<u32>() + 4 * cities * mem::size_of::<u16>()
    }

    /// Splits the subproblem.
    ///
    /// # Panics
    /// If `instance` is not the one of [`Node::root`].
    #[must_use]
    pub fn branch(self, instance: &Instance) -> Branch {
        assert_eq!(self.next.len(), instance.cities(), "a node belongs to one instance");
        if self.open() == 2 {
            return match self.last_tour(instance) {
                Some(tour) => Branch::Tour(tour),
                None => Branch::Children(Vec::new()),
            };
        }
        let pivot = self.pivot();
        let with = self.including(&pivot);
        Branch::Children([with, self.excluding(&pivot)].into_iter().flatten().collect())
    }

    fn entry(&self, row: usize, column: usize) -> u32 {
        self.matrix[row * self.columns.len() + column]
    }

    /// The zero with the highest penalty; the first one of several.
    fn pivot(&self) -> Pivot {
        let size = self.open();
        let least = |entries: &mut dyn Iterator<Item = u32>| {
            entries.fold((NEVER, NEVER), |(least, second), entry| {
                if entry < least { (entry, least) } else { (least, second.min(entry)) }
            })
        };
        let row = |row| least(&mut (0..size).map(|column| self.entry(row, column))).1;
        let column = |column| least(&mut (0..size).map(|row| self.entry(row, column))).1;
        let rows: Vec<u32> = (0..size).map(row).collect();
        let columns: Vec<u32> = (0..size).map(column).collect();
        let mut best: Option<Pivot> = None;
        for (row, &in_row) in rows.iter().enumerate() {
            for (column, &in_column) in columns.iter().enumerate() {
                if self.entry(row, column) != 0 {
                    continue;
                }
                // The second least entry of a row with a zero is the least one of the others.
                let penalty = match (in_row, in_column) {
                    (NEVER, _) | (_, NEVER) => u64::MAX,
                    (one, other) => u64::from(one) + u64::from(other),
                };
                if best.as_ref().is_none_or(|best| penalty > best.penalty) {
                    best = Some(Pivot { row, column, penalty });
                }
            }
        }
        best.expect("each row has a zero (I1)")
    }

    /// The child without the arc, unless all tours have it.
    fn excluding(mut self, pivot: &Pivot) -> Option<Node> {
        let (size, Pivot { row, column, penalty }) = (self.open(), pivot);
        if *penalty == u64::MAX {
            return None;
        }
        self.matrix[row * size + column] = NEVER;
        let in_row = |it: usize| row * size + it;
        let in_column = |it: usize| it * size + column;
        let taken = lower(&mut self.matrix, size, in_row)? + lower(&mut self.matrix, size, in_column)?;
        debug_assert_eq!(taken, *penalty);
        self.bound = self.bound.checked_add(taken).expect("a bound is at most the sum of all weights");
        Some(self)
    }

    /// The child with the arc, unless it has no tour.
    fn including(&self, pivot: &Pivot) -> Option<Node> {
        let size = self.open();
        let (from, to) = (self.rows[pivot.row], self.columns[pivot.column]);
        let without = |all: &[u16], at: usize| -> Vec<u16> { [&all[..at], &all[at + 1..]].concat() };
        let mut matrix = Vec::with_capacity((size - 1) * (size - 1));
        for row in (0..size).filter(|row| *row != pivot.row) {
            let row = &self.matrix[row * size..][..size];
            matrix.extend_from_slice(&row[..pivot.column]);
            matrix.extend_from_slice(&row[pivot.column + 1..]);
        }
        let mut child = Node {
            bound: self.bound,
            rows: without(&self.rows, pivot.row),
            columns: without(&self.columns, pivot.column),
            matrix,
            next: self.next.clone(),
            previous: self.previous.clone(),
        };
        child.next[usize::from(from)] = to;
        child.previous[usize::from(to)] = from;
        let (start, end) = (follow(&child.previous, from), follow(&child.next, to));
        let row = child.rows.iter().position(|city| *city == end).expect("a path's end has no arc");
        let column = child.columns.iter().position(|city| *city == start).expect("a path's start has no arc");
        child.matrix[row * (size - 1) + column] = NEVER;
        child.reduced()
    }

    /// Subtracts the minimum of each row and then of each column, and adds them to the bound. Fails if one of
    /// them has no arc.
    fn reduced(mut self) -> Option<Node> {
        let size = self.open();
        let mut taken = 0;
        for row in 0..size {
            taken += lower(&mut self.matrix, size, |column| row * size + column)?;
        }
        for column in 0..size {
            taken += lower(&mut self.matrix, size, |row| row * size + column)?;
        }
        self.bound = self.bound.checked_add(taken).expect("a bound is at most the sum of all weights");
        Some(self)
    }

    /// The tour of a node with two undecided arcs, if it has one.
    fn last_tour(&self, instance: &Instance) -> Option<Tour> {
        [[0, 1], [1, 0]].into_iter().find_map(|columns| {
            let mut next = self.next.clone();
            for (row, column) in columns.into_iter().enumerate() {
                if self.entry(row, column) == NEVER {
                    return None;
                }
                next[usize::from(self.rows[row])] = self.columns[column];
            }
            let order = std::iter::successors(Some(0), |city: &usize| Some(usize::from(next[*city])));
            Tour::new(instance, order.take(instance.cities()).collect()).ok()
        })
    }
}

/// The last city of a path.
fn follow(arcs: &[u16], from: u16) -> u16 {
    let next = |city: &u16| Some(arcs[usize::from(*city)]).filter(|next| *next != END);
    std::iter::successors(Some(from), next).last().unwrap_or(from)
}

/// Subtracts the least entry of a row or a column from its entries, and returns it.
fn lower(matrix: &mut [u32], size: usize, at: impl Fn(usize) -> usize) -> Option<u64> {
    let least = (0..size).map(|it| matrix[at(it)]).min().filter(|least| *least != NEVER)?;
    if least > 0 {
        for entry in 0..size {
            let entry = &mut matrix[at(entry)];
            if *entry != NEVER {
                *entry -= least;
            }
        }
    }
    Some(u64::from(least))
}

#[cfg(test)]
mod tests {
    use squall_history::rng::Rng;

    use super::*;
    use crate::exact::held_karp;
    use crate::random::random;

    /// The lengths of the tours below a node, and the checks of each node on the way.
    fn tours_below(node: Node, instance: &Instance, lengths: &mut Vec<u64>) {
        let size = node.open();
        for at in 0..size {
            assert!((0..size).any(|other| node.entry(at, other) == 0), "row {at} has no zero");
            assert!((0..size).any(|other| node.entry(other, at) == 0), "column {at} has no zero");
        }
        let (bound, before) = (node.bound(), lengths.len());
        match node.branch(instance) {
            Branch::Tour(tour) => {
                assert_eq!(tour.length(), bound, "the last bound is the length");
                lengths.push(tour.length());
            }
            Branch::Children(children) => {
                children.into_iter().for_each(|child| tours_below(child, instance, lengths));
            }
        }
        assert!(lengths[before..].iter().all(|length| *length >= bound), "a tour is below the bound {bound}");
    }

    #[test]
    fn each_tour_is_in_one_leaf_and_above_all_bounds() {
        for seed in 0..20 {
            for cities in 2..=6 {
                let instance = random(&mut Rng::new(seed, cities as u64), cities, seed % 2 == 0, 50);
                let mut lengths = Vec::new();
                tours_below(Node::root(&instance).expect("it has tours"), &instance, &mut lengths);
                // Each order of the other cities is a tour from the first one.
                assert_eq!(lengths.len(), (1..cities).product::<usize>(), "seed {seed}, {cities} cities");
                let optimum = held_karp(&instance).expect("few cities").length();
                assert_eq!(lengths.into_iter().min(), Some(optimum), "seed {seed}, {cities} cities");
            }
        }
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        for cities in [2, 3, 8] {
            let weights = vec![crate::WEIGHT_MAX; cities * cities];
            let instance = Instance::new("heavy", weights).expect("permitted weights");
            let bound = Node::root(&instance).expect("it has tours").bound();
            assert_eq!(bound, cities as u64 * u64::from(crate::WEIGHT_MAX));
        }
    }

    #[test]
    fn the_bound_of_the_original_article_is_found() {
        // The example of the article: six cities, a first bound of 48, an optimum of 63.
        const X: u32 = 0;
        let weights = vec![
            X, 27, 43, 16, 30, 26, 7, X, 16, 1, 30, 25, 20, 13, X, 35, 5, 0, 21, 16, 25, X, 18, 18, 12, 46,
            27, 48, X, 5, 23, 5, 5, 9, 5, X,
        ];
        let instance = Instance::new("article", weights).expect("six cities");
        assert_eq!(Node::root(&instance).expect("it has tours").bound(), 48);
        assert_eq!(held_karp(&instance).expect("few cities").length(), 63);
    }
}
