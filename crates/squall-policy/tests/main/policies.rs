//! Policies: creation, interception, refusals, attributes, swaps.

use squall_core::swap::{Replacement, State, StateFormats, Swap};
use squall_core::wrap::Around;
use squall_core::{CallError, CallErrorKind, Handle, Owned, RepContext, Root, shared};
use squall_machine::ClusterSize;
use squall_policy::attribute::{self, Attribute, AttributeError, ClassValues, Schema, Scope, with};
use squall_policy::{Binding, Block, Created, Creation, GovernError, Governor, Policy, governed};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[squall_macros::interface(crate = squall_core)]
trait Count: Send + Sync {
    fn value(&self) -> u64;
}

#[squall_macros::interface(crate = squall_core)]
trait Hits: Count {
    fn add(&self, n: u64) -> u64;
    fn checked_add(&self, n: u64) -> Result<u64, CallError>;
    /// Has arguments that are not `Send`.
    fn show(&self, name: Rc<str>, show: &mut dyn FnMut(&str, u64)) -> Rc<str>;
    #[blocking]
    fn wait(&self, text: &str) -> String;
    fn fail(&self) -> u64;
}

#[derive(Default)]
struct Shared(AtomicU64);

impl Count for Shared {
    fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Hits for Shared {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Relaxed) + n
    }
    fn checked_add(&self, n: u64) -> Result<u64, CallError> {
        Ok(self.add(n))
    }
    fn show(&self, name: Rc<str>, show: &mut dyn FnMut(&str, u64)) -> Rc<str> {
        show(&name, self.value());
        name
    }
    fn wait(&self, text: &str) -> String {
        text.to_uppercase()
    }
    fn fail(&self) -> u64 {
        panic!("it failed")
    }
}

impl State for Shared {
    fn formats(formats: &mut StateFormats<'_, Shared>) {
        formats.export(|this| Ok(this.value())).import(|this, value: u64| {
            this.0.store(value, Relaxed);
            Ok(())
        });
    }
}

static LIMIT: Attribute<u64> =
    Attribute::<u64>::new("limit", 100).between(0, 1000).about("the most that is added");
static SHUT: Attribute<bool> = Attribute::new("shut", false);
static SCHEMA: Schema = Schema::new("limited", &[&LIMIT, &SHUT]).with_operations(&["add", "checked_add"]);
static CLASS: ClassValues = ClassValues::new(&SCHEMA);
static ELSEWHERE: Attribute<u64> = Attribute::new("elsewhere", 0);

/// Records the calls it sees, and refuses calls while it is shut or beyond the limit.
#[derive(Default)]
struct Limited {
    seen: Mutex<Vec<String>>,
    ended: AtomicU64,
}

impl Limited {
    fn note(&self, text: impl Into<String>) {
        self.seen.lock().unwrap().push(text.into());
    }
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Policy for Limited {
    fn class(&self) -> Option<&'static ClassValues> {
        Some(&CLASS)
    }
    fn set_state_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        self.note(format!("state of {}", creation.interface()));
        Ok(())
    }
    fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        self.note("object");
        creation.set(&LIMIT, 10)
    }
    fn set_operation_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let names: Vec<_> =
            creation.operations().map(|(name, blocks)| format!("{name}{}", u8::from(blocks))).collect();
        self.note(names.join(" "));
        creation.set_for("checked_add", &LIMIT, 3)
    }
    fn create(&self, creation: Creation<'_>) -> Result<Created, GovernError> {
        self.note("create");
        let created = creation.object_create();
        self.note("created");
        created
    }
    fn invoke(&self, block: &mut Block<'_>) {
        self.note(format!("{}{}", block.operation(), u8::from(block.can_be_sent())));
        match block.operation() {
            "add" | "checked_add" if block.get(&SHUT) => block.refuse("it is shut"),
            "add" if block.get(&LIMIT) == 0 => block.refuse("nothing may be added"),
            "checked_add" if block.get(&LIMIT) <= 3 => block.refuse("three is too little"),
            _ => {
                block.proceed();
                // Too late, and a second time: both have no effect.
                block.refuse("too late");
                block.proceed();
            }
        }
    }
    fn ended(&self) {
        self.ended.fetch_add(1, Relaxed);
    }
}

fn message<R>(f: impl FnOnce() -> R) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("it did not panic") };
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|t| (*t).into()))
        .unwrap()
}

