//! References, and the call.
//!
//! - I1. The bits of a `Handle<I>` are the id under which interface `I` of some object was, is or will be known; no safe
//!   code makes one of other bits. So a header whose id equals them has a target of type `I`.
//! - I2. A header found by [`hit`](crate::raw::object::hit) is used within the operation in which it was found, or under
//!   a hold taken in it.
//!
//! Cost: see [`Handle`]. Source: CO-04, CO-07; TO-06; the compare is ours, where K42 rewrites tables.

use squall_sys::sync::Arc;
use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use squall_machine::Vp;
use squall_rcu::Guard;

use crate::class::{Found, ObjectKind};
use crate::error::{CallError, CallErrorKind};
use crate::ground::{Tables, entry_here, existing};
use crate::hit::{Act, Hit};
use crate::id::Id;
use crate::interface::{Extends, Interface, from_fat, offset_of};
use crate::raw::header::Header;
use crate::raw::mediator::Mediator;
use crate::raw::object::{Ground, InFlight, Object, cached, header, hit, object_of, release, shared_owner};
use crate::raw::slot::Absent;
use crate::swap::arbiter::Arbitration;
use crate::swap::calls::{self as swap, Again, Frame, Met, Park};
use crate::wrap::unanswered;

/// A reference to a clustered object: call it as the interface it is.
///
/// It may be copied, sent, kept and used at any time, before, while and after the object is destroyed. A call reaches the
/// representative of the caller's cluster. When there is no object any more the call does not happen:
/// - a plain method panics in its caller, with the [`CallError`] as its message,
/// - unless it returns a `Result` whose error is `From<CallError>`: then it returns that,
/// - and its checked form, `try_` and the method's name, returns the `CallError`.
///
/// # Cost
/// About a nanosecond more than the same method through `Arc<dyn Trait>`; no access to a line that another VP writes. The
/// first call on a VP is a miss: it asks the root, and makes the representative if its cluster has none. A method marked
/// `#[blocking]` also makes two atomic changes to its representative. Progress: wait-free, then the method's own.
///
/// To let the methods of the interface have all names, what a reference can do by itself are associated functions.
pub struct Handle<I: ?Sized> {
    id: Id,
    // Neither owns nor borrows: sendable, shareable, and unwind safe, whatever the interface is. Invariant: a coercion
    // between interfaces that differ in lifetimes would change what the id means.
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

impl<I: ?Sized> UnwindSafe for Handle<I> {}
impl<I: ?Sized> RefUnwindSafe for Handle<I> {}

impl<I: ?Sized> Clone for Handle<I> {
    #[inline(always)]
    fn clone(&self) -> Handle<I> {
        *self
    }
}
impl<I: ?Sized> Copy for Handle<I> {}

impl<I: ?Sized> PartialEq for Handle<I> {
    fn eq(&self, other: &Handle<I>) -> bool {
        self.id == other.id
    }
}
impl<I: ?Sized> Eq for Handle<I> {}

impl<I: ?Sized> PartialOrd for Handle<I> {
    fn partial_cmp(&self, other: &Handle<I>) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<I: ?Sized> Ord for Handle<I> {
    fn cmp(&self, other: &Handle<I>) -> cmp::Ordering {
        self.id.cmp(&other.id)
    }
}

impl<I: ?Sized> Hash for Handle<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<I: ?Sized + Interface> fmt::Display for Handle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", I::NAME, self.id)
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Handle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<I: ?Sized> Handle<I> {
    /// The caller upholds I1.
    pub(crate) fn new(id: Id) -> Handle<I> {
        Handle { id, interface: PhantomData }
    }

    pub(crate) fn bits_id(self) -> Id {
        self.id
    }

    /// The object's id, as this interface.
    pub fn id(this: Handle<I>) -> Id {
        this.id
    }
}

impl<I: ?Sized + Interface> Handle<I> {
    /// The same object, as an interface that `I` extends directly.
    ///
    /// Where two paths lead to one interface, the two references reach the same object and compare different.
    pub fn upcast<S: ?Sized + Interface>(this: Handle<I>) -> Handle<S>
    where
        I: Extends<S>,
    {
        Handle::new(this.id.offset(offset_of::<I, S>()))
    }

    /// Not public: the body of every method of a reference.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call<R>(self, method: &'static str, f: impl FnOnce(&I) -> R, gone: impl Answer<R>) -> R {
        self.__call_in(method, move |_, target| f(target), gone)
    }

