//! Turns the observations of turns into rows.

use squall::Vp;
use squall::adapt::settings;

use super::play::Load;
use super::script::{self, Length, Script};
use super::turn::{Took, Turn};
use crate::case::Role;
use crate::harness::{SubjectResult, median, quantile};
use crate::ours_adapt::{Kind, Shape};

/// A subject's row, from one figure per round.
pub(super) fn subject(kind: Kind, ns: Vec<f64>) -> SubjectResult {
    SubjectResult { name: kind.name(), role: Role::Ours, ns, metrics: Vec::new() }
}

/// All turns of one kind: by round, then by script.
pub(super) type Turns = Vec<Vec<Turn>>;

/// Observations at one variant and thread count.
pub(super) struct Seen<'a> {
    pub(super) scripts: &'a [Script],
    /// The turns of the kept rounds, by kind in the order of [`Kind::ALL`].
    pub(super) turns: [Vec<&'a Vec<Turn>>; 3],
    /// The VPs of the first and of the last thread, if each stays on its own.
    pub(super) homes: Option<(Vp, Vp)>,
    pub(super) threads: usize,
}

/// The denominators of an adaptive object's ratios: in each part, the better fixed object of each round.
struct Ratios {
    part: &'static str,
    median: f64,
}

impl Seen<'_> {
    fn rounds(&self) -> usize {
        self.turns[0].len()
    }

    /// Each part of each script.
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.scripts
            .iter()
            .enumerate()
            .flat_map(|(script, parts)| (0..parts.len()).map(move |part| (script, part)))
    }

    fn took(&self, kind: Kind, round: usize, (script, part): (usize, usize)) -> Took {
        self.turns[kind as usize][round][script].parts[part]
    }

    /// Nanoseconds per call in each round: the mean over the parts.
    fn mean(&self, kind: Kind, of: impl Fn(Took) -> f64 + Copy) -> Vec<f64> {
        let count = self.parts().count() as f64;
        let round = |round| self.parts().map(|part| of(self.took(kind, round, part))).sum::<f64>() / count;
        (0..self.rounds()).map(round).collect()
    }

    /// The mean over the steady parts alone, as in a subject's row.
    pub(super) fn steady(&self, kind: Kind) -> Vec<f64> {
        self.mean(kind, |took| took.steady)
    }

    fn ratios(&self) -> Vec<Ratios> {
        let of_part = |(script, part): (usize, usize)| {
            let of_kind = |kind, round| self.took(kind, round, (script, part)).steady;
            Ratios { part: self.scripts[script][part].name, median: over_best(self.rounds(), of_kind) }
        };
        self.parts().map(of_part).collect()
    }

    /// The rows `squall-adaptive/…`.
    pub(super) fn ratio_rows(&self) -> Vec<(String, f64, &'static str)> {
        let mine = self.steady(Kind::Adaptive);
        let name = |other: &str| format!("{}/{other}", Kind::Adaptive.name());
        let against =
            |kind: Kind| (name(kind.name()), crate::harness::paired_ratio(&mine, &self.steady(kind)), "");
        let worst = self.ratios().iter().map(|ratio| ratio.median).fold(0.0, f64::max);
        vec![(name(BEST_FIXED), worst, ""), against(Kind::Shared), against(Kind::Distributed)]
    }

    pub(super) fn metrics(&self) -> Vec<(String, f64)> {
        let mut metrics = Vec::new();
        let mut one = |name: &str, value: f64| metrics.push((name.to_owned(), value));
        let adaptive = || self.turns[Kind::Adaptive as usize].iter().flat_map(|scripts| scripts.iter());
        let bytes: Vec<f64> = adaptive().map(|turn| turn.bytes as f64).collect();
        one("bytes", median(&bytes));
        one("policy_ms_per_s", median(&adaptive().map(|turn| turn.policy_ms_per_s).collect::<Vec<f64>>()));
        let decisions = self.decisions();
        one("decision_ms", decisions.ms(0.99));
        one("decision_ms_p50", decisions.ms(0.5));
        one("decisions", decisions.ms.len() as f64);
        one("decisions_missed", decisions.missed as f64);
        one("swaps", adaptive().map(|turn| turn.swaps.len()).max().unwrap_or(0) as f64);
        one(
            "swaps_allowed",
            self.scripts.iter().map(|script| script::swaps_allowed(script)).max().unwrap_or(0) as f64,
        );
        let folds: Vec<_> = adaptive().filter_map(|turn| turn.folded).collect();
        if !folds.is_empty() {
            one(
                "fold_ms",
                median(&folds.iter().map(|(took, _)| took.as_secs_f64() * 1e3).collect::<Vec<_>>()),
            );
            one("bytes_folded", median(&folds.iter().map(|(_, bytes)| *bytes as f64).collect::<Vec<_>>()));
        }
        if self.parts().count() > 1 {
            for Ratios { part, median } in self.ratios() {
                one(&format!("ratio_{part}"), median);
            }
            for (script, part) in self.parts() {
                let name = self.scripts[script][part].name;
                for kind in Kind::ALL {
                    let ns: Vec<f64> = (0..self.rounds())
                        .map(|round| self.took(kind, round, (script, part)).steady)
                        .collect();
                    one(&format!("{}_ns_{name}", kind.name()), median(&ns));
                }
            }
        }
        let whole = |kind| self.mean(kind, |took| took.whole);
        let whole = [whole(Kind::Shared), whole(Kind::Distributed), whole(Kind::Adaptive)];
        one("ratio_whole", over_best(self.rounds(), |kind, round| whole[kind as usize][round]));
        metrics
    }

    /// The changes of load that called for a decision, with its time.
    fn decisions(&self) -> Decisions {
        let mut seen = Decisions::default();
        for (script, part) in self.parts().filter(|(script, _)| !script::is_wave(self.scripts[*script])) {
            for scripts in &self.turns[Kind::Adaptive as usize] {
                let turn = &scripts[script];
                let at = turn.shape_at(part, self.homes.map(|(first, _)| first));
                match turn.swaps_in(part).next() {
                    Some((ms, _)) => seen.ms.push(ms),
                    None if self.is_called_for(script, part, at) => seen.missed += 1,
                    None => {}
                }
            }
        }
        seen
    }

    /// Whether another form is so much faster in a part that a policy must change `shape`.
    fn is_called_for(&self, script: usize, part: usize, shape: Shape) -> bool {
        let ns = |kind, part| {
            let rounds = (0..self.rounds()).map(|round| self.took(kind, round, (script, part)).steady);
            median(&rounds.collect::<Vec<f64>>())
        };
        let (shared, distributed) = (ns(Kind::Shared, part), ns(Kind::Distributed, part));
        let load = |part: usize| match self.scripts[script][part].length {
            Length::Steady(load) | Length::Phase(load) => Some(load),
            Length::Alternating(..) => None,
        };
        // Fixed objects are at home with the first thread. An object biased anew serves its adder as those
        // serve that thread.
        let alone = load(part).and_then(|load| load.alone(self.threads));
        let own = match (shape, alone, self.homes) {
            (Shape::Distributed, ..) => distributed,
            (Shape::Shared(place), Some(adder), Some((first, last))) => {
                let home = if adder == 0 { first } else { last };
                let as_of = if place == Some(home) { Load::OneAdds } else { Load::LastAdds };
                let same = (0..self.scripts[script].len()).find(|part| load(*part) == Some(as_of));
                same.map_or(shared, |part| ns(Kind::Shared, part))
            }
            (Shape::Shared(_), ..) => shared,
        };
        own > shared.min(distributed) * settings::ALL.get(&settings::MARGIN)
    }
}

/// Name of the denominator in ratios to the better fixed object.
pub(super) const BEST_FIXED: &str = "best-fixed";

/// The median over the rounds of the ratio to the better fixed object of that round.
pub(super) fn over_best(rounds: usize, ns: impl Fn(Kind, usize) -> f64) -> f64 {
    let ratio = |round| ns(Kind::Adaptive, round) / ns(Kind::Shared, round).min(ns(Kind::Distributed, round));
    median(&(0..rounds).map(ratio).collect::<Vec<f64>>())
}

#[derive(Default)]
struct Decisions {
    ms: Vec<f64>,
    missed: usize,
}

impl Decisions {
    /// A quantile in milliseconds; zero if no decision was called for.
    fn ms(&self, q: f64) -> f64 {
        if self.ms.is_empty() { 0.0 } else { quantile(&self.ms, q) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_fixed_form_is_chosen_per_round() {
        let ns = |kind, round: usize| match kind {
            Kind::Shared => [1.0, 4.0, 2.0][round],
            Kind::Distributed => [2.0, 2.0, 4.0][round],
            Kind::Adaptive => 2.0,
        };
        assert_eq!(over_best(3, ns), 1.0);
        assert_eq!(over_best(1, ns), 2.0);
    }
}
