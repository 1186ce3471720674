//! Implementation of all forms: the elements in the root, and in each representative a client of them.
//!
//! Problem: a swap must keep elements, waiting threads, and the account of unfinished elements.
//! Idea: the forms are three ways to use one [`squall_parts::queue::Queue`], which changes its form in place.
//!
//! - I1. The roots that an object has had share its [`Elements`] (`shared_collection/I1`).
//! - I2. The queue has the form of the representative that a call found. A root sets the form when it makes a
//!   representative, and makes one only while it serves: a swap that is rolled back changes no form. Calls of
//!   the earlier root were over before. The earlier root learns that its elements have moved, and sets the
//!   form in advance, so that no call has to.
//! - I3. The view of a representative is a client that any thread may use. In an adaptive queue, callers use
//!   it only on the representative's VP, so that the representative sees the other calls (`Local::note`).
//! - I4. Each [`Elements`] has a number of its own in the process. An element that was taken is finished only
//!   where it was taken: not in the elements that replaced them by a swap without state.
//! - I5. The roots that share elements have turns, which grow. The form is that of the greatest turn of which
//!   a root has served. A root that learns late of its successor cannot undo the form of a later one.
//!
//! Cost: the thread that swaps moves all elements, outside operations. Calls that come first do it, or wait.

use squall_adapt::family::is_reading;
use squall_core::swap::{Format, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, Vp, machine};
use squall_parts::queue::{self as parts, Attributes, Client, Counts, Form, Member, Rejected, WhichPriority};
use squall_sys::sync::lock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::actions::{is_large, put};
use super::policy::{ALARM, post};
use super::{LOCAL_FORM, Queue, QueueView, RELAXED_FORM, SAMPLE_LOG2, STRICT_FORM, Sensors, classes};
use crate::shared_collection::{Collection, Shared, SharedCell};

/// The elements, shared by the roots that an object has had (I1).
struct Elements<T> {
    queue: Arc<parts::Queue<T>>,
    /// I4.
    number: u64,
    allows_local: AtomicBool,
    turns: Mutex<Turns>,
}

/// Turns of the roots that share elements (I5). The first root has turn 0.
#[derive(Default)]
struct Turns {
    /// Greatest turn that was given to a root.
    last: u64,
    /// Turn of the root whose form the queue has.
    formed: u64,
    /// The latest replacement that took the elements over, which may not serve yet.
    coming: Option<Coming>,
}

/// A replacement that took elements over.
#[derive(Clone, Copy)]
struct Coming {
    /// Turn of the root from which it did.
    from: u64,
    turn: u64,
    form: Form,
}

impl<T> Elements<T> {
    fn new(form: Form) -> Elements<T> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: each value goes to one caller.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(parts::Queue::new(form));
        Elements { queue, number, allows_local: AtomicBool::new(false), turns: Mutex::default() }
    }

    /// Gives a turn to a replacement of this form that takes the elements over.
    fn take_over(&self, from: u64, form: Form) -> u64 {
        let mut turns = lock(&self.turns, "the turns of a queue's forms");
        turns.last += 1;
        turns.coming = Some(Coming { from, turn: turns.last, form });
        turns.last
    }

    /// Gives the queue the form of a root that serves. Other calls of this function wait meanwhile, so that
    /// none goes on in another form.
    fn set_form(&self, turn: u64, form: Form, home: Vp) {
        let mut turns = lock(&self.turns, "the turns of a queue's forms");
        self.set_form_locked(&mut turns, turn, form, home);
    }

    /// Gives the queue the form of the root that took the elements over from the one with this turn, if that
    /// is the latest one.
    fn set_form_after(&self, from: u64, home: Vp) {
        let mut turns = lock(&self.turns, "the turns of a queue's forms");
        if let Some(Coming { turn, form, .. }) = turns.coming.filter(|coming| coming.from == from) {
            self.set_form_locked(&mut turns, turn, form, home);
        }
    }

    fn set_form_locked(&self, turns: &mut Turns, turn: u64, form: Form, home: Vp) {
        if turn <= turns.formed {
            return;
        }
        if self.queue.form() != form {
            if form != Form::Strict && self.queue.joined() == 0 && !self.queue.is_empty() {
                // Elements go to the heaps of places that have joined.
                self.queue.client(home.index());
            }
            self.queue.set_form(form);
        }
        turns.formed = turn;
    }
}

