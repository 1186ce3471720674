//! Attributes that are fixed when an object is created, or at compile time.

use squall_core::{CallErrorKind, Handle, Owned};
use squall_policy::attribute::{
    self, Attribute, AttributeError, CallAttributes, ClassValues, InstanceValues, Received, Refusal, Schema,
    Scope, receive, with,
};
use squall_policy::invoke::{INVOCATION, Invocation, InvokeError, Invoker, call};
use squall_policy::{Binding, Block, Constant, Creation, Fixed, GovernError, Policy, Setting, Steered};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self) -> u64;
    fn count(&self) -> u64;
}

#[derive(Default)]
struct Shared(AtomicU64);

impl Hits for Shared {
    fn add(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
    fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

static LIMIT: Attribute<u64> = Attribute::<u64>::new("limit", 100).between(0, 1000);
static SHUT: Attribute<bool> = Attribute::new("shut", false);
static SCHEMA: Schema = Schema::new("limited", &[&LIMIT, &SHUT, &INVOCATION]).with_operations(&["add"]);

/// Declares a class for one test, because all objects of a class see the values set for it.
macro_rules! class {
    () => {{
        static CLASS: ClassValues = ClassValues::new(&SCHEMA);
        &CLASS
    }};
}

/// Fixes these values at creation. Refuses `add` above the limit.
struct Limited {
    class: &'static ClassValues,
    limit: Option<u64>,
    invocation: Option<Invocation>,
    seen: AtomicU64,
}

impl Limited {
    fn new(class: &'static ClassValues) -> Limited {
        Limited { class, limit: Some(7), invocation: None, seen: AtomicU64::new(0) }
    }
}

impl Policy for Limited {
    fn class(&self) -> Option<&'static ClassValues> {
        Some(self.class)
    }
    fn set_state_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        self.limit.map_or(Ok(()), |limit| creation.fix(&LIMIT, limit))
    }
    fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        self.invocation.map_or(Ok(()), |invocation| creation.fix(&INVOCATION, invocation))
    }
    fn invoke(&self, block: &mut Block<'_>) {
        self.seen.store(block.get(&LIMIT), Relaxed);
    }
}

fn words<T>(result: Result<T, AttributeError>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ad_02_a_value_fixed_at_creation_is_not_changed_by_anyone() {
    let class = class!();
    let binding = Binding::new(Limited::new(class));
    let hits: Owned<dyn Hits> = binding.govern(|_| Shared::default()).unwrap();
    let id = Handle::id(hits.handle());
    let values = attribute::values_of(id).unwrap();
    let said = format!(
        "attribute `limit` of object {id} of class limited: it was fixed to 7 when the object was created; \
         create another object for another value"
    );
    assert_eq!(words(values.set(&LIMIT, 8)), said);
    assert_eq!(words(values.set_text("limit", "8")), said);
    assert_eq!(words(values.unset("limit")), said);
    assert!(matches!(values.set(&LIMIT, 7).unwrap_err().refusal(), Refusal::Fixed { value } if value == "7"));
    let of_add = said.replace("of object", "of operation `add` of object");
    assert_eq!(words(values.set_for("add", &LIMIT, 8)), of_add);
    assert_eq!(words(values.set_text("add.limit", "8")), of_add);
    assert_eq!(words(values.unset("add.limit")), of_add);
    // The class has other objects, and can be set. This object keeps its value.
    class.set(&LIMIT, 9).unwrap();
    assert_eq!((hits.add(), binding.seen.load(Relaxed)), (1, 7));
    assert_eq!((values.get(&LIMIT), values.get_text("limit").unwrap()), (7, "7".into()));
    assert_eq!((values.fixed(&LIMIT), values.fixed(&SHUT)), (Some(7), None));
    let list = values.list();
    let info = list.iter().find(|info| info.name == "limit").unwrap();
    assert_eq!((info.from, info.from.to_string()), (Scope::Fixed, "fixed".into()));
    // Other attributes change as before.
    values.set(&SHUT, true).unwrap();
    values.set_for("add", &SHUT, false).unwrap();
    assert!(values.get(&SHUT) && !values.view(Some(0), Received::NONE).get(&SHUT));
}

#[test]
fn ad_02_a_call_with_a_fixed_attribute_is_refused() {
    let binding = Binding::new(Limited::new(class!()));
    let hits: Owned<dyn Hits> = binding.govern(|_| Shared::default()).unwrap();
    // Also with the value to which it is fixed.
    for limit in [7, 8] {
        let error = with(hits.handle(), (&LIMIT, limit), |hits| hits.try_add()).unwrap().unwrap_err();
        assert!(
            matches!(error.reason(), CallErrorKind::Refused(why) if why.contains("was fixed")),
            "{error}"
        );
    }
    assert_eq!(with(hits.handle(), (&SHUT, true), |hits| hits.add()).unwrap(), 1);
}

#[test]
fn ad_02_a_fixed_value_is_read_without_the_attributes_of_the_call() {
    let binding = Binding::new(Limited::new(class!()));
    let hits: Owned<dyn Hits> = binding.govern(|_| Shared::default()).unwrap();
    let values = binding.values().unwrap();
    let mut given = CallAttributes::new();
    given.set(&LIMIT, 8).unwrap().set(&SHUT, true).unwrap();
    with(hits.handle(), &given, |hits| {
        receive(hits, |call| {
            let view = values.view(Some(0), call);
            assert_eq!(
                (call.get(&LIMIT), view.get(&LIMIT), view.scope_of(&LIMIT)),
                (Some(8), 7, Scope::Fixed)
            );
            assert_eq!((view.get(&SHUT), view.scope_of(&SHUT)), (true, Scope::Call));
        });
    })
    .unwrap();
}

#[test]
fn ad_02_a_value_out_of_range_or_fixed_twice_is_refused_and_leaves_no_object() {
    let class = class!();
    let outside = Limited { limit: Some(5000), ..Limited::new(class) };
    let error = Binding::new(outside).govern::<dyn Hits, _>(|_| Shared::default()).unwrap_err();
    assert!(matches!(&error, GovernError::Attribute(error) if error.to_string().contains("out of range")));
    struct Twice(&'static ClassValues);
    impl Policy for Twice {
        fn class(&self) -> Option<&'static ClassValues> {
            Some(self.0)
        }
        fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
            creation.fix(&LIMIT, 1)?;
            creation.fix(&LIMIT, 1)?;
            creation.fix(&LIMIT, 2)
        }
    }
    let error = Binding::new(Twice(class)).govern::<dyn Hits, _>(|_| Shared::default()).unwrap_err();
    assert!(error.to_string().contains("it was fixed to 1"), "{error}");
    // A policy without a class has no attributes to fix.
    struct Without;
    impl Policy for Without {
        fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
            creation.fix(&LIMIT, 1)
        }
    }
    let hits: Owned<dyn Hits> = Binding::new(Without).govern(|_| Shared::default()).unwrap();
    assert_eq!(hits.add(), 1);
}

