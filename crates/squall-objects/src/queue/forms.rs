//! Implementation of all forms: the elements in the root, and in each representative a client of them.
//!
//! Problem: a swap must keep elements, waiting threads, and the account of unfinished elements.
//! Idea: the forms are three ways to use one [`squall_parts::queue::Queue`], which changes its form in place.
//! So a swap hands over a reference.
//!
//! - I1. The roots that an object has had share its [`Elements`]. The drop of the last one ends all waits.
//! - I2. The queue has the form of the representative that a call found. A root sets the form when it makes a
//!   representative, and makes one only while it serves: a swap that is rolled back changes no form. Calls of
//!   the earlier root were over before.
//! - I3. The view of a representative is a client that any thread may use. In an adaptive queue, callers use
//!   it only on the representative's VP, so that the representative sees the other calls (`Local::note`).
//! - I4. Each [`Elements`] has a number of its own in the process. An element that was taken is finished only
//!   where it was taken: not in the elements that replaced them by a swap without state.
//!
//! Cost: the call that makes the first representative after a swap moves all elements.

use squall_adapt::family::is_reading;
use squall_core::swap::{Format, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, RepContext, Root, class_of};
use squall_machine::{Cluster, Vp, machine};
use squall_parts::queue::{self as parts, Attributes, Client, Counts, Form, Member, Rejected, WhichPriority};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::actions::{is_large, put};
use super::policy::{ALARM, post};
use super::{LOCAL_FORM, Queue, QueueView, RELAXED_FORM, SAMPLE_LOG2, STRICT_FORM, Sensors, classes};

/// The elements, shared by the roots that an object has had (I1).
struct Elements<T> {
    queue: Arc<parts::Queue<T>>,
    /// I4.
    number: u64,
    allows_local: AtomicBool,
}

impl<T> Elements<T> {
    fn new(form: Form) -> Elements<T> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: each value goes to one caller.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Elements { queue: Arc::new(parts::Queue::new(form)), number, allows_local: AtomicBool::new(false) }
    }
}

impl<T> Drop for Elements<T> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The elements as a call uses them beside the object: to wait, for instance.
#[doc(hidden)]
pub struct Contents<T> {
    pub(super) queue: Arc<parts::Queue<T>>,
    pub(super) number: u64,
}

impl<T> Contents<T> {
    pub(super) fn attributes(&self) -> &Attributes {
        self.queue.attributes()
    }
}

/// State that a swap moves.
struct Moved<T>(Arc<Elements<T>>);

impl<T: Send + 'static> Format for Moved<T> {}

/// Root. `ADAPTS`: its sensors post to the policy. `FORM`: index in [`Form::ALL`].
pub(super) struct Forms<T: Send + 'static, const ADAPTS: bool, const FORM: usize> {
    /// Empty in a replacement, until a swap moves the state in.
    elements: OnceLock<Arc<Elements<T>>>,
    /// Handle of the object, set when the first representative is made.
    handle: OnceLock<Handle<dyn Queue<T>>>,
    /// In the strict form all callers use the place of this VP.
    home: Vp,
}

impl<T: Send + 'static, const ADAPTS: bool, const FORM: usize> Forms<T, ADAPTS, FORM> {
    /// Whether each VP has a representative and a place.
    const IS_WIDE: bool = FORM != STRICT_FORM;

    pub(super) fn new(home: Vp) -> Forms<T, ADAPTS, FORM> {
        Forms { elements: OnceLock::new(), handle: OnceLock::new(), home }
    }

    /// Returns the elements. Without state from a swap it makes an empty queue.
    fn elements(&self) -> &Arc<Elements<T>> {
        self.elements.get_or_init(|| Arc::new(Elements::new(Form::ALL[FORM])))
    }
}

impl<T: Send + 'static, const ADAPTS: bool, const FORM: usize> Root for Forms<T, ADAPTS, FORM> {
    type Interface = dyn Queue<T>;
    type Rep = Local<T, ADAPTS, FORM>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn view(rep: &Self::Rep) -> QueueView<'_, T> {
        let only = ADAPTS.then_some(rep.vp);
        let number = rep.elements.number;
        QueueView { client: Some(rep.client()), only, number, is_local: FORM == LOCAL_FORM }
    }

    fn class_name() -> &'static str {
        match FORM {
            LOCAL_FORM => std::any::type_name::<classes::Local<T>>(),
            RELAXED_FORM => std::any::type_name::<classes::Relaxed<T>>(),
            _ => std::any::type_name::<classes::Strict<T>>(),
        }
    }

    fn make_rep(&self, at: RepContext<Self>) -> Local<T, ADAPTS, FORM> {
        self.handle.get_or_init(|| at.handle());
        let vp = if Self::IS_WIDE { at.vp() } else { self.home };
        let elements = self.elements().clone();
        let member = elements.queue.member(vp.index());
        let form = Form::ALL[FORM];
        // I2. The place has joined, so elements move to its heaps too.
        if elements.queue.form() != form {
            elements.queue.set_form(form);
        }
        Local {
            member,
            elements,
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
        if let (Some(handle), Some(elements)) = (self.handle.get(), self.elements.get())
            && class_of(Handle::id(*handle)).is_none()
            && !elements.queue.is_closed()
        {
            elements.queue.close();
        }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats.export(|whole| Ok(Moved(whole.root().elements().clone()))).import(
            |whole, Moved(elements): Moved<T>| {
                let again = "the replacement already has elements; make a new one for each swap";
                whole.root().elements.set(elements).map_err(|_| again)?;
                Ok(())
            },
        );
    }
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<T: Send + 'static, const ADAPTS: bool, const FORM: usize> {
    member: Member<T>,
    elements: Arc<Elements<T>>,
    /// VP of the place.
    vp: Vp,
    /// `local` counts calls on that VP, estimated from samples, and `foreign` those from other VPs. `alarm`
    /// counts down to a post; zero means that it is off. Concurrent steps may be lost in all three.
    local: AtomicU64,
    foreign: AtomicU64,
    alarm: AtomicU32,
    at: RepContext<Forms<T, ADAPTS, FORM>>,
}

