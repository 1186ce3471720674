//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Sections = "sections",
    Readings = "sections of readers",
    Waits = "waits without a limit",
    Tries = "tries",
    Busy = "tries in vain",
    TimedOut = "waits timed out",
    Cancelled = "waits cancelled",
    Prioritized = "waits by priority",
    Refused = "priorities refused",
    Meddled = "attributes changed",
    Stubborn = "stubborn holders",
    Nested = "locks within locks",
    Panics = "panics inside",
    Deaths = "deaths after a wait",
    Requests = "requests",
    Stops = "stops and restarts",
    StopsRefused = "stops refused",
    Shutdowns = "shutdowns",
    ShutOut = "refused after a shutdown",
    TurnedAway = "turned away",
}
