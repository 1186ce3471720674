//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Sections = "sections",
    Readings = "reader sections",
    Waits = "waits without a limit",
    Tries = "tries",
    Busy = "tries that failed",
    TimedOut = "waits timed out",
    Cancelled = "waits cancelled",
    Prioritized = "waits with a priority",
    Refused = "priorities refused",
    Meddled = "attributes changed",
    Stubborn = "holders of long sections",
    Nested = "nested locks",
    Panics = "panics in sections",
    Deaths = "threads ended after wait",
    Requests = "requests",
    Stops = "stops and restarts",
    StopsRefused = "stops refused",
    Shutdowns = "shutdowns",
    ShutOut = "refused after a shutdown",
    TurnedAway = "visits refused",
}
