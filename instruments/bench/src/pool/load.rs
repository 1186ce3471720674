//! The four loads of the thesis (fos, §6.2).

use super::Size;

/// A load: the number of pages that each client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// All clients take equally many pages.
    Uniform,
    /// From 20 to 180 % of an even share, growing from client to client.
    Triangle,
    /// 20 and 180 % by turns, so that an odd number of clients does not exceed the pool.
    Bimodal,
    /// The bimodal load, and again with the two kinds of clients exchanged.
    TwoPhase,
}

impl Load {
    /// All four, in the order of the thesis.
    pub const ALL: [Load; 4] = [Load::Uniform, Load::Triangle, Load::Bimodal, Load::TwoPhase];

    /// Name for rows and titles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Uniform => "uniform",
            Load::Triangle => "triangle",
            Load::Bimodal => "bimodal",
            Load::TwoPhase => "two-phase",
        }
    }

    /// The number of pages that each client takes, in each phase. All pages are given back after a phase.
    #[must_use]
    pub fn phases(self, size: Size, servers: usize, clients: usize) -> Vec<Vec<u64>> {
        let left_uniform = size.left_uniform() * servers as u64;
        self.counts(size.pages(servers), left_uniform, size.left(), clients)
    }

    /// Like [`phases`](Load::phases), for any number of pages. `left_uniform` is the number of pages per
    /// client that the uniform load leaves, and `left` that of the others.
    #[must_use]
    pub fn counts(self, pages: u64, left_uniform: u64, left: u64, clients: usize) -> Vec<Vec<u64>> {
        let share = pages as f64 / clients as f64;
        let of_share = |part: f64| (share * part - left as f64).max(0.0) as u64;
        let bimodal = |heavy: usize| {
            // With an odd number of clients, the second phase has one heavy client too many.
            let heavies = (0..clients).filter(|client| client % 2 == heavy).count().max(1);
            let lights = clients - heavies;
            let most = (clients as f64 - 0.2 * lights as f64) / heavies as f64;
            let part = |client: usize| if client % 2 == heavy { most.min(1.8) } else { 0.2 };
            (0..clients).map(|client| of_share(part(client))).collect::<Vec<u64>>()
        };
        match self {
            Load::Uniform => {
                let each = (share as u64).saturating_sub(left_uniform);
                vec![vec![each; clients]]
            }
            Load::Triangle if clients == 1 => vec![vec![of_share(1.0)]],
            Load::Triangle => {
                let part = |client: usize| 0.2 + 1.6 * client as f64 / (clients - 1) as f64;
                vec![(0..clients).map(|client| of_share(part(client))).collect()]
            }
            Load::Bimodal => vec![bimodal(1)],
            Load::TwoPhase => vec![bimodal(1), bimodal(0)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_load_drains_the_pool() {
        for (size, load) in Size::ALL.into_iter().flat_map(|size| Load::ALL.map(|load| (size, load))) {
            for (servers, clients) in [1, 2, 4, 8, 16].into_iter().flat_map(|s| (1..=24).map(move |c| (s, c)))
            {
                for phase in load.phases(size, servers, clients) {
                    let taken: u64 = phase.iter().sum();
                    assert!(taken < size.pages(servers), "{size:?} {load:?} {servers} {clients}");
                    assert!(taken > 0 && phase.len() == clients, "{size:?} {load:?} {servers} {clients}");
                }
            }
        }
        assert_eq!(Load::Uniform.phases(Size::Thesis, 2, 4), [[32_768 - 2048; 4]]);
        let triangle = &Load::Triangle.phases(Size::Thesis, 1, 5)[0];
        assert_eq!((triangle[0], triangle[4]), (2365, 23_336));
        let two = Load::TwoPhase.phases(Size::Thesis, 1, 2);
        assert_eq!((two[0][0], two[1][1]), (two[0][0], two[0][0]));
    }
}
