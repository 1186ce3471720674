//! The attributes of one call: what the caller gives, and what the callee receives.
//!
//! Problem: what is given to a call must reach its callee through stubs that know nothing of it, must not reach any other
//! call, and an object that interprets none must not pay.
//!
//! Idea: [`with`] addresses the attributes to one object and leaves them in a few words of the thread; the object, or the
//! policy around it, asks for them by [`receive`], which hides them from all others while it runs.
//!
//! - I1. What waits is addressed: only a `receive` of that object sees it.
//! - I2. While a `receive` runs that saw some, none wait, except those of a `with` inside it. So nothing that is called
//!   from there has them, unless they are given again.
//! - I3. When a `with` or a `receive` ends, by a panic too, what waits is what waited when it began.
//!
//! Not promised: that an object which never receives, called in a `with` of its own, hides what was given from a later
//! call of itself; nobody else can see it (I1).
//! Cost: the caller writes 16 bytes for each attribute, once. No allocation before calls are nested 32 attributes deep.
//! Source: KTK §2.1 (`INVOKE q$op(args) <attributes>`). There they lie in the invocation block, which every invocation
//! has; here a call has none unless something is given.

use squall_core::{Handle, Id, Interface, interfaces_count};
use std::fmt;
use std::marker::PhantomData;

use super::error::{AttributeError, Holder, Refusal};
use super::schema::Schema;
use super::value::Value;
use super::waiting::{Entry, Frame, Span, Waiting, with_waiting};
use super::{Attribute, Head};

/// The most attributes that can be given to one call.
pub const CALL_ATTRIBUTES_MAX: usize = 8;

/// Attributes for one call: an ordinary value, that can be built, kept, and sent to another thread, and is given to a call
/// by reference.
#[derive(Clone, Copy)]
pub struct CallAttributes {
    count: usize,
    entries: [Entry; CALL_ATTRIBUTES_MAX],
}

impl CallAttributes {
    /// None.
    pub const NONE: CallAttributes = CallAttributes { count: 0, entries: [Entry::NONE; CALL_ATTRIBUTES_MAX] };

    /// None yet.
    pub const fn new() -> CallAttributes {
        CallAttributes::NONE
    }

    /// Adds an attribute, or replaces its value.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`]; [`Refusal::TooMany`] above [`CALL_ATTRIBUTES_MAX`]. Nothing was changed.
    pub fn set<T: Value>(
        &mut self,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<&mut CallAttributes, AttributeError> {
        let bits = attribute.encode(value).map_err(|refusal| refuse(attribute.identity(), refusal))?;
        self.put(attribute.identity(), bits)
    }

    /// Adds an attribute of a class by name, its value as text.
    ///
    /// # Errors
    /// As [`set`](Self::set), and [`Refusal::Unknown`] and [`Refusal::WrongType`].
    pub fn set_text(
        &mut self,
        schema: &'static Schema,
        name: &str,
        text: &str,
    ) -> Result<&mut CallAttributes, AttributeError> {
        let (_, attribute) = schema.by_name(name, || Holder::call(Some(schema.class())))?;
        let refused =
            |refusal| AttributeError::new(Holder::call(Some(schema.class())), attribute.name(), refusal);
        let bits = attribute.parse(text).map_err(refused)?;
        self.put(attribute.head(), bits)
    }

    /// The value of an attribute, if it is among them.
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> Option<T> {
        let entry = self.entries().iter().find(|entry| entry.is_of(attribute.identity()));
        entry.map(|entry| T::from_bits(entry.bits))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The names of the attributes, in the order in which they were set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries().iter().filter_map(|entry| entry.head).map(|head| head.name)
    }

    fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    fn put(&mut self, head: &'static Head, bits: u64) -> Result<&mut CallAttributes, AttributeError> {
        let at = self.entries().iter().position(|entry| entry.is_of(head)).unwrap_or(self.count);
        let Some(entry) = self.entries.get_mut(at) else {
            return Err(refuse(head, Refusal::TooMany { max: CALL_ATTRIBUTES_MAX }));
        };
        *entry = Entry::new(head, bits);
        self.count = self.count.max(at + 1);
        Ok(self)
    }
}

impl Default for CallAttributes {
    fn default() -> CallAttributes {
        CallAttributes::NONE
    }
}

impl fmt::Debug for CallAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// What was given to a call: its callee has it from [`receive`].
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// Of the thread's stack; empty, if nothing was given. One word, so that it is passed in a register.
    span: Span,
    // Not to be sent: another thread has another stack.
    life: PhantomData<&'a Waiting>,
}

