//! Records of 40 bytes, like those of KTK's lock sensor.
//! | word | bits | meaning |
//! |---|---|---|
//! | 0 | 0..32 | the writing thread, by the kernel's number |
//! | 0 | 32..48 | the VP it ran on; all ones: beyond 65534 |
//! | 0 | 48..64 | the kind's number |
//! | 1 | all | nanoseconds on the monitor's clock |
//! | 2 | all | the object |
//! | 3, 4 | all | the values |

use std::cell::Cell;
use std::fmt;
use std::time::SystemTime;

use squall_core::Id;
use squall_machine::Vp;
use squall_sys::trace::{Kind, Subject};

use super::clock::{now_ns, time_of_day};

/// Number of words of a record.
pub(super) const WORDS: usize = 5;

const VP_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 48;
/// Stored VP of all VPs that do not fit 16 bits.
const VP_BEYOND: u64 = 0xffff;

const _: () = assert!(size_of::<Record>() == 40);
const _: () = assert!(VP_SHIFT == u32::BITS && KIND_SHIFT - VP_SHIFT == u16::BITS);

/// Subject of a record: a clustered object by its [`Id`], a value such as a lock by its address, or a number
/// that the writer chose.
///
/// ```
/// use squall::policy::monitor::Object;
///
/// let lock = Object::number(7);
/// assert_eq!((lock.to_string().as_str(), lock.id()), ("#7", None));
/// assert_eq!(Object::NONE.to_string(), "-");
/// assert_eq!(Object::at(&lock).address(), Some(std::ptr::from_ref(&lock).addr()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object(Subject);

impl Object {
    /// No particular subject.
    pub const NONE: Object = Object(Subject::NONE);

    /// Creates a subject from a number that the writer chose.
    pub const fn number(number: u32) -> Object {
        Object(Subject::number(number))
    }

    /// Creates a subject from a value, by its address.
    pub fn at<T: ?Sized>(value: &T) -> Object {
        Object(Subject::at(value))
    }

    /// Returns the id, if the subject is a clustered object.
    pub const fn id(self) -> Option<Id> {
        let bits = self.0.bits();
        Id::from_parts(bits as u32, (bits >> u32::BITS) as u32)
    }

    /// Returns the address, if the subject is a value at an address.
    pub const fn address(self) -> Option<usize> {
        self.0.as_address()
    }
}

impl From<Subject> for Object {
    fn from(subject: Subject) -> Object {
        Object(subject)
    }
}

impl From<Id> for Object {
    fn from(id: Id) -> Object {
        Object(Subject::id(id.slot(), id.generation()))
    }
}

/// Prints an id as `17.3`, an address as `0x7f00d0`, a number as `#7`, and [`Object::NONE`] as `-`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id(), self.address()) {
            (Some(id), _) => write!(f, "{id}"),
            (None, Some(address)) => write!(f, "{address:#x}"),
            (None, None) if *self == Object::NONE => f.write_str("-"),
            (None, None) => write!(f, "#{}", self.0.bits()),
        }
    }
}

/// One event: its kind, time, VP, thread and object, and two values.
///
/// ```
/// use squall::policy::monitor::{Kind, Object, Record};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", "waited_ns"]);
/// let record = Record::now(&REFILL, Object::number(7), [32, 900]);
/// assert_eq!((record.kind().name(), record.values()), ("pool.refill", [32, 900]));
/// assert!(record.to_string().ends_with("pool.refill #7 items=32 waited_ns=900"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record([u64; WORDS]);

impl Record {
    /// Creates a record of an event here and now.
    ///
    /// # Cost
    /// One read of the clock.
    #[inline]
    pub fn now(kind: &'static Kind, object: impl Into<Object>, values: [u64; 2]) -> Record {
        let vp = (Vp::current().index() as u64).min(VP_BEYOND);
        let place = u64::from(kind.number()) << KIND_SHIFT | vp << VP_SHIFT | u64::from(thread_id());
        Record([place, now_ns(), object.into().0.bits(), values[0], values[1]])
    }

    pub(super) const fn from_words(words: [u64; WORDS]) -> Record {
        Record(words)
    }

    pub(super) const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Returns the kind.
    pub fn kind(&self) -> &'static Kind {
        Kind::of((self.0[0] >> KIND_SHIFT) as u16)
    }

    /// Returns the VP on which the thread ran.
    pub const fn vp(&self) -> Vp {
        Vp::new((self.0[0] >> VP_SHIFT & VP_BEYOND) as u32)
    }

    /// Returns the thread, by its number in the kernel.
    pub const fn thread(&self) -> u32 {
        self.0[0] as u32
    }

    /// Returns the time on the clock of [`now_ns`].
    pub const fn at_ns(&self) -> u64 {
        self.0[1]
    }

    /// Returns the time of day. It is computed from the system clock's value when the monitor's clock was
    /// first used.
    pub fn time_of_day(&self) -> SystemTime {
        time_of_day(self.0[1])
    }

    /// Returns the object.
    pub const fn object(&self) -> Object {
        Object(Subject::from_bits(self.0[2]))
    }

    /// Returns the values. The kind names them.
    pub const fn values(&self) -> [u64; 2] {
        [self.0[3], self.0[4]]
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints one line, without a line end.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, ns) = (self.kind(), self.at_ns());
        let (s, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        write!(
            f,
            "{s}.{rest:09} vp {} thread {}: {kind} {}",
            self.vp().index(),
            self.thread(),
            self.object()
        )?;
        for (index, (name, value)) in kind.value_names().into_iter().zip(self.values()).enumerate() {
            match kind.code_name(index, value) {
                _ if name.is_empty() => {}
                Some(code) => write!(f, " {name}={code}")?,
                None => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

/// Returns the kernel's number of the calling thread, cached. In a forked child it is the number of the
/// thread that forked.
#[inline]
fn thread_id() -> u32 {
    thread_local! {
        static ID: Cell<u32> = const { Cell::new(0) };
    }
    match ID.get() {
        0 => {
            ID.set(squall_sys::affinity::thread_id());
            ID.get()
        }
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_returns_its_fields() {
        static KIND: Kind = Kind::new("record.test", ["first", ""]);
        let id = Id::from_parts(17, 3).expect("it is one");
        let record = Record::now(&KIND, id, [u64::MAX, 5]);
        assert!(std::ptr::eq(record.kind(), &KIND));
        assert_eq!(record.object().id(), Some(id));
        assert_eq!(record.values(), [u64::MAX, 5]);
        assert_eq!(record.thread(), squall_sys::affinity::thread_id());
        let line = record.to_string();
        assert!(line.ends_with(": record.test 17.3 first=18446744073709551615"), "{line}");
    }

    #[test]
    fn numbers_and_ids_are_told_apart() {
        assert_eq!(Object::number(17).id(), None);
        assert_eq!(Object::number(17).to_string(), "#17");
        let id = Id::from_parts(17, 1).expect("it is one");
        assert_eq!(Object::from(id).to_string(), "17.1");
        assert_eq!(Object::NONE.to_string(), "-");
        let address = Object::from(Subject::address(0x7f00_d0c0_ffe0));
        assert_eq!((address.id(), address.to_string().as_str()), (None, "0x7f00d0c0ffe0"));
    }
}
