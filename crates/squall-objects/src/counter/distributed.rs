//! The distributed form: a word for each VP that adds, on lines of its own.
//!
//! Its sensor is on the dear path: who asks for the sum visits every representative, and counts an alarm down in his own.

use squall_adapt::family::is_reading;
use squall_core::swap::RootFormats;
use squall_core::{RepContext, Miss, MissAnswer, Root};
use squall_machine::pervp::BiasedWord;
use squall_machine::{Cluster, machine};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Counter, Sensors};
use crate::counter::policy::{ALARM, post};

/// The root. `ADAPTS`: its representatives' sensors post.
pub(super) struct Distributed<const ADAPTS: bool>(());

impl<const ADAPTS: bool> Distributed<ADAPTS> {
    pub(super) fn new() -> Distributed<ADAPTS> {
        Distributed(())
    }
}

/// On lines of its own: neighbours in memory belong to other processors.
#[repr(align(128))]
pub(super) struct Local<const ADAPTS: bool> {
    count: BiasedWord,
    own: Own,
    at: RepContext<Distributed<ADAPTS>>,
}

/// What the representative's own callers write when they ask for the sum: apart from what others read then.
#[repr(align(64))]
struct Own {
    /// Sums that were asked for here, and how many more until the alarm rings; zero: it does not. Both may lose steps.
    totals: AtomicU32,
    alarm: AtomicU32,
}

impl<const ADAPTS: bool> Root for Distributed<ADAPTS> {
    type Interface = dyn Counter;
    type Rep = Local<ADAPTS>;

    fn make_rep(&self, at: RepContext<Distributed<ADAPTS>>) -> Local<ADAPTS> {
        let alarm = AtomicU32::new(if ADAPTS { ALARM } else { 0 });
        let own = Own { totals: AtomicU32::new(0), alarm };
        Local { count: BiasedWord::new(at.vp()), own, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Distributed<ADAPTS>>) -> MissAnswer<'a, Distributed<ADAPTS>> {
        // Who only looks is no caller.
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
    /// Counts one sum that was asked for.
    fn note_total(&self) {
        // Loads and stores: steps may be lost to others, but somebody stores the zero that he rings for.
        self.own.totals.store(self.own.totals.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let left = self.own.alarm.load(Ordering::Relaxed);
        if left != 0 {
            self.own.alarm.store(left - 1, Ordering::Relaxed);
            if left == 1 && !post(self.at.handle()) {
                self.own.alarm.store(ALARM, Ordering::Relaxed);
            }
        }
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
            self.at.reps().for_each(|rep| rep.own.alarm.store(after, Ordering::Relaxed));
        }
    }
}