impl Received<'_> {
    /// Nothing.
    pub const NONE: Received<'static> = Received { span: Span::EMPTY, life: PhantomData };

    /// The value of an attribute, if it was given.
    ///
    /// # Cost
    /// A comparison for each attribute given.
    #[inline(always)]
    pub fn get<T: Value>(self, attribute: &'static Attribute<T>) -> Option<T> {
        self.find(attribute.identity()).map(T::from_bits)
    }

    /// How many there are.
    #[inline]
    pub fn len(self) -> usize {
        self.span.count()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The names of the attributes, in the order in which they were given.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.heads().map(|head| head.name)
    }

    /// Whether each is an attribute of this class: for who interprets them.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], of the first that is not.
    /// # Cost
    /// For each attribute given a comparison with each of the class.
    #[inline]
    pub fn check(self, schema: &'static Schema) -> Result<(), AttributeError> {
        match self.heads().find(|head| schema.index_of(head).is_none()) {
            None => Ok(()),
            Some(head) => Err(schema.unknown(head.name, Holder::call(Some(schema.class())))),
        }
    }

    /// The attributes themselves, to be kept longer than the call, or by another thread.
    pub fn keep(self) -> CallAttributes {
        let mut own = CallAttributes::NONE;
        for (place, entry) in own.entries.iter_mut().zip(self.entries()) {
            *place = entry;
            own.count += 1;
        }
        own
    }

    #[inline]
    fn entries(self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(move |place| with_waiting(|waiting| waiting.entry(self.span.first() + place)))
    }

    #[inline]
    fn heads(self) -> impl Iterator<Item = &'static Head> {
        self.entries().filter_map(|entry| entry.head)
    }

    /// The bits given for the attribute with this head.
    #[inline(always)]
    pub(super) fn find(self, head: &'static Head) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        with_waiting(|waiting| waiting.find(self.span, head))
    }
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cold]
fn refuse(head: &Head, refusal: Refusal) -> AttributeError {
    AttributeError::new(Holder::call(None), head.name, refusal)
}

mod sealed {
    use super::{AttributeError, Frame, Waiting};

    pub trait Sealed {
        /// Whether each value may be given.
        fn check(&self) -> Result<(), AttributeError>;
        /// How many there are: `CALL_ATTRIBUTES_MAX` at most.
        fn count(&self) -> usize;
        /// Writes them to the frame that waits, which was made for as many.
        fn write(&self, waiting: &Waiting, frame: &Frame);
    }
}
use sealed::Sealed;

/// What [`with`] gives to a call: an attribute and its value, a tuple of up to four such pairs, a reference to
/// [`CallAttributes`], or what was [`Received`]. Of an attribute that is given twice, the first counts.
pub trait Given: Sealed {}

impl<T: Value> Sealed for (&'static Attribute<T>, T) {
    #[inline(always)]
    fn check(&self) -> Result<(), AttributeError> {
        if self.0.accepts(self.1) {
            return Ok(());
        }
        self.0.encode(self.1).map(drop).map_err(|refusal| refuse(self.0.identity(), refusal))
    }

    #[inline(always)]
    fn count(&self) -> usize {
        1
    }

    #[inline(always)]
    fn write(&self, waiting: &Waiting, frame: &Frame) {
        waiting.write(frame, 0, Entry::new(self.0.identity(), self.1.to_bits()));
    }
}

impl<T: Value> Given for (&'static Attribute<T>, T) {}

impl Sealed for Received<'_> {
    #[inline]
    fn check(&self) -> Result<(), AttributeError> {
        Ok(())
    }

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn write(&self, waiting: &Waiting, frame: &Frame) {
        for (place, entry) in self.entries().enumerate() {
            waiting.write(frame, place, entry);
        }
    }
}

impl Given for Received<'_> {}

impl Sealed for &CallAttributes {
    #[inline]
    fn check(&self) -> Result<(), AttributeError> {
        Ok(())
    }

    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn write(&self, waiting: &Waiting, frame: &Frame) {
        for (place, entry) in self.entries().iter().enumerate() {
            waiting.write(frame, place, *entry);
        }
    }
}

