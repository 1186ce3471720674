//! Interfaces that extend others.

use squall::{ClusterSize, RepContext, Root};

use super::*;

/// An object with a name.
#[interface]
pub trait Named: Send + Sync {
    /// Returns the name.
    fn name(&self) -> String;
}

/// A source of values.
#[interface]
pub trait Source<T>: Named + Send + Sync + Unpin {
    /// Reads the next value.
    fn read(&self) -> Option<T>;
}

/// A sink of values.
#[interface]
pub trait Sink<T>: Named + 'static {
    /// Writes a value.
    fn write(&self, value: T);
}

/// A source and a sink: `Named` is extended twice.
#[interface]
pub trait Pipe<T>: Source<T> + Sink<T> {
    /// Returns the number of values.
    fn len(&self) -> usize;
    /// Returns true without values.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Stack<T>(Mutex<Vec<T>>);

impl<T: Send> Named for Stack<T> {
    fn name(&self) -> String {
        "stack".into()
    }
}
impl<T: Send + Unpin> Source<T> for Stack<T> {
    fn read(&self) -> Option<T> {
        self.0.lock().unwrap().pop()
    }
}
impl<T: Send + 'static> Sink<T> for Stack<T> {
    fn write(&self, value: T) {
        self.0.lock().unwrap().push(value);
    }
}
impl<T: Send + Unpin + 'static> Pipe<T> for Stack<T> {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn pipe() -> Owned<dyn Pipe<u32>> {
    shared(Stack(Mutex::default()))
}

#[test]
fn inherited_methods() {
    let pipe = pipe();
    assert!(pipe.is_empty());
    pipe.write(7);
    assert_eq!((pipe.len(), pipe.name()), (1, "stack".into()));
    assert_eq!(pipe.try_read().unwrap(), Some(7));
}

#[test]
fn upcasts_over_both_sides_of_a_diamond() {
    let pipe = pipe();
    let source: Handle<dyn Source<u32>> = Handle::upcast::<dyn Source<u32>>(pipe.handle());
    let sink: Handle<dyn Sink<u32>> = Handle::upcast::<dyn Sink<u32>>(pipe.handle());
    let named: [Handle<dyn Named>; 2] =
        [Handle::upcast::<dyn Named>(source), Handle::upcast::<dyn Named>(sink)];
    sink.write(1);
    assert_eq!((pipe.len(), source.read(), pipe.len()), (1, Some(1), 0));
    assert_eq!(named.map(|named| named.name()), ["stack", "stack"]);

    Owned::destroy(pipe);
    assert_eq!(source.try_read().unwrap_err().interface(), "Source");
    assert_eq!(sink.try_write(1).unwrap_err().interface(), "Sink");
    assert!(named.iter().all(|named| named.try_name().unwrap_err().interface() == "Named"));
}

#[test]
fn generic_code_over_a_base() {
    fn name_of<N: Named>(named: N) -> String {
        named.name()
    }
    assert_eq!(name_of(pipe().handle()), "stack");
}

/// One base interface with two types.
#[interface]
trait Both: Sink<u8> + Sink<u16> {}

struct Sum(AtomicU64);
impl Named for Sum {
    fn name(&self) -> String {
        format!("sum {}", self.0.load(Relaxed))
    }
}
impl<T: Into<u64>> Sink<T> for Sum {
    fn write(&self, value: T) {
        self.0.fetch_add(value.into(), Relaxed);
    }
}
impl Both for Sum {}

#[test]
fn one_base_twice() {
    let both: Owned<dyn Both> = shared(Sum(AtomicU64::new(0)));
    Handle::upcast::<dyn Sink<u8>>(both.handle()).write(200);
    Handle::upcast::<dyn Sink<u16>>(both.handle()).write(300);
    assert_eq!(both.name(), "sum 500");
}

/// A distributed pipe, with a stack for each processor.
struct PerCpu;

struct Local {
    stack: Stack<u32>,
    at: RepContext<PerCpu>,
}

impl Root for PerCpu {
    type Interface = dyn Pipe<u32>;
    type Rep = Local;
    fn make_rep(&self, at: RepContext<Self>) -> Local {
        Local { stack: Stack(Mutex::default()), at }
    }
}
impl Named for Local {
    fn name(&self) -> String {
        format!("one of {}", self.at.reps().count())
    }
}
impl Source<u32> for Local {
    fn read(&self) -> Option<u32> {
        self.at.reps().find_map(|rep| rep.stack.read())
    }
}
impl Sink<u32> for Local {
    fn write(&self, value: u32) {
        self.stack.write(value);
    }
}
impl Pipe<u32> for Local {
    fn len(&self) -> usize {
        self.at.reps().map(|rep| rep.stack.len()).sum()
    }
}

#[test]
fn upcasts_of_a_distributed_object() {
    let pipe: Owned<dyn Pipe<u32>> = PerCpu.create(ClusterSize::Cpu);
    let (source, sink) =
        (Handle::upcast::<dyn Source<u32>>(pipe.handle()), Handle::upcast::<dyn Sink<u32>>(pipe.handle()));
    let named = Handle::upcast::<dyn Named>(sink);
    // The first call of each interface is a miss under its own id.
    assert!(named.name().starts_with("one of "));
    std::thread::scope(|threads| {
        for value in 0..4 {
            threads.spawn(move || sink.write(value));
        }
    });
    let mut read: Vec<_> = std::iter::from_fn(|| source.read()).collect();
    read.sort_unstable();
    assert_eq!((read.as_slice(), pipe.len()), ([0, 1, 2, 3].as_slice(), 0));
    Owned::destroy(pipe);
    assert!(named.try_name().is_err() && sink.try_write(1).is_err() && source.try_read().is_err());
}
