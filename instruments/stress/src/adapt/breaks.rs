//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress_adapt.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// An addition is sometimes said to have been made, and was not.
    LoseAdd,
    /// An addition is sometimes made twice.
    DoubleAdd,
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark,
    /// A swap is left out of the log of decisions.
    Unlogged,
    /// A decision loses its reason.
    Unexplained,
    /// An object is judged as frozen, and is not.
    DeafFreeze,
    /// The cool-down of an object is other than it is judged to be.
    ShortCooldown,
    /// So is the program's budget of swaps.
    OverBudget,
    /// A setting that is right is sometimes judged as one that is wrong.
    WrongSetting,
    /// A payload of an asynchronous call is sometimes kept for ever.
    LeakPayload,
    /// A call of an object of some kind is sometimes said to have been made, and was not.
    LoseCall,
    /// An object is left in a grown form at the end.
    KeepGrown,
    /// Somebody keeps asking for looks when all is over.
    Insomnia,
}

pub(super) const WAYS: [(&str, Break); 13] = [
    ("lose-add", Break::LoseAdd),
    ("double-add", Break::DoubleAdd),
    ("early-mark", Break::EarlyMark),
    ("unlogged", Break::Unlogged),
    ("unexplained", Break::Unexplained),
    ("deaf-freeze", Break::DeafFreeze),
    ("short-cooldown", Break::ShortCooldown),
    ("over-budget", Break::OverBudget),
    ("wrong-setting", Break::WrongSetting),
    ("leak-payload", Break::LeakPayload),
    ("lose-call", Break::LoseCall),
    ("keep-grown", Break::KeepGrown),
    ("insomnia", Break::Insomnia),
];