    /// Not public: the same, where what is called lends something for the operation that the call is: `f` may use it.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_in<R>(
        self,
        method: &'static str,
        f: impl for<'o> FnOnce(&'o Guard, &'o I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        self.__call_act(method, f, gone)
    }

    /// Not public: the same, of what is compiled into the caller, whatever its size.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_act<R>(self, method: &'static str, act: impl Act<I, R>, gone: impl Answer<R>) -> R {
        // SAFETY: dropped before this returns or unwinds, here or in `miss`.
        let entered = match unsafe { squall_rcu::__enter(self.id.bits()) } {
            Ok(entered) => entered,
            Err(error) => return gone.answer(refused(self, method, error)),
        };
        macro_rules! done {
            ($found:path, $header:ident) => {
                // SAFETY: a header of this id (I1), found in the operation; if the interface's representatives lend things, one with this
                // sign (header/I1).
                match act.act_briefly(entered.guard(), unsafe { $found(entered.guard(), $header, entered.turn()) }) {
                    Ok(result) => {
                        drop(entered);
                        result
                    }
                    Err(act) => act_at_length(entered, self, method, act, gone),
                }
            };
        }
        // SAFETY: there is an object or was one (I1), so there are tables; the operation is open, and the header is used
        // in it (I2).
        if let Some(header) = unsafe { cached(entry_here(self.id.slot())) } {
            // SAFETY: as above.
            let it = unsafe { header.as_ref() };
            if it.is(self.id.bits()) {
                return if I::LENDS { done!(Hit::of_first, header) } else { done!(Hit::new, header) };
            }
            if I::LENDS && it.is_other(self.id.bits()) {
                return done!(Hit::of_other, header);
            }
        }
        // Apart from the hit up to the end, so that a hit does not ask again how it went.
        miss(entered, self, method, act, gone)
    }

    /// Not public: the body of a method that may block.
    #[doc(hidden)]
    #[track_caller]
    pub fn __call_blocking<R>(
        self,
        method: &'static str,
        f: impl FnOnce(&I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        let (hold, arbitration) = match reach_by_parking(self, method) {
            Ok(reached) => reached,
            Err(error) => return gone.answer(error),
        };
        let mut frame = Frame::new(hold.object(), Again::Never);
        let _in_frame = frame.enter();
        // SAFETY: a header of this id (I1), held while the call lasts (I2).
        let f = || f(unsafe { target(&hold.0) });
        match arbitrated(arbitration.as_deref(), self, method, f) {
            Ok(result) => result,
            Err(error) => gone.answer(error),
        }
    }

    /// Not public: the same, of a method that can be called again with the same arguments. It is, where it had to leave because
    /// of a swap.
    #[doc(hidden)]
    #[track_caller]
    pub fn __call_blocking_again<R>(
        self,
        method: &'static str,
        mut f: impl FnMut(&I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        loop {
            let (hold, arbitration) = match reach_by_parking(self, method) {
                Ok(reached) => reached,
                Err(error) => return gone.answer(error),
            };
            let mut frame = Frame::new(hold.object(), Again::May);
            let in_frame = frame.enter();
            // SAFETY: a header of this id (I1), held while the call lasts (I2).
            let f = || f(unsafe { target(&hold.0) });
            let result = arbitrated(arbitration.as_deref(), self, method, f);
            drop(in_frame);
            match result {
                Ok(result) if !frame.is_to_be_again() => return result,
                Ok(_) => {}
                Err(error) => return gone.answer(error),
            }
        }
    }
}

/// Reaches a representative, and holds it; waits for swaps.
fn reach_by_parking<I: ?Sized + Interface>(
    co: Handle<I>,
    method: &'static str,
) -> Result<(Hold, Option<Arc<Arbitration>>), CallError> {
    let mut again = false;
    loop {
        let reached =
            squall_rcu::try_pin(|_| reach(co.id, again)).map_err(|error| refused(co, method, error))?;
        match reached {
            Reached::Held(hold, arbitration) => return Ok((hold, arbitration)),
            Reached::Parked(park) => park.wait(),
            Reached::Nothing(error) => return Err(error.of(I::NAME, method)),
        }
        again = true;
    }
}

/// Makes a call, by way of what arbitrates it.
fn arbitrated<I: ?Sized + Interface, R>(
    arbitration: Option<&Arbitration>,
    co: Handle<I>,
    method: &'static str,
    f: impl FnOnce() -> R,
) -> Result<R, CallError> {
    match arbitration {
        Some(arbitration) if arbitration.is_of(method) => {
            arbitration.call(I::NAME, co.id, method, f).map_err(|error| error.of(I::NAME, method))
        }
        _ => Ok(f()),
    }
}

/// The representative behind a header, as the interface that it is of.
///
/// # Safety
/// The header is of an object's interface `I`, and is kept while the result is used.
#[inline(always)]
unsafe fn target<I: ?Sized>(header: &NonNull<Header>) -> &I {
    // SAFETY: `I` was used when the header was written (reference/I1, interface/I1).
    unsafe { &*from_fat::<I>(header.as_ref().target()) }
}

/// What is not soon done, to the end of the operation: so that the way of a hit, from which nothing comes back here, keeps nothing for after it;
/// not even where the header is.
#[inline(never)]
#[track_caller]
fn act_at_length<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    co: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    // SAFETY: as in `__call_act`.
    match unsafe { hit(entry_here(co.id.slot()), co.id) } {
        // SAFETY: a header of this id (I1), found in the operation.
        Some(header) => act.act(entered.guard(), unsafe { Hit::new(entered.guard(), header, entered.turn()) }),
        None => miss(entered, co, method, act, gone),
    }
}