#[test]
fn kt_07_the_policy_is_asked_in_ktks_order_before_there_is_an_object() {
    let binding = Binding::new(Limited::default());
    let hits: Owned<dyn Hits> = binding
        .govern(|binding| {
            assert_eq!(binding.id(), None);
            binding.note("value");
            Shared::default()
        })
        .unwrap();
    let operations = "add0 checked_add0 show0 wait1 fail0";
    assert_eq!(binding.seen(), ["state of Hits", "object", operations, "create", "value", "created"]);
    assert_eq!(binding.id(), Some(Handle::id(hits.handle())));
    let values = attribute::values_of(Handle::id(hits.handle())).unwrap();
    assert_eq!((values.get(&LIMIT), values.get_text("checked_add.limit").unwrap()), (10, "3".into()));
    // One binding, one object.
    let again = binding.govern::<dyn Hits, _>(|_| Shared::default()).unwrap_err();
    assert!(matches!(again, GovernError::Bound(id) if Some(id) == binding.id()), "{again}");
}

#[test]
fn kt_07_a_policy_that_does_not_make_the_object_leaves_none() {
    struct Never(u8);
    impl Policy for Never {
        fn class(&self) -> Option<&'static ClassValues> {
            Some(&CLASS)
        }
        fn set_state_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
            creation.set(&LIMIT, if self.0 == 0 { 5000 } else { 1 })
        }
        fn create(&self, _: Creation<'_>) -> Result<Created, GovernError> {
            Err(GovernError::Refused("never"))
        }
    }
    let made = Cell::new(false);
    for (kind, said) in [(0, "limit"), (1, "never")] {
        let make = |_: &Binding<Never>| {
            made.set(true);
            Shared::default()
        };
        let error = Binding::new(Never(kind)).govern::<dyn Hits, _>(make).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    assert!(!made.get());
}

#[test]
fn kt_08_every_call_goes_through_the_policy_with_what_it_borrows() {
    let binding = Binding::new(Limited::default());
    let hits: Owned<dyn Hits> = binding.govern(|_| Shared::default()).unwrap();
    binding.seen();
    assert_eq!(hits.add(2), 2);
    assert_eq!(hits.try_add(3).unwrap(), 5);
    let name: Rc<str> = "name".into();
    let mut shown = None;
    let same = hits.show(Rc::clone(&name), &mut |name, n| shown = Some((name.to_owned(), n)));
    assert!(Rc::ptr_eq(&same, &name) && shown == Some(("name".into(), 5)));
    assert_eq!(hits.wait("text"), "TEXT");
    assert_eq!(hits.value(), 5);
    assert_eq!(Handle::upcast::<dyn Count>(hits.handle()).value(), 5);
    assert_eq!(message(|| hits.fail()), "it failed");
    assert_eq!(binding.seen(), ["add1", "add1", "show0", "wait1", "value1", "value1", "fail1"]);
}

#[test]
fn kt_08_a_refusal_is_an_error_where_there_is_room_for_one() {
    let hits: Owned<dyn Hits> = governed(Limited::default(), |_| Shared::default());
    let error = hits.checked_add(1).unwrap_err();
    assert_eq!(error.reason(), CallErrorKind::Refused("three is too little"));
    let id = Handle::id(hits.handle());
    assert_eq!((error.interface(), error.method(), error.id()), ("Hits", "checked_add", id));
    assert!(error.class().unwrap().ends_with("Shared"), "the author's type: {error}");
    // The checked form of each method returns an error, nested or not. The plain form of a method without an
    // error panics.
    attribute::values_of(id).unwrap().set(&SHUT, true).unwrap();
    assert_eq!(hits.try_add(1).unwrap_err().reason(), CallErrorKind::Refused("it is shut"));
    assert_eq!(hits.try_checked_add(1).unwrap_err().reason(), CallErrorKind::Refused("it is shut"));
    let said = message(|| hits.add(1));
    assert_eq!(said, hits.try_add(1).unwrap_err().to_string());
    assert_eq!(hits.value(), 0, "none of them ran");
}

#[test]
fn kt_08_attributes_of_a_call_reach_its_policy_and_nobody_else() {
    let binding = Binding::new(Limited::default());
    let hits: Owned<dyn Hits> = binding.govern(|_| Shared::default()).unwrap();
    let refused = with(hits.handle(), (&LIMIT, 0), |hits| hits.try_add(1)).unwrap();
    assert_eq!(refused.unwrap_err().reason(), CallErrorKind::Refused("nothing may be added"));
    // The call's value wins over the operation's, and that over the object's.
    assert!(hits.checked_add(1).is_err());
    assert_eq!(with(hits.handle(), (&LIMIT, 4), |hits| hits.checked_add(1)).unwrap().unwrap(), 1);
    assert_eq!(hits.add(1), 2, "for that call alone");
    // An attribute that the policy does not have.
    let unknown = with(hits.handle(), (&ELSEWHERE, 4), |hits| hits.try_add(1)).unwrap().unwrap_err();
    assert!(unknown.to_string().contains("an attribute that its policy does not have"), "{unknown}");
    let values = binding.values().unwrap();
    assert_eq!(values.list().iter().find(|info| info.name == "limit").unwrap().from, Scope::Instance);
}

