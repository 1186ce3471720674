//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A call is sometimes counted twice.
    DoubleCall = "double-call",
    /// A call is sometimes reported and not made.
    LoseCall = "lose-call",
    /// Two calls are sometimes made in the opposite order.
    Disorder = "disorder",
    /// A swap sometimes loses a part of the state.
    LoseState = "lose-state",
    /// A value is sometimes leaked.
    LeakValue = "leak-value",
    /// A drop is sometimes recorded twice.
    DoubleDrop = "double-drop",
    /// An object is marked as destroyed before `destroy` is called.
    EarlyMark = "early-mark",
    /// A planned failure of a swap is sometimes checked as an unplanned one.
    WrongFailure = "wrong-failure",
    /// A successful swap is sometimes checked as one that had to fail.
    WrongSuccess = "wrong-success",
    /// A call sometimes forgets its arbiter.
    MissArbiter = "miss-arbiter",
    /// A call on a live object is sometimes reported as refused.
    RefuseLive = "refuse-live",
}
