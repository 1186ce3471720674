//! The distributed form: one word for each VP that adds, on cache lines of its own.
//!
//! The sensor sits on the expensive path. A call of `total` visits every representative and counts down an
//! alarm in the caller's own representative.

use squall_adapt::family::is_reading;
use squall_adapt::sensor::{ALARM, Alarm};
use squall_core::swap::RootFormats;
use squall_core::{Cleanup, Miss, MissAnswer, RepContext, Root};
use squall_machine::pervp::BiasedWord;
use squall_machine::{Cluster, machine};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Counter, Sensors};
use crate::counter::policy::post;

/// Root of the distributed form. `ADAPTS`: the sensors of its representatives post to the policy.
pub(super) struct Distributed<const ADAPTS: bool>(());

impl<const ADAPTS: bool> Distributed<ADAPTS> {
    pub(super) fn new() -> Distributed<ADAPTS> {
        Distributed(())
    }
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<const ADAPTS: bool> {
    count: BiasedWord,
    own: Own,
    at: RepContext<Distributed<ADAPTS>>,
}

/// Words that the callers of this representative write when they ask for the sum. Alignment keeps them apart
/// from the count, which other processors read then.
#[repr(align(64))]
struct Own {
    /// Counts calls of `total` on this representative. Concurrent steps may be lost.
    totals: AtomicU32,
    /// Counts them down to a post.
    alarm: Alarm,
}

impl<const ADAPTS: bool> Root for Distributed<ADAPTS> {
    type Interface = dyn Counter;
    type Rep = Local<ADAPTS>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn make_rep(&self, at: RepContext<Distributed<ADAPTS>>) -> Local<ADAPTS> {
        let own = Own { totals: AtomicU32::new(0), alarm: Alarm::new(ALARM) };
        Local { count: BiasedWord::new(at.vp()), own, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Distributed<ADAPTS>>) -> MissAnswer<'a, Distributed<ADAPTS>> {
        // A policy that reads the sensors is no caller, so no representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match is_reading().then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    fn formats(formats: &mut RootFormats<'_, Distributed<ADAPTS>>) {
        formats.export_part(|_, rep| Ok(rep.count.load())).import_part(|_, rep, n: u64| {
            rep.count.add(n);
            Ok(())
        });
    }
}

impl<const ADAPTS: bool> Local<ADAPTS> {
    /// Counts a call of `total`, and posts to the policy if the alarm expires.
    fn note_total(&self) {
        // A load and a store, so concurrent steps may overwrite each other.
        self.own.totals.store(self.own.totals.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.own.alarm.step(1, || post(self.at.handle()));
    }
}

impl<const ADAPTS: bool> Counter for Local<ADAPTS> {
    #[inline]
    fn add(&self, n: u64) {
        self.count.add(n);
    }

    fn total(&self) -> u64 {
        if ADAPTS {
            self.note_total();
        }
        self.at.reps().fold(0, |sum, rep| sum.wrapping_add(rep.count.load()))
    }

    fn sensors(&self) -> Sensors {
        let (mut sensors, mut most) = (Sensors::default(), 0);
        for rep in self.at.reps() {
            let here = rep.count.added_here();
            sensors.here = sensors.here.wrapping_add(here);
            sensors.elsewhere = sensors.elsewhere.wrapping_add(rep.count.added_elsewhere());
            sensors.totals += u64::from(rep.own.totals.load(Ordering::Relaxed));
            sensors.reps += 1;
            if sensors.place.is_none() || here > most {
                (sensors.place, most) = (Some(rep.count.vp()), here);
            }
        }
        sensors
    }

    fn arm(&self, after: u32) {
        if ADAPTS {
            self.at.reps().for_each(|rep| rep.own.alarm.arm(after));
        }
    }
}