#[test]
fn kt_03_the_policy_survives_swaps_and_ends_with_the_object() {
    let binding = Binding::new(Limited::default());
    let hits: Owned<dyn Hits> = binding.govern_swappable(|_| Shared::default()).unwrap();
    assert_eq!(hits.add(7), 7);
    Swap::new(hits.handle()).run(binding.next_swappable(|_| Shared::default())).unwrap();
    assert_eq!(hits.add(1), 8, "with its state");
    assert!(hits.checked_add(1).is_err(), "the same policy");
    // A replacement that is dropped unused has no effect.
    drop::<Replacement<dyn Hits>>(binding.next(|_| Shared::default()));
    assert_eq!(binding.ended.load(Relaxed), 0);
    Owned::destroy(hits).wait().unwrap();
    squall_rcu::barrier().unwrap();
    assert_eq!(binding.ended.load(Relaxed), 1);
    assert!(binding.id().is_some_and(|id| attribute::values_of(id).is_none()));
}

/// A root that wraps each representative in the policy.
struct Map(Binding<Limited>);
struct Here(RepContext<Map>, AtomicU64);

impl Root for Map {
    type Interface = dyn Count;
    type Rep = Around<Governor<Limited>, Here>;
    fn make_rep(&self, at: RepContext<Map>) -> Self::Rep {
        self.0.around(Here(at, AtomicU64::new(1)))
    }
}

impl Count for Here {
    fn value(&self) -> u64 {
        self.0.gather(|here| here.1.load(Relaxed), |one, other| one + other).unwrap()
    }
}

#[test]
fn kt_06_a_policy_intercepts_the_calls_of_a_distributed_object() {
    let binding = Binding::new(Limited::default());
    let map: Owned<dyn Count> =
        binding.govern_root(|binding| Map(binding.clone()), ClusterSize::Cpu).unwrap();
    binding.seen();
    assert!(map.value() >= 1);
    assert_eq!(binding.seen(), ["value1"]);
}

#[test]
fn kt_10_an_object_reconfigures_itself_through_its_policy() {
    struct Own(Binding<Limited>);
    impl Count for Own {
        fn value(&self) -> u64 {
            // Calls the policy's functions and sets its attributes from inside a call.
            self.0.note("called");
            self.0.values().map(|values| values.set(&LIMIT, 77));
            self.0.values().map_or(0, |values| values.get(&LIMIT))
        }
    }
    let binding = Binding::new(Limited::default());
    let own: Owned<dyn Count> = binding.govern(|binding| Own(binding.clone())).unwrap();
    binding.seen();
    assert_eq!(own.value(), 77);
    assert_eq!(binding.seen(), ["value1", "called"]);
}

#[test]
fn a_wrapper_in_a_wrapper_asks_both() {
    let outer = Binding::new(Limited::default());
    let nested: Owned<dyn Hits> = outer.govern(|_| Around::new(Twice, Shared::default())).unwrap();
    outer.seen();
    assert_eq!(nested.add(1), 1);
    assert_eq!(outer.seen(), ["add1"]);
    assert_eq!(nested.try_fail().unwrap_err().reason(), CallErrorKind::Refused("twice"));
    assert_eq!(outer.seen(), ["fail1"]);
}

/// Refuses `fail`.
struct Twice;

impl squall_core::wrap::Wrap for Twice {
    fn around<R>(
        &self,
        call: &'static squall_core::wrap::Invoked,
        f: impl FnOnce() -> R,
    ) -> Result<R, squall_core::wrap::Refusal> {
        match call.method() {
            "fail" => Err(squall_core::wrap::Refusal::new(squall_core::Id::NULL, "twice")),
            _ => Ok(f()),
        }
    }
}

#[test]
fn a_policy_that_catches_a_panic_has_no_result_to_give() {
    struct Catches;
    impl Policy for Catches {
        fn invoke(&self, block: &mut Block<'_>) {
            let _ = catch_unwind(AssertUnwindSafe(|| block.proceed()));
        }
    }
    let hits: Owned<dyn Hits> = governed(Catches, |_| Shared::default());
    assert!(hits.try_fail().unwrap_err().to_string().contains("panicked before"));
    assert_eq!(hits.add(1), 1);
}

#[test]
fn an_object_without_a_policy_has_checked_forms_as_before() {
    let hits: Owned<dyn Hits> = shared(Shared::default());
    assert_eq!(hits.try_add(1).unwrap(), 1);
    // Through the trait itself, too.
    let local: &dyn Hits = &Shared::default();
    assert_eq!(local.try_add(1).unwrap(), 1);
}