/// The same away from the way of a hit, once for all the ways on which it is done so.
///
/// # Safety
/// As of [`Hit::new`].
#[inline(never)]
unsafe fn act_apart<I: ?Sized, R>(
    act: impl Act<I, R>,
    entered: &squall_rcu::Entered,
    header: NonNull<Header>,
) -> R {
    // SAFETY: the caller.
    act.act(entered.guard(), unsafe { Hit::new(entered.guard(), header, entered.turn()) })
}

#[cold]
#[inline(never)]
#[track_caller]
fn miss<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    co: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    match resolve(co.id).open() {
        // SAFETY: a header of this id (I1), used in the operation (I2).
        Resolved::Header(header) => unsafe { act_apart(act, &entered, header) },
        Resolved::Error(error) => {
            drop(entered);
            gone.answer(error.of(I::NAME, method))
        }
        Resolved::Mediated(mediator) => mediated(entered, mediator, co, method, act, gone),
    }
}

/// A call that met a mediator.
#[cold]
#[inline(never)]
#[track_caller]
fn mediated<I: ?Sized + Interface, R>(
    mut entered: squall_rcu::Entered,
    mut mediator: NonNull<Mediator>,
    co: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    let mut again = false;
    let error = loop {
        // SAFETY: found in this operation.
        match unsafe { swap::meet(co.id, mediator, again) } {
            Met::Pass(pass) => {
                let mut frame = Frame::new(pass.object, Again::Never);
                let _in_frame = pass.is_counted().then(|| frame.enter());
                // SAFETY: a header of this id (I1), used in the operation (I2).
                let f = || unsafe { act_apart(act, &entered, pass.header) };
                // SAFETY: the mediator is valid in this operation, and so is what it points to.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::as_ref);
                match arbitrated(arbitration, co, method, f) {
                    Ok(result) => return result,
                    Err(error) => break error,
                }
            }
            Met::Park(park) => {
                // The outermost operation ends here. An inner one stays, and the swap has a bound.
                drop(entered);
                park.wait();
                // SAFETY: dropped before this returns or unwinds.
                entered = match unsafe { squall_rcu::__enter(co.id.bits()) } {
                    Ok(entered) => entered,
                    Err(error) => return gone.answer(refused(co, method, error)),
                };
                match resolve(co.id).open() {
                    Resolved::Header(header) => {
                        // SAFETY: as in `miss`.
                        return unsafe { act_apart(act, &entered, header) };
                    }
                    Resolved::Mediated(next) => {
                        again = next == mediator;
                        mediator = next;
                    }
                    Resolved::Error(error) => break error,
                }
            }
            Met::Error(error) => break error,
        }
    };
    drop(entered);
    gone.answer(error.of(I::NAME, method))
}

/// What a miss leads to.
enum Resolved {
    /// A header, used in the same operation.
    Header(NonNull<Header>),
    /// Nothing.
    Error(CallError),
    /// A mediator is to be asked, in the same operation.
    Mediated(NonNull<Mediator>),
}

/// The same in one word, which is returned in a register.
///
/// - I3. The word is a pointer, and in its low bits says to what: none set, `ERROR`, or `MEDIATED`.
#[must_use]
struct Packed(NonNull<()>);

const ERROR: usize = 1;
const MEDIATED: usize = 2;
const _: () = assert!(align_of::<Header>() > 2 && align_of::<Mediator>() > 2 && CallError::ALIGN > 2);

