//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress_objects.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A drop of a representative is sometimes told twice.
    DoubleDrop,
    /// A drop of a representative is sometimes not told.
    LoseDrop,
    /// An owner sometimes forgets an object instead of destroying it.
    LoseObject,
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark,
    /// A caller sometimes expects another object than the one it calls.
    WrongObject,
    /// A caller sometimes expects another interface than the one it calls.
    WrongType,
    /// A representative sometimes dies while a call is inside it.
    EarlyDeath,
    /// A call is sometimes still inside when the representative is dropped.
    StayInside,
    /// A root sometimes goes before its representatives.
    RootFirst,
    /// An addition is sometimes acknowledged, and not made.
    LoseAdd,
    /// A call on a live object is sometimes said to have been refused.
    RefuseLive,
}

pub(super) const WAYS: [(&str, Break); 11] = [
    ("double-drop", Break::DoubleDrop),
    ("lose-drop", Break::LoseDrop),
    ("lose-object", Break::LoseObject),
    ("early-mark", Break::EarlyMark),
    ("wrong-object", Break::WrongObject),
    ("wrong-type", Break::WrongType),
    ("early-death", Break::EarlyDeath),
    ("stay-inside", Break::StayInside),
    ("root-first", Break::RootFirst),
    ("lose-add", Break::LoseAdd),
    ("refuse-live", Break::RefuseLive),
];
