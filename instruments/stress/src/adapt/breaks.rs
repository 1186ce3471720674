//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// An addition is sometimes reported and not made.
    LoseAdd = "lose-add",
    /// An addition is sometimes made twice.
    DoubleAdd = "double-add",
    /// An object is marked as destroyed before `destroy` is called.
    EarlyMark = "early-mark",
    /// A swap is left out of the log of decisions.
    Unlogged = "unlogged",
    /// A decision loses its reason.
    Unexplained = "unexplained",
    /// An object is checked as frozen without being frozen.
    DeafFreeze = "deaf-freeze",
    /// An object has a shorter cool-down than the one it is checked against.
    ShortCooldown = "short-cooldown",
    /// The program has a larger budget of swaps than the one it is checked against.
    OverBudget = "over-budget",
    /// A valid setting is sometimes checked as an invalid one.
    WrongSetting = "wrong-setting",
    /// A payload of an asynchronous call is sometimes leaked.
    LeakPayload = "leak-payload",
    /// A call of an object of some kind is sometimes reported and not made.
    LoseCall = "lose-call",
    /// An object stays in a grown form at the end.
    KeepGrown = "keep-grown",
    /// A thread keeps asking for decisions after the run.
    Insomnia = "insomnia",
}
