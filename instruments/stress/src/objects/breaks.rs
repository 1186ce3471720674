//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A drop of a representative is sometimes recorded twice.
    DoubleDrop = "double-drop",
    /// A drop of a representative is sometimes not recorded.
    LoseDrop = "lose-drop",
    /// An owner sometimes leaks an object instead of destroying it.
    LoseObject = "lose-object",
    /// An object is marked as destroyed before `destroy` is called.
    EarlyMark = "early-mark",
    /// A caller sometimes expects another object than the one it calls.
    WrongObject = "wrong-object",
    /// A caller sometimes expects another interface than the one it calls.
    WrongType = "wrong-type",
    /// A representative is sometimes marked as dead while a call is inside it.
    EarlyDeath = "early-death",
    /// A call sometimes does not record that it left a representative.
    StayInside = "stay-inside",
    /// A root is sometimes recorded as dropped before a representative.
    RootFirst = "root-first",
    /// An addition is sometimes acknowledged and not made.
    LoseAdd = "lose-add",
    /// A call on a live object is sometimes reported as refused.
    RefuseLive = "refuse-live",
}
