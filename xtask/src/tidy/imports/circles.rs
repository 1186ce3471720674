//! Strongly connected components of a graph, by Tarjan's algorithm.
//!
//! Source: R. Tarjan, "Depth-first search and linear graph algorithms", 1972.

use std::collections::BTreeMap;

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

/// The size of the largest component that is left when `edge` is removed; 1 if no circle is left.
pub(super) fn largest_without(edges: &[(&str, &str)], edge: (&str, &str)) -> usize {
    let left = edges.iter().copied().filter(|other| *other != edge);
    components(left).iter().map(Vec::len).max().unwrap_or(1)
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
    use super::{components, largest_without};

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
}
