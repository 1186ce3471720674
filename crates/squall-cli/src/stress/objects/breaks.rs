//! Ways to break the torture itself: a torture that has never failed proves nothing.
//!
//! `SQUALL_STRESS_BREAK=NAME` makes the torture do what a broken library would do to it. Each such run must end with a
//! violation; `tests/stress_objects.rs` sees to it.

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

const NAMES: [(&str, Break); 11] = [
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

/// What the environment asks for.
///
/// # Errors
/// It asks for something unknown; the text lists what is known.
pub(super) fn asked() -> Result<Option<Break>, String> {
    let Some(name) = std::env::var_os("SQUALL_STRESS_BREAK") else { return Ok(None) };
    let known = NAMES.iter().find(|(known, _)| name == *known);
    known.map(|(_, how)| Some(*how)).ok_or_else(|| {
        let known = NAMES.map(|(name, _)| name).join(", ");
        format!("SQUALL_STRESS_BREAK is none of: {known}")
    })
}
