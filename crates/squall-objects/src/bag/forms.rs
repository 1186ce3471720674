//! Implementation of both forms: the elements in the root, and in each representative a client of them.
//!
//! Problem: a swap must move neither elements nor waiting threads. Idea: the forms are two ways to use one
//! [`squall_parts::bag::Bag`]. In the shared form all callers are clients of one shard, in the distributed
//! form each VP has a shard.
//!
//! - I1. The roots that an object has had share its [`Contents`] (`shared_collection/I1`).
//! - I2. The view of a representative is a client that any thread may use. In an adaptive bag, callers use it
//!   only on the representative's VP, so that the representative sees the other calls (`Local::note`).

use squall_adapt::family::is_reading;
use squall_core::swap::RootFormats;
use squall_core::{Cleanup, Handle, Id, Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, Vp, machine};
use squall_parts::bag::{self as parts, Client, Counts, Member, Strategy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::ext::is_large;
use super::idle::Round;
use super::policy::{ALARM, post};
use super::{Bag, BagView, SAMPLE_LOG2, Sensors, classes, idle};
use crate::shared_collection::{Collection, Shared, SharedCell};

/// The elements and their waiters, which a swap moves.
type Contents<T> = Shared<Arc<parts::Bag<T>>>;

impl<T: Send + 'static> Collection for Arc<parts::Bag<T>> {
    fn close(&self) {
        parts::Bag::close(self);
    }
}

/// Root. `ADAPTS`: its sensors post to the policy. `WIDE`: each VP has a representative and a shard.
pub(super) struct Forms<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> {
    contents: SharedCell<dyn Bag<T>, Contents<T>>,
    /// VP of the shard that all callers use in the shared form.
    home: Vp,
    /// Whether the bag has asked for idle work (`idle/I2`).
    asked: Arc<AtomicBool>,
}

impl<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> Forms<T, ADAPTS, WIDE> {
    pub(super) fn new(home: Vp) -> Forms<T, ADAPTS, WIDE> {
        Forms { contents: SharedCell::new(), home, asked: Arc::default() }
    }

    /// Returns the elements. Without state from a swap it makes an empty bag.
    fn contents(&self) -> &Contents<T> {
        self.contents.get_or_make(|| Shared::new(Arc::new(parts::Bag::new())))
    }
}

impl<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> Root for Forms<T, ADAPTS, WIDE> {
    type Interface = dyn Bag<T>;
    type Rep = Local<T, ADAPTS, WIDE>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn view(rep: &Self::Rep) -> BagView<'_, T> {
        BagView { client: Some(rep.client()), only: ADAPTS.then_some(rep.vp) }
    }

    fn class_name() -> &'static str {
        if WIDE {
            std::any::type_name::<classes::Distributed<T>>()
        } else {
            std::any::type_name::<classes::Shared<T>>()
        }
    }

    fn make_rep(&self, at: RepContext<Self>) -> Local<T, ADAPTS, WIDE> {
        self.contents.set_handle(at.handle());
        let vp = if WIDE { at.vp() } else { self.home };
        Local {
            member: self.contents().member(vp.index()),
            vp,
            local: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            alarm: AtomicU32::new(if ADAPTS { ALARM } else { 0 }),
            at,
        }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        // A policy that reads the sensors is no caller, so no representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match (ADAPTS && is_reading()).then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    /// Ends all waits if the object was destroyed. A swap leaves them alone.
    fn wake(&self) {
        self.contents.wake();
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats.export(|whole| Ok(whole.root().contents().clone())).import(|whole, contents: Contents<T>| {
            let root = whole.root();
            root.contents.take_over(contents.clone())?;
            if !WIDE {
                contents.gather(root.home.index());
            }
            Ok(())
        });
    }
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> {
    member: Member<T>,
    /// VP of the shard.
    vp: Vp,
    /// `local` counts calls on that VP, estimated from samples, and `foreign` those from other VPs. `alarm`
    /// counts down to a post; zero means that it is off. Concurrent steps may be lost in all three.
    local: AtomicU64,
    foreign: AtomicU64,
    alarm: AtomicU32,
    at: RepContext<Forms<T, ADAPTS, WIDE>>,
}

impl<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> Local<T, ADAPTS, WIDE> {
    #[inline(always)]
    fn client(&self) -> Client<'_, T> {
        self.member.client()
    }

    /// Tells the thread `squall-bags` of a demand transfer.
    fn ask_for_idle_work(&self) {
        idle::ask(&self.at.root().asked, || Handle::id(self.at.handle()), round::<T>);
    }

    /// Counts a call that did not use the view (I2), and posts to the policy if the alarm expires. A sample
    /// stands for many calls on the VP.
    fn note(&self, is_sample: bool) {
        if !ADAPTS {
            return;
        }
        let is_local = Vp::current() == self.vp;
        let calls = if is_local && is_sample && !is_large::<T>() { 1 << SAMPLE_LOG2 } else { 1 };
        let count = if is_local { &self.local } else { &self.foreign };
        count.store(count.load(Ordering::Relaxed).wrapping_add(calls), Ordering::Relaxed);
        if is_local && !WIDE {
            // One VP that calls a shared bag is no reason to post.
            return;
        }
        // A thread that counts down to zero stores that zero before it posts.
        let left = self.alarm.load(Ordering::Relaxed);
        if left != 0 {
            self.alarm.store(left - 1, Ordering::Relaxed);
            if left == 1 && !post(self.at.handle()) {
                self.alarm.store(ALARM, Ordering::Relaxed);
            }
        }
    }
}