impl Given for &CallAttributes {}

macro_rules! given_tuple {
    ($count:literal: $($value:ident $field:tt),+) => {
        impl<$($value: Value),+> Sealed for ($((&'static Attribute<$value>, $value),)+) {
            #[inline(always)]
            fn check(&self) -> Result<(), AttributeError> {
                $(self.$field.check()?;)+
                Ok(())
            }

            #[inline(always)]
            fn count(&self) -> usize {
                const { assert!($count <= CALL_ATTRIBUTES_MAX) };
                $count
            }

            #[inline(always)]
            fn write(&self, waiting: &Waiting, frame: &Frame) {
                $(waiting.write(frame, $field, Entry::new(self.$field.0.identity(), self.$field.1.to_bits()));)+
            }
        }

        impl<$($value: Value),+> Given for ($((&'static Attribute<$value>, $value),)+) {}
    };
}
given_tuple!(1: A 0);
given_tuple!(2: A 0, B 1);
given_tuple!(3: A 0, B 1, C 2);
given_tuple!(4: A 0, B 1, C 2, D 3);

/// Gives attributes to a call: `f` makes the call, and each call of `co` that it makes has them.
///
/// They are for that call alone. A call of another object in `f` does not have them, nor does what the callee calls, nor
/// another thread, nor a future that `f` returns, which runs later; the callee passes them on by giving them again. A
/// `with` inside this one hides these until it ends. An object that interprets no attributes ignores them.
///
/// # Errors
/// [`Refusal::OutOfRange`]: `f` was not called.
/// # Cost
/// A check and a write of two words for each attribute. No allocation, unless calls with attributes are nested so deep that
/// they have more than 32 together.
/// # Example
/// `with(queue, (&PRIORITY, 3), |queue| queue.put(item))?`, or, with two,
/// `with(queue, ((&PRIORITY, 3), (&URGENT, true)), |queue| queue.put(item))?`; the module has a whole one.
#[inline(always)]
pub fn with<I, G, R>(co: Handle<I>, given: G, f: impl FnOnce(Handle<I>) -> R) -> Result<R, AttributeError>
where
    I: ?Sized + Interface,
    G: Given,
{
    given.check()?;
    let _frame = with_waiting(|waiting| {
        let frame = waiting.push(Handle::id(co), given.count());
        given.write(waiting, &frame);
        frame
    });
    Ok(f(co))
}

/// Who receives: an object, under the ids of all its interfaces.
#[derive(Clone, Copy, Debug)]
pub struct Callee {
    first: Id,
    interfaces: u32,
}

impl<I: ?Sized + Interface> From<Handle<I>> for Callee {
    /// The object, called by this interface or one that it extends.
    fn from(co: Handle<I>) -> Callee {
        Callee { first: Handle::id(co), interfaces: interfaces_count::<I>() }
    }
}

impl From<Id> for Callee {
    /// The object, called by exactly the interface of this id.
    fn from(id: Id) -> Callee {
        Callee { first: id, interfaces: 1 }
    }
}

impl Callee {
    #[inline(always)]
    fn is(self, id: Id) -> bool {
        // The ids of one object are consecutive slots of one generation.
        id.generation() == self.first.generation()
            && id.slot().wrapping_sub(self.first.slot()) < self.interfaces
    }
}

/// Fetches what was given to this call: in a method of `callee`, or in the policy around it.
///
/// `f` gets the attributes that were given to the call which this thread makes of `callee`; none, if none were. While it
/// runs, calls that it makes have none. A method that is made again, since its object was swapped while it slept,
/// receives them again.
///
/// # Cost
/// Without attributes, the load of a thread-local word.
#[inline(always)]
pub fn receive<R>(callee: impl Into<Callee>, f: impl FnOnce(Received<'_>) -> R) -> R {
    let hidden = with_waiting(|waiting| {
        let given = waiting.span().count() != 0 && callee.into().is(waiting.callee());
        given.then(|| waiting.hide())
    });
    match hidden {
        None => f(Received::NONE),
        Some(hidden) => f(Received { span: hidden.span(), life: PhantomData }),
    }
}
