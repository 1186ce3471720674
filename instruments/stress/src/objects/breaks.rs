//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A drop of a representative is sometimes told twice.
    DoubleDrop = "double-drop",
    /// A drop of a representative is sometimes not told.
    LoseDrop = "lose-drop",
    /// An owner sometimes forgets an object instead of destroying it.
    LoseObject = "lose-object",
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark = "early-mark",
    /// A caller sometimes expects another object than the one it calls.
    WrongObject = "wrong-object",
    /// A caller sometimes expects another interface than the one it calls.
    WrongType = "wrong-type",
    /// A representative sometimes dies while a call is inside it.
    EarlyDeath = "early-death",
    /// A call is sometimes still inside when the representative is dropped.
    StayInside = "stay-inside",
    /// A root sometimes goes before its representatives.
    RootFirst = "root-first",
    /// An addition is sometimes acknowledged, and not made.
    LoseAdd = "lose-add",
    /// A call on a live object is sometimes said to have been refused.
    RefuseLive = "refuse-live",
}