impl Packed {
    #[inline(always)]
    fn header(header: NonNull<Header>) -> Packed {
        Packed(header.cast())
    }

    #[cold]
    fn error(error: CallError) -> Packed {
        Packed(error.into_raw().map_addr(|address| address | ERROR))
    }

    #[cold]
    fn mediated(mediator: NonNull<Mediator>) -> Packed {
        Packed(mediator.cast().map_addr(|address| address | MEDIATED))
    }

    #[inline(always)]
    fn open(self) -> Resolved {
        let tag = self.0.addr().get() & (ERROR | MEDIATED);
        if tag == 0 {
            return Resolved::Header(self.0.cast());
        }
        let Some(pointer) = NonNull::new(self.0.as_ptr().map_addr(|address| address - tag)) else {
            unreachable!("a tagged null")
        };
        match tag {
            // SAFETY: from `error` (I3), once.
            ERROR => Resolved::Error(unsafe { CallError::from_raw(pointer) }),
            _ => Resolved::Mediated(pointer.cast()),
        }
    }
}

/// Finds or makes the representative for the caller's cluster, and installs it. Within an operation, in which the header
/// is used.
#[cold]
#[inline(never)]
fn resolve(id: Id) -> Packed {
    let forked = || Packed::error(CallError::unnamed(None, id, CallErrorKind::Forked));
    let Some(tables) = existing() else {
        if squall_sys::fork::forked() {
            return forked();
        }
        return Packed::error(CallError::unnamed(None, id, CallErrorKind::NotThere));
    };
    // Once, so that the entry is made where the translation set says.
    // SAFETY: making the tables asks for the VP first.
    let vp = match unsafe { Vp::index_at_hand() } {
        at_hand @ 0.. => Vp::new(at_hand as u32),
        _ => {
            // The hit has looked elsewhere (`ground/I1`).
            let vp = Vp::current();
            // SAFETY: within the operation of the call.
            if let Some(header) = unsafe { hit(tables.entry(vp.index(), id.slot()), id) } {
                return Packed::header(header);
            }
            vp
        }
    };
    // What is cached can be called there, too.
    if squall_sys::fork::forked() {
        return forked();
    }
    // SAFETY: within the operation of the call.
    match unsafe { InFlight::enter(tables, id) } {
        // SAFETY: as above.
        Ok(miss) => match unsafe { answer(&miss, vp, id) } {
            Ok(header) => Packed::header(header),
            Err(error) => Packed::error(error),
        },
        Err(Absent::Mediated(mediator)) => Packed::mediated(mediator),
        Err(absent) => Packed::error(CallError::absent(id, absent)),
    }
}

/// Finds or makes the representative that answers a miss on this VP, and installs it.
///
/// # Safety
/// Within the operation of the call.
#[inline(always)]
pub(crate) unsafe fn answer(
    miss: &InFlight<'_, Tables>,
    vp: Vp,
    id: Id,
) -> Result<NonNull<Header>, CallError> {
    let class = miss.object().class;
    let found = if class.kind == ObjectKind::Shared {
        // SAFETY: an object of that kind, with its whole block.
        Found { owner: unsafe { shared_owner(miss.block()) }, cache: true }
    } else {
        // SAFETY: within its gate, and an operation.
        unsafe { (class.more.resolve)(miss.block(), vp) }
            .map_err(|refusal| CallError::unnamed(Some((class.name)()), id, CallErrorKind::Refused(refusal.0)))?
    };
    // SAFETY: a representative of this object, which has that interface.
    let header = unsafe { header(found.owner, miss.index()) };
    if found.cache {
        miss.install(vp.index(), header);
    }
    Ok(header)
}

/// What a call that may block reaches.
enum Reached {
    /// A representative, held; and what arbitrates the call.
    Held(Hold, Option<Arc<Arbitration>>),
    /// It waits for a swap, and begins again.
    Parked(Park),
    /// Nothing.
    Nothing(CallError),
}

/// Finds a representative, and takes a hold on it. Within an operation.
#[inline]
fn reach(id: Id, again: bool) -> Reached {
    // SAFETY: as in `__call`.
    let found = match unsafe { hit(entry_here(id.slot()), id) } {
        Some(header) => Resolved::Header(header),
        None => resolve(id).open(),
    };
    match found {
        Resolved::Header(header) => Reached::Held(Hold::new(header), None),
        Resolved::Error(error) => Reached::Nothing(error),
        // SAFETY: found in this operation.
        Resolved::Mediated(mediator) => match unsafe { swap::meet(id, mediator, again) } {
            Met::Pass(pass) => {
                // Counted until it is held: so who finds no call counted finds every hold.
                let hold = Hold::new(pass.header);
                // SAFETY: valid in this operation.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::clone);
                Reached::Held(hold, arbitration)
            }
            Met::Park(park) => Reached::Parked(park),
            Met::Error(error) => Reached::Nothing(error),
        },
    }
}

