//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A call is sometimes counted twice.
    DoubleCall = "double-call",
    /// A call is sometimes said to have been made, and was not.
    LoseCall = "lose-call",
    /// Two calls are sometimes made in the other order.
    Disorder = "disorder",
    /// A swap sometimes loses a part of the state.
    LoseState = "lose-state",
    /// A value is sometimes kept for ever.
    LeakValue = "leak-value",
    /// A drop is sometimes told twice.
    DoubleDrop = "double-drop",
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark = "early-mark",
    /// A swap that was to fail is sometimes judged as one that was not.
    WrongFailure = "wrong-failure",
    /// A swap that has succeeded is sometimes judged as one that had to fail.
    WrongSuccess = "wrong-success",
    /// A call sometimes forgets that it met an arbiter.
    MissArbiter = "miss-arbiter",
    /// A call on a live object is sometimes said to have been refused.
    RefuseLive = "refuse-live",
}
