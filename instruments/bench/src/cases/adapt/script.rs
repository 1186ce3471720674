//! The script of a variant: its parts, and their steps.

use std::time::Duration;

use super::play::{Load, Step};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Time allowed to the policy after a change of load: with a processor per thread, and with fewer.
const MAY_TAKE: (Duration, Duration) = (ms(100), ms(200));
/// The steady time of a load, in a full and in a quick run.
const STEADY: (Duration, Duration) = (ms(300), ms(150));
/// The steady time of a load that is followed by another load, in a full and in a quick run. Together with
/// the time allowed before it, the steady time exceeds a cool-down. So a policy has no reason to delay a
/// change.
const PHASE: (Duration, Duration) = (ms(400), ms(300));
/// Time for which an alternating load runs unobserved, and then the observed time.
const SETTLE: Duration = ms(400);
const WAVE: (Duration, Duration) = (ms(1600), ms(800));

/// A stretch with one figure.
#[derive(Debug)]
pub(super) struct Part {
    /// Name, for metrics.
    pub(super) name: &'static str,
    pub(super) length: Length,
}

/// Loads of a part and their length.
#[derive(Debug)]
pub(super) enum Length {
    /// One load throughout.
    Steady(Load),
    /// One load of several.
    Phase(Load),
    /// Two alternating loads, each for the given time.
    Alternating([Load; 2], Duration),
}

/// The loads of one object, from its creation to its end.
pub(super) type Script = &'static [Part];

const fn phase(name: &'static str, load: Load) -> Part {
    Part { name, length: Length::Phase(load) }
}

const fn steady(load: Load) -> [Part; 1] {
    [Part { name: "steady", length: Length::Steady(load) }]
}

const WAVES: [Load; 2] = [Load::AllAdd, Load::MostlyTotal];

static ONE_ADDS: [Part; 1] = steady(Load::OneAdds);
static ALL_ADD: [Part; 1] = steady(Load::AllAdd);
static MOSTLY_TOTAL: [Part; 1] = steady(Load::MostlyTotal);
static PHASES: [Part; 6] = [
    phase("one-adds", Load::OneAdds),
    phase("all-add", Load::AllAdd),
    phase("mostly-total", Load::MostlyTotal),
    phase("last-adds", Load::LastAdds),
    phase("all-add-again", Load::AllAdd),
    phase("one-adds-again", Load::OneAdds),
];
static WAVE_20: [Part; 1] = [Part { name: "20ms", length: Length::Alternating(WAVES, ms(20)) }];
static WAVE_100: [Part; 1] = [Part { name: "100ms", length: Length::Alternating(WAVES, ms(100)) }];

/// The scripts of a variant: each has objects of its own.
pub(super) fn of(variant: &str) -> Vec<Script> {
    match variant {
        "one-adds" => vec![&ONE_ADDS],
        "all-add" | "busy-4" | "busy-16" => vec![&ALL_ADD],
        "mostly-total" => vec![&MOSTLY_TOTAL],
        "phases" => vec![&PHASES],
        _ => vec![&WAVE_20, &WAVE_100],
    }
}

/// Whether the script is one load from beginning to end.
pub(super) fn is_steady(script: Script) -> bool {
    matches!(script, [Part { length: Length::Steady(_), .. }])
}

/// Whether its load alternates faster than a policy should follow.
pub(super) fn is_wave(script: Script) -> bool {
    script.iter().any(|part| matches!(part.length, Length::Alternating(..)))
}

/// Returns the number of swaps that hysteresis allows: one for each part of the script. The engine follows
/// the change of load at the start of a part. It does not follow the later changes of an alternating load.
pub(super) fn swaps_allowed(script: Script) -> usize {
    script.len()
}

/// The loads of a script in order, for instruments that count operations without a clock.
pub(super) fn loads(script: Script) -> Vec<Load> {
    let loads = script.iter().flat_map(|part| match &part.length {
        Length::Steady(load) | Length::Phase(load) => vec![*load],
        Length::Alternating(loads, _) => loads.to_vec(),
    });
    loads.collect()
}

/// The steps of a script. In each part the unsteady steps come first.
pub(super) fn steps(script: Script, fit: bool, quick: bool) -> Vec<Step> {
    let of_run = |(full, short): (Duration, Duration)| if quick { short } else { full };
    let may_take = if fit { MAY_TAKE.0 } else { MAY_TAKE.1 };
    let mut steps = Vec::new();
    for (part, Part { length, .. }) in script.iter().enumerate() {
        let mut step = |load, steady, length| steps.push(Step { load, part, steady, length });
        match length {
            Length::Steady(load) | Length::Phase(load) => {
                let steady = if matches!(length, Length::Phase(_)) { PHASE } else { STEADY };
                step(*load, false, may_take);
                step(*load, true, of_run(steady));
            }
            Length::Alternating(loads, half) => {
                for (whole, steady) in [(SETTLE, false), (of_run(WAVE), true)] {
                    for _ in 0..whole.as_millis() / (half.as_millis() * 2) {
                        loads.iter().for_each(|load| step(*load, steady, *half));
                    }
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_begins_with_a_change_and_ends_steadily() {
        for variant in ["one-adds", "all-add", "mostly-total", "phases", "square-wave"] {
            for script in of(variant) {
                let steps = steps(script, true, true);
                for part in 0..script.len() {
                    let of_part: Vec<bool> =
                        steps.iter().filter(|s| s.part == part).map(|s| s.steady).collect();
                    assert!(!of_part[0] && of_part[of_part.len() - 1], "{variant} {part}");
                    assert!(of_part.is_sorted(), "{variant} {part}");
                }
            }
        }
    }

    #[test]
    fn a_wave_alternates_for_its_length() {
        let steps = steps(&WAVE_20, true, true);
        assert!(steps.windows(2).all(|pair| pair[0].load != pair[1].load));
        assert_eq!(steps.iter().map(|step| step.length).sum::<Duration>(), SETTLE + WAVE.1);
    }

    #[test]
    fn phases_outlast_the_cool_down() {
        let cooldown = squall::adapt::settings::ALL.get(&squall::adapt::settings::COOLDOWN);
        assert!(MAY_TAKE.0 + PHASE.1 > cooldown);
    }
}
