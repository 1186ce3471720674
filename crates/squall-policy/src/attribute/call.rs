//! Attributes of one call: the caller gives them, the callee receives them.
//!
//! Problem: attributes must reach their callee through stubs that do not know of them. They must not reach
//! any other call, and an object that interprets no attributes must not pay.
//!
//! Idea: [`with`] addresses the attributes to one object and stores them in a few words of the thread. The
//! object, or the policy around it, fetches them with [`receive`], which hides them from all other callees
//! while it runs.
//!
//! - I1. Waiting attributes are addressed: only a `receive` of that object sees them.
//! - I2. While a `receive` runs that saw attributes, the only waiting attributes are those of a `with` inside
//!   it. So calls from inside the `receive` have no attributes of the received call, unless a `with` gives
//!   them again.
//! - I3. When a `with` or a `receive` ends, also by a panic, the waiting attributes are those that waited
//!   when it began.
//!
//! Not promised: an object that never receives does not consume its attributes. A later call of the same
//! object within that `with` could still receive them. Other objects cannot (I1).
//! Cost: the caller writes 16 bytes for each attribute, once. Allocation starts beyond 32 waiting attributes
//! of nested calls.
//! Source: KTK §2.1 (`INVOKE q$op(args) <attributes>`). KTK stores them in the invocation block that every
//! invocation has; here a call without attributes has no block.

use squall_core::{Handle, Id, Interface, interfaces_count};
use std::fmt;
use std::marker::PhantomData;

use super::error::{AttributeError, Holder, Refusal};
use super::schema::Schema;
use super::value::Value;
#[cfg(feature = "policies")]
use super::values::InstanceValues;
use super::waiting::{Entry, Frame, Span, Waiting, with_waiting};
use super::{Attribute, Head};

/// Largest number of attributes that one call can have.
pub const CALL_ATTRIBUTES_MAX: usize = 8;

/// Attributes for one call, as a plain value. It can be built, kept, and sent to another thread, and is given
/// to a call by reference.
///
/// ```
/// use squall::policy::attribute::{Attribute, CallAttributes};
///
/// static PRIORITY: Attribute<u32> = Attribute::<u32>::new("priority", 5).between(0, 9);
///
/// let mut urgent = CallAttributes::new();
/// urgent.set(&PRIORITY, 9)?;
/// assert_eq!((urgent.get(&PRIORITY), urgent.len()), (Some(9), 1));
/// assert!(urgent.set(&PRIORITY, 10).is_err());
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
#[derive(Clone, Copy)]
pub struct CallAttributes {
    count: usize,
    entries: [Entry; CALL_ATTRIBUTES_MAX],
}

impl CallAttributes {
    /// An empty list.
    pub const NONE: CallAttributes = CallAttributes { count: 0, entries: [Entry::NONE; CALL_ATTRIBUTES_MAX] };

    /// Creates an empty list.
    pub const fn new() -> CallAttributes {
        CallAttributes::NONE
    }