impl<T: Send + 'static, const ADAPTS: bool, const FORM: usize> Local<T, ADAPTS, FORM> {
    #[inline(always)]
    fn client(&self) -> Client<'_, T> {
        self.member.client()
    }

    fn queue(&self) -> &parts::Queue<T> {
        self.member.queue()
    }

    /// Returns the handle to which a call may have addressed attributes: in the local form.
    fn callee(&self) -> Option<Handle<dyn Queue<T>>> {
        (FORM == LOCAL_FORM).then(|| self.at.handle())
    }

    /// Counts a call that did not use the view (I3), and posts to the policy if the alarm expires. A sample
    /// stands for many calls on the VP.
    fn note(&self, is_sample: bool) {
        if !ADAPTS {
            return;
        }
        let is_local = Vp::current() == self.vp;
        let calls = if is_local && is_sample && !is_large::<T>() { 1 << SAMPLE_LOG2 } else { 1 };
        let count = if is_local { &self.local } else { &self.foreign };
        count.store(count.load(Ordering::Relaxed).wrapping_add(calls), Ordering::Relaxed);
        if is_local && FORM == STRICT_FORM {
            // One VP that calls a strict queue is no reason to post.
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

impl<T: Send + 'static, const ADAPTS: bool, const FORM: usize> Queue<T> for Local<T, ADAPTS, FORM> {
    fn put_one(&self, priority: u64, value: T) -> Result<(), Rejected<T>> {
        self.note(true);
        put(self.client(), self.callee(), priority, value)
    }

    fn get_one(&self) -> Option<(u64, T)> {
        self.note(true);
        self.client().get()
    }

    fn put_batch(&self, elements: Vec<(u64, T)>) -> Result<(), Vec<(u64, T)>> {
        self.note(false);
        let (client, callee) = (self.client(), self.callee());
        let mut left = elements.into_iter();
        while let Some((priority, value)) = left.next() {
            if let Err(Rejected { priority, value }) = put(client, callee, priority, value) {
                return Err(std::iter::once((priority, value)).chain(left).collect());
            }
        }
        Ok(())
    }

    fn get_batch(&self, max: usize) -> Vec<(u64, T)> {
        self.note(false);
        let client = self.client();
        std::iter::from_fn(|| client.get()).take(max).collect()
    }

    fn len(&self) -> usize {
        self.queue().len()
    }

    fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }

    fn first_priority(&self) -> Option<u64> {
        self.queue().first_priority()
    }

    fn form(&self) -> Form {
        self.queue().form()
    }

    fn which_priority(&self) -> WhichPriority {
        self.queue().which_priority()
    }

    fn set_which_priority(&self, which: WhichPriority) {
        self.queue().set_which_priority(which);
    }

    fn allows_local(&self) -> bool {
        // Relaxed, here and below: the policy reads it some time.
        self.elements.allows_local.load(Ordering::Relaxed)
    }

    fn allow_local(&self, allow: bool) {
        self.elements.allows_local.store(allow, Ordering::Relaxed);
    }

    fn counts(&self) -> Counts {
        self.queue().counts()
    }

    fn close(&self) {
        self.queue().close();
    }

    fn is_closed(&self) -> bool {
        self.queue().is_closed()
    }

    fn is_done(&self) -> bool {
        self.queue().is_done()
    }

    fn take_one(&self) -> Option<(u64, T, u64)> {
        self.note(true);
        self.client().take_raw().map(|(priority, value)| (priority, value, self.elements.number))
    }

    fn finish_one_unarbitrated(&self, number: u64) {
        // I4.
        if number == self.elements.number {
            self.client().finish(1);
        }
    }

    fn contents_unarbitrated(&self) -> (Contents<T>, Option<usize>) {
        let contents = Contents { queue: self.elements.queue.clone(), number: self.elements.number };
        (contents, (FORM == STRICT_FORM).then(|| self.vp.index()))
    }

    fn sensors(&self) -> Sensors {
        let mut sensors = Sensors {
            dry: self.counts().dry,
            home: (FORM == STRICT_FORM).then_some(self.vp),
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