#[cold]
#[inline(never)]
fn refused<I: ?Sized + Interface>(
    co: Handle<I>,
    method: &'static str,
    error: squall_rcu::PinError,
) -> CallError {
    let reason = match error {
        squall_rcu::PinError::Forked => CallErrorKind::Forked,
        squall_rcu::PinError::Reentrant => CallErrorKind::Reentrant,
    };
    CallError::new(I::NAME, None, co.id, method, reason)
}

/// A hold on a representative, for a call that may block.
struct Hold(NonNull<Header>);

impl Hold {
    /// Within the operation in which the header was found.
    fn new(header: NonNull<Header>) -> Hold {
        // SAFETY: valid in that operation.
        unsafe { header.as_ref() }.hold();
        Hold(header)
    }

    /// What it keeps.
    fn object(&self) -> NonNull<Object> {
        // SAFETY: held by us, and from a table or a miss.
        unsafe { object_of(self.0) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(tables) = existing() {
            // SAFETY: held by us.
            unsafe { release(tables, self.0) };
        }
    }
}

/// Not public: how a method that may block is called.
#[doc(hidden)]
pub trait Blocking<I: ?Sized, R, F> {
    /// The call.
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R;
}

/// Not public: its arguments are used up by a call.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Once;

/// Not public: it can be called again with the same arguments.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Many;

impl<I: ?Sized + Interface, R, F: FnOnce(&I) -> R> Blocking<I, R, F> for Once {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        co.__call_blocking(method, f, gone)
    }
}

impl<I: ?Sized + Interface, R, F: FnMut(&I) -> R> Blocking<I, R, F> for Many {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        co.__call_blocking_again(method, f, gone)
    }
}

/// Not public: picks how a method with these arguments is called.
#[doc(hidden)]
#[derive(Debug)]
pub struct Arguments<A>(PhantomData<fn() -> A>);

impl<A> Arguments<A> {
    /// See the type.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Arguments<A> {
        Arguments(PhantomData)
    }
}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait CopiedArguments: Sized {
    /// They can be used again.
    #[inline(always)]
    fn __squall_issue(self) -> Many {
        Many
    }
}
impl<A: Copy> CopiedArguments for Arguments<A> {}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait MovedArguments: Sized {
    /// They cannot.
    #[inline(always)]
    fn __squall_issue(self) -> Once {
        Once
    }
}
impl<A> MovedArguments for &Arguments<A> {}

/// Not public: what a method answers when there is no object.
#[doc(hidden)]
pub trait Answer<R> {
    /// The answer, or a panic in the caller.
    #[track_caller]
    fn answer(self, error: CallError) -> R;
}

/// Not public: the error is returned in the method's own type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Carry;

/// Not public: the caller panics.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Panic;

/// Not public: the error is returned as it is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Checked;

impl<T, E: From<CallError>> Answer<Result<T, E>> for Carry {
    fn answer(self, error: CallError) -> Result<T, E> {
        Err(error.into())
    }
}

impl<R> Answer<R> for Panic {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn answer(self, error: CallError) -> R {
        unanswered(error)
    }
}

impl<T> Answer<Result<T, CallError>> for Checked {
    fn answer(self, error: CallError) -> Result<T, CallError> {
        Err(error)
    }
}

/// Not public: picks how a method with this result answers.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gone<R>(PhantomData<fn() -> R>);

impl<R> Gone<R> {
    /// See the type.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Gone<R> {
        Gone(PhantomData)
    }
}

/// Not public: see [`Gone`].
#[doc(hidden)]
pub trait Carries: Sized {
    /// The error is carried.
    #[inline(always)]
    fn __squall_pick(self) -> Carry {
        Carry
    }
}
impl<T, E: From<CallError>> Carries for Gone<Result<T, E>> {}

/// Not public: see [`Gone`].
#[doc(hidden)]
pub trait Panics: Sized {
    /// The caller panics.
    #[inline(always)]
    fn __squall_pick(self) -> Panic {
        Panic
    }
}
impl<R> Panics for &Gone<R> {}
