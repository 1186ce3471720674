//! Faults of a map, and the checks that must detect them.

/// A fault of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// A lookup sometimes returns the previous value.
    StaleGet,
    /// An update reads and writes in two critical sections.
    TornUpdate,
    /// An update reads and writes in two critical sections, and writes even if the key was removed between.
    UpdateResurrects,
    /// A compute reads and writes in two critical sections.
    TornCompute,
    /// A try-insert that found no value inserts even if one is present by then.
    TwoWinners,
    /// A get-or-insert that found no value inserts even if one is present by then.
    TwoValues,
    /// An insert returns the value it found earlier instead of the replaced one.
    InsertTellsOther,
    /// Two removals may return the same value.
    RemovedTwice,
    /// A conditional removal tests and removes in two critical sections.
    RemoveIfTorn,
    /// A discard always reports that the key was present.
    DiscardLies,
    /// A key is lost whenever the map grows.
    LosesInGrowth,
    /// Half of the keys are absent while the map grows.
    HidesInGrowth,
    /// While the map grows, the lookup of an absent key finds a value.
    GhostsInGrowth,
    /// While the map grows, updates are lost.
    UpdatesLostInGrowth,
    /// Iteration misses an entry after a concurrent insertion or removal.
    IterationSkips,
    /// Iteration repeats an entry after a concurrent insertion or removal.
    IterationRepeats,
    /// Retention decides on a copy and removes by key.
    RetainByKey,
    /// Retention skips one entry.
    RetainMisses,
    /// Clearing leaves one entry.
    ClearLeaves,
    /// The length is read and written without atomicity.
    LenDrifts,
    /// Replaced values are leaked.
    Leaks,
    /// Replaced values are kept as long as the map.
    Keeps,
    /// Removed values are dropped while others can still find them.
    DropsEarly,
    /// A value is absent while a function reads it, and is lost if the function panics.
    PanicLoses,
    /// A set becomes visible to others only with the next operation of its thread.
    LateStores,
}

/// Each fault, with a check that must detect it.
pub(crate) const FAULTS: &[(Fault, &str)] = &[
    (Fault::StaleGet, "random::histories"),
    (Fault::StaleGet, "random::histories_of_wide_values"),
    (Fault::TornUpdate, "keys::counted_updates"),
    (Fault::TornUpdate, "random::histories"),
    (Fault::UpdateResurrects, "random::histories"),
    (Fault::TornCompute, "keys::moved_sums"),
    (Fault::TornCompute, "random::histories"),
    (Fault::TornCompute, "keys::counted_updates"),
    (Fault::TwoWinners, "keys::one_winner"),
    (Fault::TwoWinners, "random::histories"),
    (Fault::TwoValues, "keys::one_value_for_all"),
    (Fault::InsertTellsOther, "keys::overwritten_once"),
    (Fault::RemovedTwice, "keys::balanced"),
    (Fault::RemovedTwice, "keys::one_winner"),
    (Fault::RemoveIfTorn, "keys::moved_sums"),
    (Fault::RemoveIfTorn, "random::histories"),
    (Fault::DiscardLies, "acts::sequential"),
    (Fault::LosesInGrowth, "keys::own_ranges"),
    (Fault::LosesInGrowth, "acts::sequential"),
    (Fault::HidesInGrowth, "growth::readers"),
    (Fault::GhostsInGrowth, "growth::readers"),
    (Fault::UpdatesLostInGrowth, "growth::updates"),
    (Fault::IterationSkips, "whole::iteration"),
    (Fault::IterationRepeats, "whole::iteration"),
    (Fault::RetainByKey, "whole::retain_keeps_changed_values"),
    (Fault::RetainMisses, "whole::retain_own"),
    (Fault::ClearLeaves, "whole::clear"),
    (Fault::LenDrifts, "whole::len_at_rest"),
    (Fault::Leaks, "drops::counted"),
    (Fault::Keeps, "drops::counted"),
    (Fault::DropsEarly, "drops::no_reads_after_drop"),
    (Fault::PanicLoses, "panics::change_nothing"),
    (Fault::LateStores, "whole::each_sees_the_other"),
    (Fault::LateStores, "random::histories"),
];