impl<T: Send + 'static> Collection for Elements<T> {
    fn close(&self) {
        // A close locks all heaps.
        if !self.queue.is_closed() {
            self.queue.close();
        }
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
struct Moved<T: Send + 'static> {
    elements: Shared<Elements<T>>,
    /// Turn of the root that had them.
    from: u64,
}

impl<T: Send + 'static> Format for Moved<T> {}

/// The elements of a root, and its turn.
struct Share<T: Send + 'static> {
    elements: Shared<Elements<T>>,
    turn: u64,
}

impl<T: Send + 'static> Collection for Share<T> {
    fn close(&self) {
        self.elements.close();
    }
}

/// Root. `ADAPTS`: its sensors post to the policy. `FORM`: index in [`Form::ALL`].
pub(super) struct Forms<T: Send + 'static, const ADAPTS: bool, const FORM: usize> {
    share: SharedCell<dyn Queue<T>, Share<T>>,
    /// In the strict form all callers use the place of this VP.
    home: Vp,
}

impl<T: Send + 'static, const ADAPTS: bool, const FORM: usize> Forms<T, ADAPTS, FORM> {
    /// Whether each VP has a representative and a place.
    const IS_WIDE: bool = FORM != STRICT_FORM;

    pub(super) fn new(home: Vp) -> Forms<T, ADAPTS, FORM> {
        Forms { share: SharedCell::new(), home }
    }

    /// Returns the elements and the turn. Without state from a swap it makes an empty queue.
    fn share(&self) -> &Share<T> {
        self.share.get_or_make(|| Share { elements: Shared::new(Elements::new(Form::ALL[FORM])), turn: 0 })
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
        self.share.set_handle(at.handle());
        let vp = if Self::IS_WIDE { at.vp() } else { self.home };
        let Share { elements, turn } = self.share();
        // I2.
        elements.set_form(*turn, Form::ALL[FORM], vp);
        Local {
            member: elements.queue.member(vp.index()),
            elements: elements.clone(),
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
        self.share.wake();
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let Share { elements, turn } = whole.root().share();
                Ok(Moved { elements: elements.clone(), from: *turn })
            })
            .import(|whole, Moved { elements, from }: Moved<T>| {
                let turn = elements.take_over(from, Form::ALL[FORM]);
                whole.root().share.take_over(Share { elements, turn })?;
                if cfg!(test) {
                    squall_sys::pause::point("imported");
                }
                Ok(())
            });
    }

    fn moved(&self) {
        if let Some(Share { elements, turn }) = self.share.get() {
            elements.set_form_after(*turn, self.home);
        }
    }
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<T: Send + 'static, const ADAPTS: bool, const FORM: usize> {
    member: Member<T>,
    elements: Shared<Elements<T>>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{End, QueueExt, Taken, new_local, new_relaxed, new_strict, strict};
    use squall_core::swap::{Cancel, Replacement, State, StateFormats, Swap, swap};
    use squall_core::{Owned, swappable};
    use squall_macros::interface;
    use squall_sys::pause;

    fn new(form: Form) -> Replacement<dyn Queue<u64>> {
        match form {
            Form::Strict => new_strict(),
            Form::Relaxed => new_relaxed(),
            Form::Local => new_local(),
        }
    }

    #[test]
    fn a_swap_that_is_rolled_back_after_the_transfer_changes_no_form() {
        for (old, next) in Form::ALL.into_iter().flat_map(|old| Form::ALL.map(|next| (old, next))) {
            let queue = strict::<u64>();
            let handle = queue.handle();
            handle.put_batch((0..8).map(|n| (n, n)).collect()).unwrap();
            swap(handle, new(old)).unwrap();
            let taken = handle.take().unwrap();
            let cancel = Cancel::new();
            let hooked = pause::hook({
                let cancel = cancel.clone();
                move |point| {
                    if point == "imported" {
                        cancel.cancel();
                    }
                }
            });
            Swap::new(handle).cancel_on(&cancel).run(new(next)).expect_err("it was cancelled");
            drop(hooked);
            assert_eq!((handle.form(), handle.len()), (old, 7));
            // The next swap is of no concern to the one that failed.
            swap(handle, new(old)).unwrap();
            assert_eq!((handle.form(), handle.is_done()), (old, false));
            let mut got: Vec<u64> =
                std::iter::from_fn(|| handle.get()).map(|(priority, _)| priority).collect();
            got.push(taken.priority());
            drop(taken);
            got.sort_unstable();
            assert_eq!((got, handle.is_done()), ((0..8).collect(), true));
        }
    }

    #[interface(crate = squall_core)]
    trait Hold: Send + Sync {
        fn is_empty(&self) -> bool;
    }

    /// Its export drops an element that it has taken.
    struct Holder(Mutex<Option<Taken<u64>>>);

    impl Hold for Holder {
        fn is_empty(&self) -> bool {
            self.0.lock().unwrap().is_none()
        }
    }

    impl State for Holder {
        fn formats(formats: &mut StateFormats<'_, Holder>) {
            let drop_taken = |this: &Holder| {
                this.0.lock().unwrap().take();
                Ok(())
            };
            formats.export(drop_taken).import(|_, ()| Ok(()));
        }
    }

    #[test]
    fn an_element_that_a_transfer_drops_while_its_queue_is_swapped_is_finished() {
        for next in Form::ALL {
            let queue = strict::<u64>();
            let handle = queue.handle();
            handle.put(1, 1).unwrap();
            let holder: Owned<dyn Hold> = swappable(Holder(Mutex::new(handle.take())));
            let held = holder.handle();
            let hooked = pause::hook(move |point| {
                if point == "imported" {
                    let empty = || Replacement::swappable(Holder(Mutex::default()));
                    // The drop would have waited for the swap of the queue.
                    std::thread::spawn(move || swap(held, empty())).join().unwrap().unwrap_err();
                }
            });
            swap(handle, new(next)).unwrap();
            drop(hooked);
            assert!(held.is_empty());
            squall_rcu::barrier().unwrap();
            assert_eq!((handle.is_done(), handle.take_wait().unwrap_err()), (true, End::Done));
        }
    }

    #[test]
    fn the_thread_that_swaps_moves_the_elements() {
        for form in [Form::Relaxed, Form::Local] {
            let queue = strict::<u64>();
            let handle = queue.handle();
            handle.put_batch((0..8).map(|n| (n, n)).collect()).unwrap();
            let elements = handle.contents_unarbitrated().0.queue;
            swap(handle, new(form)).unwrap();
            assert_eq!((elements.form(), elements.len(), elements.joined()), (form, 8, 1));
            swap(handle, new(Form::Strict)).unwrap();
            assert_eq!((elements.form(), elements.len(), elements.joined()), (Form::Strict, 8, 1));
        }
    }

    #[test]
    fn a_root_that_learns_late_of_its_successor_undoes_no_later_form() {
        let (elements, home) = (Elements::<u64>::new(Form::Strict), Vp::current());
        let second = elements.take_over(0, Form::Relaxed);
        assert_eq!(elements.queue.form(), Form::Strict);
        elements.set_form(second, Form::Relaxed, home);
        let third = elements.take_over(second, Form::Local);
        // The first root learns of the second one while the third one may still be rolled back.
        elements.set_form_after(0, home);
        assert_eq!(elements.queue.form(), Form::Relaxed);
        elements.set_form(third, Form::Local, home);
        elements.set_form_after(0, home);
        elements.set_form(second, Form::Relaxed, home);
        assert_eq!(elements.queue.form(), Form::Local);
        // After a swap that was rolled back, the next one counts.
        elements.take_over(third, Form::Strict);
        elements.take_over(third, Form::Relaxed);
        elements.set_form_after(third, home);
        assert_eq!(elements.queue.form(), Form::Relaxed);
    }
}