#[test]
fn ad_02_a_fixed_invocation_contradicts_that_of_a_call() {
    let _alone = crate::invocations::alone();
    let here = thread::current().id();
    for how in [Invocation::Synchronous, Invocation::Asynchronous] {
        let policy = Limited { invocation: Some(how), ..Limited::new(class!()) };
        let hits: Owned<dyn Hits> = Binding::new(policy).govern(|_| Shared::default()).unwrap();
        let hits = hits.handle();
        let ran = call(hits, |_| thread::current().id()).wait().unwrap();
        assert_eq!(ran == here, how == Invocation::Synchronous);
        assert_eq!(Invoker::new(hits).invocation(), how);
        let given = with(hits, (&INVOCATION, Invocation::Synchronous), |hits| call(hits, |hits| hits.add()));
        let Err(InvokeError::Call(error)) = given.unwrap().wait() else { panic!("it was not refused") };
        assert!(
            matches!(error.reason(), CallErrorKind::Refused(why) if why.contains("was fixed")),
            "{error}"
        );
    }
}

/// Counts the calls above a limit that is a constant or an attribute.
struct Counting<S> {
    class: &'static ClassValues,
    limit: S,
    above: AtomicU64,
}

impl<S> Counting<S> {
    fn new(class: &'static ClassValues, limit: S) -> Counting<S> {
        Counting { class, limit, above: AtomicU64::new(0) }
    }
}

impl<S: Setting<u64>> Policy for Counting<S> {
    fn class(&self) -> Option<&'static ClassValues> {
        Some(self.class)
    }
    fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        self.limit.declare(creation, &LIMIT)
    }
    fn invoke(&self, block: &mut Block<'_>) {
        self.above.fetch_add(self.limit.get(block, &LIMIT), Relaxed);
    }
}

struct Three;

impl Constant for Three {
    type Value = u64;
    const VALUE: u64 = 3;
}

struct TooMany;

impl Constant for TooMany {
    type Value = u64;
    const VALUE: u64 = 3000;
}

#[test]
fn ad_02_a_policy_is_written_once_for_a_setting_that_is_fixed_or_steered() {
    let class = class!();
    let steered = Binding::new(Counting::new(class, Steered));
    let hits: Owned<dyn Hits> = steered.govern(|_| Shared::default()).unwrap();
    steered.values().unwrap().set(&LIMIT, 10).unwrap();
    hits.add();
    with(hits.handle(), (&LIMIT, 5), |hits| hits.add()).unwrap();
    assert_eq!(steered.above.load(Relaxed), 15);

    let fixed = Binding::new(Counting::new(class, Fixed::<Three>::new()));
    let hits: Owned<dyn Hits> = fixed.govern(|_| Shared::default()).unwrap();
    class.set(&LIMIT, 20).unwrap();
    hits.add();
    assert_eq!(fixed.above.load(Relaxed), 3);
    // People see the value, and cannot change it.
    let values = fixed.values().unwrap();
    assert_eq!(values.get_text("limit").unwrap(), "3");
    assert!(words(values.set(&LIMIT, 4)).contains("it was fixed to 3"));
    assert!(with(hits.handle(), (&LIMIT, 4), |hits| hits.try_add()).unwrap().is_err());
    // A fixed setting takes no room in the policy.
    assert_eq!(size_of::<Counting<Fixed<Three>>>(), size_of::<Counting<()>>());
    assert_eq!(format!("{:?}", Fixed::<Three>::new()), "Fixed(3)");

    let beyond = Binding::new(Counting::new(class, Fixed::<TooMany>::new()));
    let error = beyond.govern::<dyn Hits, _>(|_| Shared::default()).unwrap_err();
    assert!(error.to_string().contains("3000 is out of range"), "{error}");
}

#[test]
fn ad_02_values_that_are_fixed_take_no_room_in_an_object_without_any() {
    assert!(size_of::<InstanceValues>() <= 80);
}
