//! Strongly connected components of a graph, by Tarjan's algorithm.
//!
//! Source: R. Tarjan, "Depth-first search and linear graph algorithms", 1972.

use std::collections::{BTreeMap, BTreeSet};

/// The strongly connected components of the graph with these edges, each sorted.
pub(super) fn components<'a>(edges: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Vec<&'a str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        next.entry(from).or_default().push(to);
        next.entry(to).or_default();
    }
    let mut search = Search::new(&next);
    for node in next.keys() {
        if !search.number.contains_key(node) {
            search.visit(node);
        }
    }
    search.found
}

/// The size of the largest component after removing `edge`; 1 if the rest has no circle.
pub(super) fn largest_without(edges: &[(&str, &str)], edge: (&str, &str)) -> usize {
    let left = edges.iter().copied().filter(|other| *other != edge);
    components(left).iter().map(Vec::len).max().unwrap_or(1)
}

/// A light set of edges that breaks every circle when it is removed: the edges that point backwards in a good
/// order of the nodes. The set need not be the lightest.
///
/// Source: P. Eades, X. Lin and W. Smyth, "A fast and effective heuristic for the feedback arc set problem",
/// 1993. Difference: single nodes are moved afterwards while that helps.
pub(super) fn feedback<'a>(edges: &[(&'a str, &'a str, usize)]) -> Vec<(&'a str, &'a str)> {
    let names = eades_order(edges);
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let numbered: Vec<(usize, usize, usize)> =
        edges.iter().map(|(from, to, weight)| (index[from], index[to], *weight)).collect();
    let order = improve((0..names.len()).collect(), &numbered);
    let places = places(&order);
    let backward = edges.iter().filter(|(from, to, _)| places[index[from]] > places[index[to]]);
    backward.map(|(from, to, _)| (*from, *to)).collect()
}

/// Moves single nodes of an order while that reduces the weight that points backwards.
fn improve(mut order: Vec<usize>, edges: &[(usize, usize, usize)]) -> Vec<usize> {
    let backward = |order: &[usize]| -> usize {
        let places = places(order);
        edges.iter().filter(|(from, to, _)| places[*from] > places[*to]).map(|edge| edge.2).sum()
    };
    let mut least = backward(&order);
    let mut moved = true;
    while moved {
        moved = false;
        for node in 0..order.len() {
            for place in 0..order.len() {
                let mut other = order.clone();
                other.retain(|known| *known != node);
                other.insert(place, node);
                let weight = backward(&other);
                if weight < least {
                    (least, order, moved) = (weight, other, true);
                }
            }
        }
    }
    order
}

/// For each node, its place in the order.
fn places(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, node)| places[*node] = place);
    places
}

/// An order of the nodes in which little weight points backwards. Sinks go last. Among the others, the node
/// with the greatest surplus of outgoing over incoming weight comes next.
fn eades_order<'a>(edges: &[(&'a str, &'a str, usize)]) -> Vec<&'a str> {
    let mut nodes: BTreeSet<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !nodes.is_empty() {
        let inner = || edges.iter().filter(|(from, to, _)| nodes.contains(from) && nodes.contains(to));
        let weight_out =
            |node: &str| -> usize { inner().filter(|edge| edge.0 == node).map(|edge| edge.2).sum() };
        let weight_in =
            |node: &str| -> usize { inner().filter(|edge| edge.1 == node).map(|edge| edge.2).sum() };
        if let Some(sink) = nodes.iter().copied().find(|node| weight_out(node) == 0) {
            last.push(sink);
            nodes.remove(sink);
            continue;
        }
        let surplus = |node: &&str| weight_out(node) as i64 - weight_in(node) as i64;
        let Some(next) = nodes.iter().copied().max_by_key(surplus) else { break };
        first.push(next);
        nodes.remove(next);
    }
    first.extend(last.into_iter().rev());
    first
}

/// One depth-first search.
struct Search<'g, 'a> {
    next: &'g BTreeMap<&'a str, Vec<&'a str>>,
    /// The order in which nodes were reached.
    number: BTreeMap<&'a str, usize>,
    /// The lowest number that a node's subtree reaches on the stack.
    low: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<Vec<&'a str>>,
}

impl<'g, 'a> Search<'g, 'a> {
    fn new(next: &'g BTreeMap<&'a str, Vec<&'a str>>) -> Search<'g, 'a> {
        Search { next, number: BTreeMap::new(), low: BTreeMap::new(), stack: Vec::new(), found: Vec::new() }
    }

    fn visit(&mut self, node: &'a str) {
        let number = self.number.len();
        self.number.insert(node, number);
        self.low.insert(node, number);
        self.stack.push(node);
        for other in &self.next[node] {
            let reached = match self.number.get(other) {
                None => {
                    self.visit(other);
                    self.low[other]
                }
                Some(number) if self.stack.contains(other) => *number,
                Some(_) => continue,
            };
            let low = self.low[node].min(reached);
            self.low.insert(node, low);
        }
        if self.low[node] == number {
            let at =
                self.stack.iter().position(|other| *other == node).expect("a node stays until its component");
            let mut component = self.stack.split_off(at);
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{components, feedback, largest_without};

    fn circles<'a>(edges: &[(&'a str, &'a str)]) -> Vec<Vec<&'a str>> {
        components(edges.iter().copied()).into_iter().filter(|component| component.len() > 1).collect()
    }

    #[test]
    fn a_path_has_no_circle() {
        assert!(circles(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
        assert!(circles(&[]).is_empty());
    }

    #[test]
    fn circles_are_found_apart() {
        let edges = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "c"), ("e", "f")];
        let mut found = circles(&edges);
        found.sort();
        assert_eq!(found, [vec!["a", "b"], vec!["c", "d", "e"]]);
    }

    #[test]
    fn circles_that_share_a_node_are_one() {
        assert_eq!(circles(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]), [["a", "b", "c"]]);
    }

    #[test]
    fn an_edge_that_is_cut_leaves_a_smaller_circle() {
        let edges = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "a")];
        assert_eq!(largest_without(&edges, ("a", "b")), 1);
        assert_eq!(largest_without(&edges, ("c", "a")), 2);
    }

    #[test]
    fn the_edges_to_cut_are_the_light_ones() {
        let edges = [("a", "b", 9), ("b", "c", 9), ("c", "a", 1), ("c", "d", 5), ("d", "c", 2)];
        assert_eq!(feedback(&edges), [("c", "a"), ("d", "c")]);
        assert!(feedback(&edges[..2]).is_empty());
    }
}