    /// Adds an attribute, or replaces its value.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`], and [`Refusal::TooMany`] above [`CALL_ATTRIBUTES_MAX`]. The list stays as it
    /// was.
    pub fn set<T: Value>(
        &mut self,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<&mut CallAttributes, AttributeError> {
        let bits = attribute.encode(value).map_err(|refusal| refuse(attribute.identity(), refusal))?;
        self.put(attribute.identity(), bits)
    }

    /// Adds an attribute of a class by name, with its value as text.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::WrongType`], [`Refusal::OutOfRange`], and [`Refusal::TooMany`] above
    /// [`CALL_ATTRIBUTES_MAX`]. The list stays as it was.
    ///
    /// ```
    /// use squall::policy::attribute::{Attribute, CallAttributes, Schema};
    ///
    /// static PRIORITY: Attribute<u32> = Attribute::<u32>::new("priority", 5).between(0, 9);
    /// static SCHEMA: Schema = Schema::new("queue", &[&PRIORITY]);
    ///
    /// let mut urgent = CallAttributes::new();
    /// urgent.set_text(&SCHEMA, "priority", "9")?;
    /// assert_eq!(urgent.names().collect::<Vec<_>>(), ["priority"]);
    /// # Ok::<(), squall::policy::attribute::AttributeError>(())
    /// ```
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

    /// Returns the value of an attribute, if the list has it.
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> Option<T> {
        let entry = self.entries().iter().find(|entry| entry.is_of(attribute.identity()));
        entry.map(|entry| T::from_bits(entry.bits))
    }

    /// Removes an attribute, and returns its value if the list had it.
    #[cfg(feature = "policies")]
    pub(crate) fn take<T: Value>(&mut self, attribute: &'static Attribute<T>) -> Option<T> {
        let value = self.get(attribute)?;
        // Attributes that were received may contain one twice; the first counts.
        let (before, count) = (self.entries, self.count);
        self.count = 0;
        for entry in before[..count].iter().filter(|entry| !entry.is_of(attribute.identity())) {
            self.entries[self.count] = *entry;
            self.count += 1;
        }
        Some(value)
    }

    /// Returns the number of attributes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the names of the attributes, in the order in which they were set.
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

/// Attributes given to a call. The callee gets them from [`receive`].
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// Range in the thread's stack; empty if the call has no attributes. One word, so that it is passed in a
    /// register.
    span: Span,
    // `!Send`: another thread has another stack.
    life: PhantomData<&'a Waiting>,
}

impl Received<'_> {
    /// An empty list.
    pub const NONE: Received<'static> = Received { span: Span::EMPTY, life: PhantomData };

    /// Returns the value of an attribute, if it was given.
    ///
    /// # Cost
    /// One comparison for each attribute given.
    #[inline(always)]
    pub fn get<T: Value>(self, attribute: &'static Attribute<T>) -> Option<T> {
        self.find(attribute.identity()).map(T::from_bits)
    }

    /// Returns the number of attributes.
    #[inline]
    pub fn len(self) -> usize {
        self.span.count()
    }

    /// Returns `true` if the call has no attributes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the names of the attributes, in the order in which they were given.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.heads().map(|head| head.name)
    }

    /// Checks that the class of the callee has each of the attributes.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], for the first attribute that the class does not have.
    /// # Cost
    /// For each attribute given, one comparison with each attribute of the class.
    #[inline]
    pub fn check(self, schema: &'static Schema) -> Result<(), AttributeError> {
        match self.heads().find(|head| schema.index_of(head).is_none()) {
            None => Ok(()),
            Some(head) => Err(schema.unknown(head.name, Holder::call(Some(schema.class())))),
        }
    }

    /// Returns `true` if one of the attributes was fixed when the object with these values was created.
    #[cfg(feature = "policies")]
    #[inline]
    pub(crate) fn contradicts(self, values: &InstanceValues) -> bool {
        self.heads().any(|head| values.fixed_bits(head).is_some())
    }

    /// Copies the attributes, so that they can outlive the call or move to another thread.
    ///
    /// ```
    /// use squall::Handle;
    /// use squall::policy::attribute::{Attribute, CallAttributes, receive, with};
    /// #[squall::interface]
    /// trait Door: Send + Sync {
    ///     fn open(&self);
    /// }
    /// # struct Wood;
    /// # impl Door for Wood { fn open(&self) {} }
    /// static WIDE: Attribute<bool> = Attribute::new("wide", false);
    ///
    /// let door: squall::Owned<dyn Door> = squall::shared(Wood);
    /// let kept: CallAttributes = with(door.handle(), (&WIDE, true), |door| receive(door, |call| call.keep()))?;
    /// assert_eq!(kept.get(&WIDE), Some(true));
    /// # Ok::<(), squall::policy::attribute::AttributeError>(())
    /// ```
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

    /// Returns the bits given for the attribute with this head.
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
        /// Checks that each value may be given.
        fn check(&self) -> Result<(), AttributeError>;
        /// Returns the number of attributes, at most `CALL_ATTRIBUTES_MAX`.
        fn count(&self) -> usize;
        /// Writes the attributes to `frame`, which has room for [`count`](Sealed::count) entries.
        fn write(&self, waiting: &Waiting, frame: &Frame);
    }
}
use sealed::Sealed;

