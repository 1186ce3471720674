//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// An addition is sometimes said to have been made, and was not.
    LoseAdd = "lose-add",
    /// An addition is sometimes made twice.
    DoubleAdd = "double-add",
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark = "early-mark",
    /// A swap is left out of the log of decisions.
    Unlogged = "unlogged",
    /// A decision loses its reason.
    Unexplained = "unexplained",
    /// An object is judged as frozen, and is not.
    DeafFreeze = "deaf-freeze",
    /// The cool-down of an object is other than it is judged to be.
    ShortCooldown = "short-cooldown",
    /// So is the program's budget of swaps.
    OverBudget = "over-budget",
    /// A setting that is right is sometimes judged as one that is wrong.
    WrongSetting = "wrong-setting",
    /// A payload of an asynchronous call is sometimes kept for ever.
    LeakPayload = "leak-payload",
    /// A call of an object of some kind is sometimes said to have been made, and was not.
    LoseCall = "lose-call",
    /// An object is left in a grown form at the end.
    KeepGrown = "keep-grown",
    /// Somebody keeps asking for looks when all is over.
    Insomnia = "insomnia",
}
