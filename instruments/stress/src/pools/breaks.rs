//! The planned breaks of the stress `pools`.

use super::group::Disturbance;
use crate::skeleton::breaks::breaks;

breaks! {
    /// A member adds an element a second time.
    AddTwice = "add-twice",
    /// A member that leaves a pool loses an element.
    LoseInLeave = "lose-in-leave",
    /// A member that was taken for dead loses an element when it is back.
    LoseInStop = "lose-in-stop",
    /// A living member loses an element while another one dies.
    LoseBesideDeath = "lose-beside-death",
    /// A get with an element in the pool says that the pool is empty.
    FalseEmpty = "false-empty",
    /// An add that took effect is told as refused.
    TakeRefused = "take-refused",
    /// A get that was given up takes an element with it.
    KeepGivenUp = "keep-given-up",
    /// The last member of a pool tells a wrong number of lost elements.
    MiscountEnd = "miscount-end",
    /// A process remains.
    LeakProcess = "leak-process",
    /// A descriptor remains.
    LeakDescriptor = "leak-descriptor",
}

impl Break {
    /// Returns whether a round with this disturbance shows the break. A run with the break begins with one.
    pub(super) fn is_shown_by(self, disturbance: Disturbance) -> bool {
        match self {
            Break::LoseInLeave | Break::MiscountEnd => disturbance == Disturbance::End,
            #[cfg(feature = "net")]
            Break::LoseInStop if disturbance == Disturbance::CutAtRest => true,
            Break::LoseInStop => disturbance == Disturbance::StopAtRest,
            Break::LoseBesideDeath => disturbance == Disturbance::KillAtRest,
            _ => true,
        }
    }
}