/// Makes a round of idle work for the bag of this id.
fn round<T: Send + 'static>(id: Id) -> Option<Round> {
    Handle::<dyn Bag<T>>::find(id)?.try_balance().ok()?
}

impl<T: Send + 'static, const ADAPTS: bool, const WIDE: bool> Bag<T> for Local<T, ADAPTS, WIDE> {
    fn put_one(&self, value: T) {
        self.note(true);
        self.client().put(value);
    }

    fn get_one(&self) -> Option<T> {
        let client = self.client();
        // Such a call never uses the view, so it is no sample.
        let lacks = client.is_empty();
        self.note(!lacks);
        let value = client.get();
        if WIDE && lacks && value.is_some() {
            self.ask_for_idle_work();
        }
        value
    }

    fn get_in_turn(&self, spare: bool) -> Option<T> {
        let client = self.client();
        let lacks = client.is_empty();
        self.note(!lacks);
        let value = if WIDE && spare { client.get_spare() } else { client.get_in_turn() };
        if WIDE && lacks && value.is_some() {
            self.ask_for_idle_work();
        }
        value
    }

    fn put_batch(&self, values: Vec<T>) {
        self.note(false);
        self.client().put_batch(values);
    }

    fn get_batch(&self, max: usize) -> Vec<T> {
        self.note(false);
        let mut values = Vec::new();
        let client = self.client();
        let lacks = client.len() < max;
        client.get_batch(max, &mut values);
        if WIDE && lacks && !values.is_empty() {
            self.ask_for_idle_work();
        }
        values
    }

    fn len(&self) -> usize {
        self.member.bag().len()
    }

    fn local_len(&self) -> usize {
        self.client().len()
    }

    fn idle(&self) {
        self.client().idle();
    }

    fn balance(&self) -> Option<Round> {
        if !WIDE {
            return None;
        }
        let moved = || {
            let counts = self.counts();
            counts.pulls.wrapping_add(counts.pushes)
        };
        let before = moved();
        let events = self.member.bag().attributes().idle_events().max(1);
        let mut clients = 0;
        for rep in self.at.reps() {
            (0..events).for_each(|_| rep.client().idle());
            clients += 1;
        }
        Some(Round { moved: moved() != before, clients })
    }

    fn strategy(&self) -> Strategy {
        self.member.bag().attributes().strategy()
    }

    fn set_strategy(&self, strategy: Strategy) {
        self.member.bag().attributes().set_strategy(strategy);
    }

    fn counts(&self) -> Counts {
        self.member.bag().counts()
    }

    fn contents_unarbitrated(&self) -> (Arc<parts::Bag<T>>, Option<usize>) {
        (self.member.bag().clone(), (!WIDE).then(|| self.vp.index()))
    }

    fn sensors(&self) -> Sensors {
        let counts = self.counts();
        let mut sensors = Sensors {
            visits: counts.demand_transfers.wrapping_add(counts.dry),
            home: (!WIDE).then_some(self.vp),
            ..Sensors::default()
        };
        for rep in self.at.reps() {
            sensors.local = sensors.local.wrapping_add(rep.local.load(Ordering::Relaxed));
            sensors.foreign = sensors.foreign.wrapping_add(rep.foreign.load(Ordering::Relaxed));
            sensors.reps += 1;
        }
        sensors
    }

    fn arm(&self, after: u32) {
        if ADAPTS {
            self.at.reps().for_each(|rep| rep.alarm.store(after, Ordering::Relaxed));
        }
    }
}
