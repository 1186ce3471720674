//! The pauses after failed attempts to connect to endpoints.
//!
//! Problem: each frame to an endpoint without a transport would start a thread, which fails.
//! Idea: after a failure, the next attempt begins at the end of a pause. Each failure doubles it.
//!
//! - I1. The pauses of at most [`RETRIES_MAX`] endpoints are kept. Further endpoints are tried at each frame.
//!
//! Cost: a lookup for each attempt.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most endpoints with a pause.
const RETRIES_MAX: usize = 1024;
/// The first pause of an endpoint.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

struct Retry {
    at: Instant,
    pause: Duration,
}

/// Endpoints that the latest attempt did not reach.
#[derive(Default)]
pub(super) struct Retries(HashMap<String, Retry>);

impl Retries {
    /// Returns whether an attempt may begin now.
    pub(super) fn may_begin(&self, endpoint: &str, now: Instant) -> bool {
        self.0.get(endpoint).is_none_or(|retry| retry.at <= now)
    }

    /// Notes that an attempt has failed, and begins a pause.
    pub(super) fn failed(&mut self, endpoint: &str, now: Instant) {
        if let Some(retry) = self.0.get_mut(endpoint) {
            retry.pause = (2 * retry.pause).min(PAUSE_MAX);
            retry.at = now + retry.pause;
            return;
        }
        if self.0.len() == RETRIES_MAX {
            self.0.retain(|_, retry| retry.at > now);
        }
        if self.0.len() < RETRIES_MAX {
            self.0.insert(endpoint.to_owned(), Retry { at: now + PAUSE_MIN, pause: PAUSE_MIN });
        }
    }

    /// Notes that the endpoint has a link, and ends its pause.
    pub(super) fn reached(&mut self, endpoint: &str) {
        self.0.remove(endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_pause_and_a_link_ends_it() {
        let (mut retries, mut now) = (Retries::default(), Instant::now());
        assert!(retries.may_begin("host/a", now));
        for pause in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            retries.failed("host/a", now);
            now += Duration::from_millis(pause - 1);
            assert!(!retries.may_begin("host/a", now) && retries.may_begin("host/b", now), "{pause}");
            now += Duration::from_millis(1);
            assert!(retries.may_begin("host/a", now), "{pause}");
        }
        retries.failed("host/a", now);
        retries.reached("host/a");
        assert!(retries.may_begin("host/a", now));
        retries.failed("host/a", now);
        assert!(retries.may_begin("host/a", now + PAUSE_MIN));
    }

    #[test]
    fn the_number_of_pauses_is_bounded_and_past_ones_make_room() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        (0..RETRIES_MAX).for_each(|n| retries.failed(&n.to_string(), now));
        retries.failed("further", now);
        assert!(retries.may_begin("further", now) && !retries.may_begin("0", now));
        let later = now + PAUSE_MIN;
        retries.failed("0", later);
        retries.failed("further", later);
        assert!(!retries.may_begin("further", later) && !retries.may_begin("0", later));
        assert_eq!(retries.0.len(), 2);
    }
}
