//! What may be wrong with a map, and which checks must notice.

/// What is wrong with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A look sometimes shows what lay there before.
    StaleGet,
    /// An update reads under the lock, and writes under it again.
    TornUpdate,
    /// The same, and it writes even if the key went meanwhile.
    UpdateResurrects,
    /// A computation looks and writes under two locks.
    TornCompute,
    /// Whoever found nothing inserts, even if there is something now.
    TwoWinners,
    /// The same, where a value is made.
    TwoValues,
    /// The value that was found is returned, not the one that was replaced.
    InsertTellsOther,
    /// Two may get the value that one takes out.
    RemovedTwice,
    /// The value is asked about under one lock and removed under another.
    RemoveIfTorn,
    /// Taking out always says that something was there.
    DiscardLies,
    /// A key is lost whenever the map grows.
    LosesInGrowth,
    /// Half of the keys are away while the map grows.
    HidesInGrowth,
    /// While the map grows, a look for what is not there finds something.
    GhostsInGrowth,
    /// While the map grows, updates go to what is thrown away.
    UpdatesLostInGrowth,
    /// Iteration misses an entry if something was put or removed meanwhile.
    IterationSkips,
    /// Iteration shows an entry twice if something was put or removed meanwhile.
    IterationRepeats,
    /// What goes is decided on a copy, and removed by its key.
    RetainByKey,
    /// One entry is not asked about.
    RetainMisses,
    /// Emptying leaves one entry.
    ClearLeaves,
    /// The count is read and written by itself.
    LenDrifts,
    /// What is replaced is forgotten.
    Leaks,
    /// What is replaced is kept as long as the map.
    Keeps,
    /// What is taken out is dropped while others can still find it.
    DropsEarly,
    /// A value is away while a function looks at it, and does not come back if that panics.
    PanicLoses,
    /// What is set is seen by others only when its thread does something else.
    LateStores,
}

/// Each fault, and a check that must notice it.
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
    (Fault::RetainByKey, "whole::retain_spares_what_was_changed"),
    (Fault::RetainMisses, "whole::retain_own"),
    (Fault::ClearLeaves, "whole::clear"),
    (Fault::LenDrifts, "whole::len_at_rest"),
    (Fault::Leaks, "drops::counted"),
    (Fault::Keeps, "drops::counted"),
    (Fault::DropsEarly, "drops::nobody_reads_what_was_dropped"),
    (Fault::PanicLoses, "panics::change_nothing"),
    (Fault::LateStores, "whole::each_sees_the_other"),
    (Fault::LateStores, "random::histories"),
];