/// Accepted by [`with`]: an attribute and its value, a tuple of up to four such pairs, a reference to
/// [`CallAttributes`], or a [`Received`]. If an attribute is given twice, the first value applies.
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

/// Gives attributes to a call: `f` makes the call, and each call of `handle` inside `f` has the attributes.
///
/// They apply to that call alone. Calls of other objects in `f`, calls that the callee makes, other threads,
/// shipped closures, and a future that `f` returns do not have them. The callee passes them on by giving them
/// again. A `with` inside this one hides these until it ends. An object that interprets no attributes ignores
/// them.
///
/// # Errors
/// [`Refusal::OutOfRange`]: `f` was not called.
/// # Cost
/// One check and one write of two words for each attribute. Allocates only if nested calls have more than 32
/// attributes together.
/// # Example
/// ```
/// use squall::policy::attribute::{Attribute, receive, with};
/// #[squall::interface]
/// trait Queue: Send + Sync {
///     fn put(&self, item: u64) -> u32;
/// }
/// struct Fifo(squall::Handle<dyn Queue>);
/// impl Queue for Fifo {
///     fn put(&self, _item: u64) -> u32 {
///         receive(self.0, |call| call.get(&PRIORITY).unwrap_or(PRIORITY.default()))
///     }
/// }
/// static PRIORITY: Attribute<u32> = Attribute::new("priority", 5);
///
/// let queue = squall::shared_with(Fifo).unwrap();
/// assert_eq!(with(queue.handle(), (&PRIORITY, 9), |queue| queue.put(1))?, 9);
/// assert_eq!(queue.put(2), 5);
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
#[inline(always)]
pub fn with<I, G, R>(handle: Handle<I>, given: G, f: impl FnOnce(Handle<I>) -> R) -> Result<R, AttributeError>
where
    I: ?Sized + Interface,
    G: Given,
{
    given.check()?;
    let _frame = with_waiting(|waiting| {
        let frame = waiting.push(Handle::id(handle), given.count());
        given.write(waiting, &frame);
        frame
    });
    Ok(f(handle))
}

/// Receiver of attributes: an object, under the ids of all its interfaces.
#[derive(Clone, Copy, Debug)]
pub struct Callee {
    first: Id,
    interfaces: u32,
}

impl<I: ?Sized + Interface> From<Handle<I>> for Callee {
    /// The object of this handle, called through the handle's interface or one that the interface extends.
    fn from(handle: Handle<I>) -> Callee {
        Callee { first: Handle::id(handle), interfaces: interfaces_count::<I>() }
    }
}

impl From<Id> for Callee {
    /// The object, called through exactly the interface with this id.
    fn from(id: Id) -> Callee {
        Callee { first: id, interfaces: 1 }
    }
}

impl Callee {
    #[inline(always)]
    fn is(self, id: Id) -> bool {
        // An object has consecutive slots of one generation as its ids.
        id.generation() == self.first.generation()
            && id.slot().wrapping_sub(self.first.slot()) < self.interfaces
    }
}

/// Fetches the attributes given to this call. Used in a method of `callee`, or in the policy around it.
///
/// `f` gets the attributes that were given to the call of `callee` that this thread makes, or an empty list.
/// Calls that `f` makes do not have them. A method that is repeated because its object was swapped receives
/// them again.
///
/// # Cost
/// Without attributes, one load of a thread-local word.
///
/// ```
/// use squall::policy::attribute::{Attribute, receive, with};
/// # #[squall::interface]
/// # trait Door: Send + Sync {
/// #     fn open(&self);
/// # }
/// # struct Wood;
/// # impl Door for Wood { fn open(&self) {} }
/// static WIDE: Attribute<bool> = Attribute::new("wide", false);
/// # let door: squall::Owned<dyn Door> = squall::shared(Wood);
///
/// let inner = with(door.handle(), (&WIDE, true), |door| {
///     receive(door, |call| {
///         assert_eq!(call.get(&WIDE), Some(true));
///         // Hidden from calls made in here.
///         receive(door, |inner| inner.is_empty())
///     })
/// })?;
/// assert!(inner);
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
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
