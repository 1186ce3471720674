//! Attributes: each scope, each type as text and typed, each error message.

use squall_core::{Handle, Id, Owned, shared_with};
use squall_policy::attribute::{
    self, AnyAttribute, Attribute, AttributeError, CALL_ATTRIBUTES_MAX, CallAttributes, Choice, ClassValues,
    InstanceValues, Kind, Received, Refusal, Schema, Scope, Value, choices, receive, with,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

choices! {
    /// How a waiter waits.
    enum Wait {
        /// Reads again and again.
        Spin = "spin",
        /// Sleeps.
        Block = "block",
        /// First one, then the other.
        SpinThenBlock = "spin-then-block",
    }
}

static FAIR: Attribute<bool> =
    Attribute::new("fair", false).about("whether waiters go in the order of their arrival");
static SPINS: Attribute<u64> =
    Attribute::<u64>::new("spins", 100).between(0, 10_000).in_unit("rounds").about("before a waiter sleeps");
static WIDTH: Attribute<u32> = Attribute::new("width", 7);
static BIAS: Attribute<i64> = Attribute::<i64>::new("bias", -1).between(-5, 5);
static SHARE: Attribute<f64> = Attribute::<f64>::new("share", 0.5).between(0.0, 1.0);
static LEVEL: Attribute<f64> = Attribute::new("level", 2.0);
static PATIENCE: Attribute<Duration> = Attribute::<Duration>::new("patience", Duration::from_millis(250))
    .between(Duration::from_micros(1), Duration::from_secs(10));
static WAIT: Attribute<Wait> = Attribute::new("wait", Wait::Spin);
/// Belongs to no class.
static STRANGER: Attribute<u64> = Attribute::new("stranger", 9);

static LOCK: Schema = Schema::new("lock", &[&FAIR, &SPINS, &WIDTH, &BIAS, &SHARE, &LEVEL, &PATIENCE, &WAIT])
    .with_operations(&["lock", "unlock"]);

/// Declares a class for one test, because all objects of a class see the values set for it.
macro_rules! lock_class {
    () => {{
        static CLASS: ClassValues = ClassValues::new(&LOCK);
        &CLASS
    }};
}

fn words<T>(result: Result<T, AttributeError>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_object_on_which_nothing_is_set_is_small() {
    assert!(size_of::<InstanceValues>() <= 80);
}

#[test]
fn the_innermost_scope_counts() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    let mut call = CallAttributes::new();
    call.set(&SPINS, 4).unwrap();
    let call = &call;
    let owner = probe();
    let in_call = |f: &dyn Fn(Received<'_>)| {
        with(owner.handle(), call, |co| receive(co, f)).unwrap();
    };
    let seen = |call: Received<'_>| {
        let view = values.view(Some(0), call);
        (view.get(&SPINS), view.scope_of(&SPINS))
    };

    assert_eq!(seen(Received::NONE), (100, Scope::Default));
    class.set(&SPINS, 1).unwrap();
    assert_eq!(seen(Received::NONE), (1, Scope::Class));
    values.set(&SPINS, 2).unwrap();
    assert_eq!(seen(Received::NONE), (2, Scope::Instance));
    values.set_for("lock", &SPINS, 3).unwrap();
    assert_eq!(seen(Received::NONE), (3, Scope::Operation));
    in_call(&|received| assert_eq!(seen(received), (4, Scope::Call)));

    // The other operation, the object as a whole, another object and the class have values of their own.
    assert_eq!(values.view(Some(1), Received::NONE).get(&SPINS), 2);
    assert_eq!(values.view(None, Received::NONE).get(&SPINS), 2);
    assert_eq!(values.get(&SPINS), 2);
    assert_eq!(InstanceValues::of_class(class).get(&SPINS), 1);
    assert_eq!(class.get(&SPINS), 1);
    // An attribute that no scope sets, next to one that all scopes set.
    in_call(&|received| assert_eq!(values.view(Some(0), received).get(&WIDTH), 7));

    // Unset again, from the innermost scope outwards.
    assert_eq!(values.unset("lock.spins"), Ok(true));
    assert_eq!(values.unset("lock.spins"), Ok(false));
    assert_eq!(seen(Received::NONE), (2, Scope::Instance));
    assert_eq!(values.unset("spins"), Ok(true));
    assert_eq!(seen(Received::NONE), (1, Scope::Class));
    assert_eq!(class.unset("spins"), Ok(true));
    assert_eq!(seen(Received::NONE), (100, Scope::Default));
    // Only an operation has a value.
    let other = InstanceValues::of_class(lock_class!());
    other.set_for("unlock", &SPINS, 6).unwrap();
    let spins = |operation| other.view(operation, Received::NONE).get(&SPINS);
    assert_eq!((spins(Some(0)), spins(Some(1)), spins(Some(2)), spins(None)), (100, 6, 100, 100));
    // Set again after it was unset.
    values.set(&SPINS, 5).unwrap();
    assert_eq!(seen(Received::NONE), (5, Scope::Instance));
}

#[test]
fn typed_and_text_are_the_same_setting() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    values.set_text("fair", " true ").unwrap();
    values.set_text("spins", "10000").unwrap();
    values.set_text("width", "4294967295").unwrap();
    values.set_text("bias", "-5").unwrap();
    values.set_text("share", "0.25").unwrap();
    values.set_text("level", "-1e300").unwrap();
    values.set_text("patience", "1.5s").unwrap();
    values.set_text("wait", "spin-then-block").unwrap();
    assert!(values.get(&FAIR));
    assert_eq!(values.get(&SPINS), 10_000);
    assert_eq!(values.get(&WIDTH), u32::MAX);
    assert_eq!(values.get(&BIAS), -5);
    assert_eq!(values.get(&SHARE), 0.25);
    assert_eq!(values.get(&LEVEL), -1e300);
    assert_eq!(values.get(&PATIENCE), Duration::from_millis(1500));
    assert_eq!(values.get(&WAIT), Wait::SpinThenBlock);

    values.set(&WAIT, Wait::Block).unwrap();
    assert_eq!(values.get_text("wait").unwrap(), "block");
    values.set(&PATIENCE, Duration::from_micros(80)).unwrap();
    assert_eq!(values.get_text("patience").unwrap(), "80us");
    assert_eq!(
        values.get_text("unlock.patience").unwrap(),
        "80us",
        "the object's, as nothing is set for `unlock`"
    );
    class.set_text("bias", "3").unwrap();
    assert_eq!(class.get(&BIAS), 3);
    assert_eq!(class.get_text("bias").unwrap(), "3");
    assert_eq!(class.get_text("share").unwrap(), "0.5");

    // Listed values can be set on another object, and then its list is equal.
    let other = InstanceValues::of_class(class);
    values.set_for("unlock", &SPINS, 8).unwrap();
    for info in values.list() {
        other.set_text(&info.path(), &info.value).unwrap();
        assert_eq!(other.get_text(&info.path()).unwrap(), info.value, "{}", info.path());
    }
    let shown =
        |values: &InstanceValues| values.list().iter().map(|info| info.value.clone()).collect::<Vec<_>>();
    assert_eq!(shown(&other), shown(&values));
}

#[test]
fn a_list_says_what_there_is_to_know() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    class.set(&WAIT, Wait::Block).unwrap();
    values.set(&SPINS, 12).unwrap();
    values.set_for("unlock", &SPINS, 13).unwrap();
    let list = values.list();
    let line = |path: &str| {
        let info = list.iter().find(|info| info.path() == path).unwrap();
        format!(
            "{}: {} = {} {} ({}; {}; {}) from {}",
            info.path(),
            info.kind,
            info.value,
            info.unit,
            info.default,
            info.range,
            info.about,
            info.from
        )
    };
    assert_eq!(list.len(), 9);
    assert_eq!(
        line("spins"),
        "spins: u64 = 12 rounds (100; 0 to 10000; before a waiter sleeps) from instance"
    );
    assert_eq!(
        line("unlock.spins"),
        "unlock.spins: u64 = 13 rounds (100; 0 to 10000; before a waiter sleeps) from operation"
    );
    assert_eq!(line("wait"), "wait: choice = block  (spin; spin, block, spin-then-block; ) from class");
    assert_eq!(
        line("fair"),
        "fair: bool = false  (false; true, false; whether waiters go in the order of their arrival) from default"
    );
    assert_eq!(line("patience"), "patience: duration = 250ms  (250ms; 1us to 10s; ) from default");
    assert_eq!(line("level"), "level: f64 = 2.0  (2.0; finite; ) from default");
    assert_eq!(line("width"), "width: u32 = 7  (7; 0 to 4294967295; ) from default");
    assert_eq!(list[1].kind, Kind::U64);
    assert_eq!(list[7].kind, Kind::Choice(Wait::NAMES));
    assert_eq!(class.list().len(), 8);
    assert_eq!(class.list()[7].from, Scope::Class);
    assert!(format!("{values:?}").starts_with(r#"{"fair": "false", "spins": "12""#));
}

#[test]
fn an_unknown_name_is_answered_with_those_there_are() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    let names = "its attributes are `fair`, `spins`, `width`, `bias`, `share`, `level`, `patience`, `wait`";

    // An unknown name.
    assert_eq!(
        words(values.set_text("spin", "3")),
        format!("an object of class lock has no attribute `spin`; {names}")
    );
    assert_eq!(words(class.set_text("", "3")), format!("class lock has no attribute ``; {names}"));
    assert_eq!(
        words(values.get_text("Spins")),
        format!("an object of class lock has no attribute `Spins`; {names}")
    );
    assert_eq!(words(class.unset("x")), format!("class lock has no attribute `x`; {names}"));
    assert_eq!(
        words(values.set(&STRANGER, 1)),
        format!("an object of class lock has no attribute `stranger`; {names}")
    );
    assert_eq!(
        words(values.set_text("lock.spin", "3")),
        format!("operation `lock` of an object of class lock has no attribute `spin`; {names}")
    );
    assert_eq!(
        words(values.set_for("unlock", &STRANGER, 3)),
        format!("operation `unlock` of an object of class lock has no attribute `stranger`; {names}")
    );
    // An unknown operation.
    let operations = "its operations are `lock`, `unlock`";
    assert_eq!(
        words(values.set_text("lok.spins", "3")),
        format!("an object of class lock has no operation `lok`; {operations}")
    );
    assert_eq!(
        words(values.set_for("lok", &SPINS, 3)),
        format!("an object of class lock has no operation `lok`; {operations}")
    );
    static BARE: Schema = Schema::new("bare", &[]);
    static BARE_CLASS: ClassValues = ClassValues::new(&BARE);
    let bare = InstanceValues::of_class(&BARE_CLASS);
    assert_eq!(words(bare.set_text("x", "1")), "an object of class bare has no attribute `x`; it has none");
    assert_eq!(words(bare.set_text("o.x", "1")), "an object of class bare has no operation `o`; it has none");

    // All values are unchanged.
    assert!(values.list().iter().chain(&class.list()).all(|info| info.from == Scope::Default));
    // The error's fields are accessible.
    let error = values.set_text("lok.spins", "3").unwrap_err();
    assert_eq!((error.name(), error.holder().class_name(), error.holder().id()), ("lok", Some("lock"), None));
    assert_eq!(error.refusal(), &Refusal::UnknownOperation { operations: &["lock", "unlock"] });
}

#[test]
fn a_wrong_type_is_answered_with_what_is_taken() {
    let values = InstanceValues::of_class(lock_class!());
    let spins = "a whole number from 0 to 10000, in rounds";
    let wrong = |name: &str, text: &str, takes: &str| {
        assert_eq!(
            words(values.set_text(name, text)),
            format!(
                "attribute `{name}` of an object of class lock: `{text}` is of the wrong type; it takes {takes}"
            )
        );
    };
    wrong("fair", "yes", "`true` or `false`");
    wrong("spins", "many", spins);
    wrong("spins", "1.5", spins);
    wrong("spins", "", spins);
    wrong("width", "0x10", "a whole number from 0 to 4294967295");
    wrong("bias", "- 1", "a whole number from -5 to 5");
    wrong("share", "half", "a number from 0.0 to 1.0");
    for text in ["nan", "inf", "-infinity", "NaN"] {
        wrong("level", text, "a finite number");
    }
    for text in [
        "5",
        "ms",
        "-1ms",
        "1.ms",
        ".5ms",
        "1..5s",
        "1.2.3s",
        "1e3s",
        "5 minutes",
        "0.5ns",
        "1.0001us",
        "5 m s",
    ] {
        wrong("patience", text, "a duration from 1us to 10s");
    }
    wrong("wait", "Spin", "one of `spin`, `block`, `spin-then-block`");
    // All values are unchanged.
    assert!(values.list().iter().all(|info| info.from == Scope::Default));
}

#[test]
fn a_value_out_of_range_is_answered_with_the_range() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    let spins = "a whole number from 0 to 10000, in rounds";
    let beyond = |name: &str, text: &str, takes: &str| {
        assert_eq!(
            words(values.set_text(name, text)),
            format!(
                "attribute `{name}` of an object of class lock: {text} is out of range; it takes {takes}"
            )
        );
    };
    beyond("spins", "10001", spins);
    beyond("spins", "-1", spins);
    beyond("spins", "18446744073709551616", spins);
    beyond("spins", "1000000000000000000000000000000000000000000000", spins);
    beyond("width", "4294967296", "a whole number from 0 to 4294967295");
    beyond("bias", "6", "a whole number from -5 to 5");
    beyond("share", "1.5", "a number from 0.0 to 1.0");
    beyond("level", "1e999", "a finite number");
    beyond("patience", "999ns", "a duration from 1us to 10s");
    beyond("patience", "10.000000001s", "a duration from 1us to 10s");
    beyond("patience", "99999999999999999999s", "a duration from 1us to 10s");
    beyond("patience", "18446744073709551615s", "a duration from 1us to 10s");
    assert_eq!(
        words(class.set(&SHARE, f64::NAN)),
        "attribute `share` of class lock: NaN is out of range; it takes a number from 0.0 to 1.0"
    );
    assert_eq!(
        words(values.set(&LEVEL, f64::INFINITY)),
        "attribute `level` of an object of class lock: inf is out of range; it takes a finite number"
    );
    assert_eq!(
        words(values.set_for("lock", &SPINS, 20_000)),
        "attribute `spins` of operation `lock` of an object of class lock: 20000 is out of range; \
         it takes a whole number from 0 to 10000, in rounds"
    );
    static FOREVER: Attribute<Duration> = Attribute::new("forever", Duration::ZERO);
    assert!(!FOREVER.accepts(Duration::MAX));
    assert!(FOREVER.accepts(Duration::from_nanos(u64::MAX)));
    // All values are unchanged.
    assert!(values.list().iter().chain(&class.list()).all(|info| info.from == Scope::Default));
}

#[test]
fn errors_escape_and_truncate_foreign_text() {
    let values = InstanceValues::of_class(lock_class!());
    let shown = words(values.set_text("spins", "\u{1b}[2J\n\0"));
    assert!(shown.contains(r"`\u{1b}[2J\n\0` is of the wrong type"), "{shown}");
    let shown = words(values.set_text("spins", &"9x".repeat(1 << 20)));
    assert!(shown.len() < 300 && shown.contains("9x…` is of the wrong type"), "{shown}");
    let shown = words(values.set_text(&"é\n".repeat(1 << 20), "1"));
    assert!(shown.len() < 500 && shown.contains(r"é\n…`"), "{shown}");
}

#[test]
fn an_object_with_an_id_is_named_by_it() {
    let class = lock_class!();
    let owner = probe();
    let id = Handle::id(owner.handle());
    let values = attribute::attach(id, Arc::new(InstanceValues::of_class(class)));
    assert_eq!(values.id(), Some(id));
    assert_eq!(
        words(values.set(&BIAS, 9)),
        format!(
            "attribute `bias` of object {id} of class lock: 9 is out of range; it takes a whole number from -5 to 5"
        )
    );
    assert_eq!(
        words(values.set_text("lock.bias", "9")),
        format!(
            "attribute `bias` of operation `lock` of object {id} of class lock: 9 is out of range; \
             it takes a whole number from -5 to 5"
        )
    );
    // The values attached first stay.
    let late = attribute::attach(id, Arc::new(InstanceValues::of_class(class)));
    assert!(Arc::ptr_eq(&late, &values) && Arc::ptr_eq(&attribute::values_of(id).unwrap(), &values));
    assert!(attribute::attached().contains(&id));
    assert!(Arc::ptr_eq(&attribute::detach(id).unwrap(), &values));
    assert!(attribute::values_of(id).is_none() && attribute::detach(id).is_none());
}

/// Checks that the text and the bits of a value convert back to the same value.
fn round_trip<T: Value + PartialEq + std::fmt::Debug>(value: T) {
    let text = value.show();
    let read = T::parse(&text).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
    // Compared by bits, because 0.0 and -0.0 are two values.
    assert_eq!(read.to_bits(), value.to_bits(), "{text:?}");
    assert_eq!(T::from_bits(value.to_bits()), value);
    assert_eq!(T::parse(&format!("\t {text} \n")), Ok(read));
    assert!(value.is_regular() && value.at_most(value));
}

#[test]
fn text_can_be_read_back() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, !(1 << bit)]);
    let tens = (0..20)
        .flat_map(|power| [10_u64.pow(power), 10_u64.pow(power) - 1, 10_u64.pow(power).wrapping_mul(15)]);
    let drawn: Vec<u64> = (0..20_000).map(|_| random() >> (random() % 64)).collect();
    let count = edges.clone().chain(tens.clone()).chain(drawn).map(|bits| {
        round_trip(bits);
        round_trip(bits as u32);
        round_trip(bits as i64);
        round_trip(Duration::from_nanos(bits));
        let float = f64::from_bits(bits);
        if float.is_finite() {
            round_trip(float);
        }
        round_trip(bits as i64 as f64 / 1000.0);
    });
    assert_eq!(count.count(), 192 + 60 + 20_000);
    [0.0, -0.0, f64::MIN, f64::MAX, f64::MIN_POSITIVE, f64::EPSILON].into_iter().for_each(round_trip);
    [true, false].into_iter().for_each(round_trip);
    [i64::MIN, -1, 0, i64::MAX].into_iter().for_each(round_trip);
    for choice in Wait::ALL {
        round_trip(*choice);
    }
    // As a whole attribute, too.
    for text in ["1us", "250ms", "1.5s", "9.999999999s", "80.001us"] {
        let bits = AnyAttribute::parse(&PATIENCE, text).unwrap();
        assert_eq!(AnyAttribute::show(&PATIENCE, bits), text);
    }
}

#[test]
fn durations_are_read_with_their_unit() {
    let read = |text| <Duration as Value>::parse(text).unwrap();
    assert_eq!(read("250ms"), Duration::from_millis(250));
    assert_eq!(read("1.5s"), Duration::from_millis(1500));
    assert_eq!(read("80us"), Duration::from_micros(80));
    assert_eq!(read("80µs"), Duration::from_micros(80));
    assert_eq!(read("80\u{3bc}s"), Duration::from_micros(80));
    assert_eq!(read("30ns"), Duration::from_nanos(30));
    assert_eq!(read("0s"), Duration::ZERO);
    assert_eq!(read("2 ms"), Duration::from_millis(2));
    assert_eq!(read("0.000000001s"), Duration::from_nanos(1));
    assert_eq!(read("1.500000000000s"), Duration::from_millis(1500));
    assert_eq!(read("007ns"), Duration::from_nanos(7));
    let show = |duration: Duration| duration.show();
    assert_eq!(show(Duration::ZERO), "0ns");
    assert_eq!(show(Duration::from_nanos(999)), "999ns");
    assert_eq!(show(Duration::from_nanos(1_050)), "1.05us");
    assert_eq!(show(Duration::from_millis(60_000)), "60s");
    assert_eq!(show(Duration::new(1, 1)), "1.000000001s");
}

#[test]
fn readers_see_whole_values_while_others_set() {
    let class = lock_class!();
    let values = InstanceValues::of_class(class);
    let (low, high) = (Duration::from_micros(1), Duration::new(9, 999_999_999));
    let done = AtomicBool::new(false);
    let start = Barrier::new(4);
    let reads = std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                start.wait();
                let mut reads = 0_u64;
                while !done.load(Ordering::Relaxed) || reads < 1000 {
                    let view = values.view(Some(1), Received::NONE);
                    let patience = view.get(&PATIENCE);
                    assert!([low, high, PATIENCE.default()].contains(&patience), "{patience:?}");
                    assert!([0.0, 1.0, 0.5].contains(&view.get(&SHARE)));
                    let spins = values.get_text("unlock.spins").unwrap();
                    assert!(["0", "10000", "100"].contains(&spins.as_str()), "{spins}");
                    reads += 1;
                }
                reads
            })
        });
        for which in 0..2 {
            let (values, start, done) = (&values, &start, &done);
            scope.spawn(move || {
                start.wait();
                for round in 0..2_000 {
                    let even = (round + which) % 2 == 0;
                    values.set(&PATIENCE, if even { low } else { high }).unwrap();
                    class.set_text("patience", if even { "1us" } else { "9.999999999s" }).unwrap();
                    values.set_text("unlock.share", if even { "0.0" } else { "1.0" }).unwrap();
                    values.set_for("unlock", &SPINS, if even { 0 } else { 10_000 }).unwrap();
                    if round % 3 == 0 {
                        values.unset("patience").unwrap();
                        class.unset("patience").unwrap();
                        values.unset("unlock.spins").unwrap();
                        values.unset("unlock.share").unwrap();
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(reads.iter().all(|reads| *reads >= 1000));
}

// Attributes of one call.

#[squall_macros::interface(crate = squall_core)]
trait Probe: Send + Sync {
    /// Returns the spins and the bias given to this call.
    fn given(&self) -> (Option<u64>, Option<i64>);
    /// Calls `other` without attributes, with all attributes passed on, and with one passed on. Returns the
    /// spins that each call got.
    fn nested(&self, other: Handle<dyn Probe>) -> [Option<u64>; 3];
    /// Receives, and panics.
    fn panic(&self);
    /// Returns the spins of this call, and those of a call of itself from the inside.
    fn again(&self) -> (Option<u64>, Option<u64>);
    /// Calls itself `depth` times, each time with different attributes.
    fn dive(&self, depth: u64) -> u64;
    /// Calls `other` without receiving.
    fn ignore(&self, other: Handle<dyn Probe>) -> Option<u64>;
}

#[squall_macros::interface(crate = squall_core)]
trait WideProbe: Probe {
    fn more(&self) -> Option<u64>;
}

struct Plain<I: ?Sized>(Handle<I>);

impl<I: ?Sized + squall_core::Interface> Plain<I> {
    fn spins(&self) -> Option<u64> {
        receive(self.0, |call| call.get(&SPINS))
    }
}

impl<I: ?Sized + squall_core::Interface + Probe> Probe for Plain<I> {
    fn given(&self) -> (Option<u64>, Option<i64>) {
        receive(self.0, |call| (call.get(&SPINS), call.get(&BIAS)))
    }

    fn nested(&self, other: Handle<dyn Probe>) -> [Option<u64>; 3] {
        receive(self.0, |call| {
            let whole = with(other, call, |other| other.given().0).unwrap();
            let part = match call.get(&SPINS) {
                Some(spins) => with(other, (&SPINS, spins + 1), |other| other.given().0).unwrap(),
                None => None,
            };
            // The received attributes are still there.
            assert_eq!(call.len(), call.names().count());
            [other.given().0, whole, part]
        })
    }

    fn panic(&self) {
        receive(self.0, |call| panic!("{:?}", call.get(&SPINS)))
    }

    fn again(&self) -> (Option<u64>, Option<u64>) {
        receive(self.0, |call| (call.get(&SPINS), self.0.given().0))
    }

    fn dive(&self, depth: u64) -> u64 {
        receive(self.0, |call| {
            let mine = call.get(&SPINS);
            let below = match depth {
                0 => 0,
                _ => with(self.0, ((&BIAS, 1), (&SPINS, depth), (&FAIR, true)), |co| co.dive(depth - 1))
                    .unwrap(),
            };
            // This frame is unchanged by the later ones.
            assert_eq!(call.get(&SPINS), mine);
            assert_eq!(call.keep().get(&SPINS), mine);
            below + mine.unwrap_or(0)
        })
    }

    fn ignore(&self, other: Handle<dyn Probe>) -> Option<u64> {
        other.given().0
    }
}

impl WideProbe for Plain<dyn WideProbe> {
    fn more(&self) -> Option<u64> {
        self.spins()
    }
}

fn probe() -> Owned<dyn Probe> {
    shared_with(Plain).unwrap()
}

const NOTHING: (Option<u64>, Option<i64>) = (None, None);

#[test]
fn a_call_has_what_it_was_given() {
    let owner = probe();
    let co = owner.handle();
    assert_eq!(co.given(), NOTHING);
    assert_eq!(with(co, (&SPINS, 3), |co| co.given()), Ok((Some(3), None)));
    assert_eq!(with(co, ((&SPINS, 3),), |co| co.given()), Ok((Some(3), None)));
    assert_eq!(with(co, ((&BIAS, -2), (&SPINS, 4)), |co| co.given()), Ok((Some(4), Some(-2))));
    let three = ((&FAIR, true), (&BIAS, -2), (&SPINS, 4));
    assert_eq!(with(co, three, |co| co.given()), Ok((Some(4), Some(-2))));
    let four = ((&FAIR, true), (&WAIT, Wait::Block), (&BIAS, -2), (&SPINS, 4));
    assert_eq!(with(co, four, |co| co.given()), Ok((Some(4), Some(-2))));
    assert_eq!(with(co, ((&SPINS, 5), (&SPINS, 6)), |co| co.given()), Ok((Some(5), None)));
    assert_eq!(with(co, &CallAttributes::NONE, |co| co.given()), Ok(NOTHING));
    // No attribute is left.
    assert_eq!(co.given(), NOTHING);
}

#[test]
fn a_value_that_a_call_must_not_have_is_refused_before_it() {
    let owner = probe();
    let never = |_: Handle<dyn Probe>| panic!("called");
    assert_eq!(
        words(with(owner.handle(), (&SPINS, 10_001), never)),
        "attribute `spins` of a call: 10001 is out of range; it takes a whole number from 0 to 10000, in rounds"
    );
    assert_eq!(
        words(with(owner.handle(), ((&FAIR, true), (&SHARE, -0.5)), never)),
        "attribute `share` of a call: -0.5 is out of range; it takes a number from 0.0 to 1.0"
    );
    assert_eq!(
        words(with(owner.handle(), (&LEVEL, f64::NAN), never)),
        "attribute `level` of a call: NaN is out of range; it takes a finite number"
    );
    assert_eq!(owner.handle().given(), NOTHING);
}

#[test]
fn attributes_are_for_the_addressed_call_alone() {
    let (owner, other_owner) = (probe(), probe());
    let (co, other) = (owner.handle(), other_owner.handle());
    with(co, (&SPINS, 3), |co| {
        assert_eq!(other.given(), NOTHING, "another object");
        assert_eq!(
            co.nested(other),
            [None, Some(3), Some(4)],
            "what the callee calls, and what it passes on"
        );
        assert_eq!(co.again(), (Some(3), None), "the same object, from the inside");
        assert_eq!(co.ignore(other), None, "an object called by one that does not receive");
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| co.given()).join().unwrap());
        assert_eq!(elsewhere, NOTHING, "another thread");
        assert_eq!(co.given(), (Some(3), None), "and still");
    })
    .unwrap();
    assert_eq!(co.nested(other), [None; 3]);
}

#[test]
fn an_inner_with_hides_the_outer() {
    let (owner, other_owner) = (probe(), probe());
    let (co, other) = (owner.handle(), other_owner.handle());
    with(co, ((&SPINS, 3), (&BIAS, 1)), |co| {
        with(co, (&SPINS, 5), |co| assert_eq!(co.given(), (Some(5), None))).unwrap();
        assert_eq!(co.given(), (Some(3), Some(1)));
        with(other, (&SPINS, 6), |other| {
            assert_eq!((co.given(), other.given()), (NOTHING, (Some(6), None)));
        })
        .unwrap();
        assert_eq!((co.given(), other.given()), ((Some(3), Some(1)), NOTHING));
        // A rejected `with` changes no attribute.
        with(co, (&SPINS, 99_999), |_| ()).unwrap_err();
        assert_eq!(co.given(), (Some(3), Some(1)));
    })
    .unwrap();
}

#[test]
fn a_panic_restores_what_was_there() {
    let (owner, other_owner) = (probe(), probe());
    let (co, other) = (owner.handle(), other_owner.handle());
    with(co, (&SPINS, 3), |co| {
        let in_callee = catch_unwind(AssertUnwindSafe(|| co.panic()));
        assert_eq!(in_callee.unwrap_err().downcast_ref::<String>().unwrap(), "Some(3)");
        assert_eq!(co.given(), (Some(3), None), "hidden by the callee that panicked");
        let in_closure = catch_unwind(AssertUnwindSafe(|| with(other, (&SPINS, 4), |other| other.panic())));
        assert_eq!(in_closure.unwrap_err().downcast_ref::<String>().unwrap(), "Some(4)");
        assert_eq!((co.given(), other.given()), ((Some(3), None), NOTHING));
    })
    .unwrap();
    let outermost = catch_unwind(AssertUnwindSafe(|| with(co, (&SPINS, 5), |_| panic!("outermost"))));
    assert_eq!(*outermost.unwrap_err().downcast_ref::<&str>().unwrap(), "outermost");
    assert_eq!(co.given(), NOTHING);
}

#[test]
fn calls_nest_without_a_limit() {
    let owner = probe();
    let co = owner.handle();
    for depth in [1, 9, 10, 11, 12, 100, 300] {
        assert_eq!(co.dive(depth), depth * (depth + 1) / 2);
        assert_eq!(with(co, (&SPINS, 1), |co| co.dive(depth)), Ok(depth * (depth + 1) / 2 + 1));
    }
    // Deep nesting that ends in a panic.
    fn deep(co: Handle<dyn Probe>, depth: u64) {
        with(co, ((&SPINS, depth), (&BIAS, 1)), |co| match depth {
            0 => panic!("deep"),
            _ => {
                deep(co, depth - 1);
            }
        })
        .unwrap();
    }
    catch_unwind(|| deep(co, 100)).unwrap_err();
    assert_eq!(co.given(), NOTHING);
    assert_eq!(co.dive(50), 1275);
}

#[test]
fn an_object_receives_under_each_of_its_interfaces() {
    let owner: Owned<dyn WideProbe> = shared_with(Plain).unwrap();
    let wide = owner.handle();
    let narrow: Handle<dyn Probe> = Handle::upcast(wide);
    assert_ne!(Handle::id(wide), Handle::id(narrow));
    assert_eq!(with(wide, (&SPINS, 3), |co| co.more()), Ok(Some(3)));
    assert_eq!(with(wide, (&SPINS, 3), |co| co.given()), Ok((Some(3), None)));
    assert_eq!(with(narrow, (&SPINS, 3), |co| co.given()), Ok((Some(3), None)));
    // A plain id stands for exactly the interface with that id.
    let of_id = |id: Id| receive(id, |call| call.get(&SPINS));
    with(wide, (&SPINS, 3), |_| {
        assert_eq!((of_id(Handle::id(wide)), of_id(Handle::id(narrow))), (Some(3), None));
    })
    .unwrap();
}

#[test]
fn attributes_of_a_call_can_be_built_and_kept() {
    let owner = probe();
    let co = owner.handle();
    let mut call = CallAttributes::new();
    assert!(call.is_empty());
    call.set(&SPINS, 3).unwrap().set(&BIAS, 2).unwrap().set(&SPINS, 4).unwrap();
    call.set_text(&LOCK, "patience", "2ms").unwrap().set_text(&LOCK, "bias", "-3").unwrap();
    assert_eq!(call.names().collect::<Vec<_>>(), ["spins", "bias", "patience"]);
    assert_eq!((call.len(), call.get(&BIAS), call.get(&FAIR)), (3, Some(-3), None));
    assert_eq!(format!("{call:?}"), r#"["spins", "bias", "patience"]"#);
    assert_eq!(with(co, &call, |co| co.given()), Ok((Some(4), Some(-3))));

    // A rejected value changes no attribute.
    assert_eq!(
        words(call.set(&BIAS, 6).map(drop)),
        "attribute `bias` of a call: 6 is out of range; it takes a whole number from -5 to 5"
    );
    assert_eq!(
        words(call.set_text(&LOCK, "bias", "x").map(drop)),
        "attribute `bias` of a call of an object of class lock: `x` is of the wrong type; \
         it takes a whole number from -5 to 5"
    );
    assert_eq!(
        words(call.set_text(&LOCK, "x", "x").map(drop)),
        "a call of an object of class lock has no attribute `x`; \
         its attributes are `fair`, `spins`, `width`, `bias`, `share`, `level`, `patience`, `wait`"
    );
    assert_eq!((call.len(), call.get(&BIAS)), (3, Some(-3)));

    // The largest number of attributes.
    call.set(&FAIR, true)
        .unwrap()
        .set(&WIDTH, 1)
        .unwrap()
        .set(&SHARE, 1.0)
        .unwrap()
        .set(&LEVEL, -2.0)
        .unwrap();
    call.set(&WAIT, Wait::Block).unwrap();
    assert_eq!(call.len(), CALL_ATTRIBUTES_MAX);
    assert_eq!(
        words(call.set(&STRANGER, 1).map(drop)),
        "attribute `stranger` of a call: a call can have at most 8 attributes"
    );
    call.set(&SPINS, 1).unwrap();

    // Received, copied, and given by another thread.
    let kept = with(co, &call, |co| receive(co, |call| call.keep())).unwrap();
    assert_eq!(kept.names().collect::<Vec<_>>(), call.names().collect::<Vec<_>>());
    let given = std::thread::spawn(move || with(co, &kept, |co| co.given())).join().unwrap();
    assert_eq!(given, Ok((Some(1), Some(-3))));
}

#[test]
fn a_receiver_can_check_that_its_class_has_the_attributes() {
    let owner = probe();
    let co = owner.handle();
    let check = |co: Handle<dyn Probe>| receive(co, |call| call.check(&LOCK));
    assert_eq!(check(co), Ok(()));
    assert_eq!(with(co, ((&SPINS, 3), (&WAIT, Wait::Spin)), check), Ok(Ok(())));
    assert_eq!(
        words(with(co, ((&SPINS, 3), (&STRANGER, 3)), check).unwrap()),
        "a call of an object of class lock has no attribute `stranger`; \
         its attributes are `fair`, `spins`, `width`, `bias`, `share`, `level`, `patience`, `wait`"
    );
}

#[test]
fn an_attribute_can_be_in_several_classes() {
    static FIRST: Schema = Schema::new("first", &[&FAIR, &STRANGER, &SPINS]);
    static SECOND: Schema = Schema::new("second", &[&SPINS, &FAIR]);
    static FIRST_CLASS: ClassValues = ClassValues::new(&FIRST);
    static SECOND_CLASS: ClassValues = ClassValues::new(&SECOND);
    let (one, two) = (InstanceValues::of_class(&FIRST_CLASS), InstanceValues::of_class(&SECOND_CLASS));
    for round in 1..4 {
        one.set(&SPINS, round).unwrap();
        two.set(&SPINS, round * 10).unwrap();
        two.set(&FAIR, true).unwrap();
        assert_eq!((one.get(&SPINS), two.get(&SPINS)), (round, round * 10));
        assert_eq!((one.get(&FAIR), two.get(&FAIR)), (false, true));
        assert_eq!(one.get(&STRANGER), 9);
    }
    assert_eq!(
        words(two.set(&STRANGER, 1)),
        "an object of class second has no attribute `stranger`; its attributes are `spins`, `fair`"
    );
}

#[test]
#[should_panic(expected = "class twice has two attributes `spins`")]
fn names_in_a_class_are_different() {
    static OTHER_SPINS: Attribute<bool> = Attribute::new("spins", false);
    static TWICE: Schema = Schema::new("twice", &[&SPINS, &FAIR, &OTHER_SPINS]);
    static CLASS: ClassValues = ClassValues::new(&TWICE);
    let _ = CLASS.set(&FAIR, true);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "class lock has no attribute `stranger`")]
fn a_lookup_of_a_foreign_attribute_panics_in_debug_builds() {
    InstanceValues::of_class(lock_class!()).get(&STRANGER);
}

#[test]
fn values_of_ended_objects_do_not_pile_up() {
    static CLASS: ClassValues = ClassValues::new(&LOCK);
    let values = || Arc::new(InstanceValues::of_class(&CLASS));
    let keepers: Vec<_> = (0..40).map(|_| probe()).collect();
    for owner in &keepers {
        attribute::attach(Handle::id(owner.handle()), values());
    }
    // An object that does not exist yet: its creator keeps the values.
    let (early, early_id) = (values(), Id::from_parts(4095, u32::MAX).unwrap());
    attribute::attach(early_id, early.clone());
    let mut ended = Vec::new();
    for _ in 0..5_000 {
        let owner = probe();
        let id = Handle::id(owner.handle());
        attribute::attach(id, values());
        drop(owner);
        ended.push(id);
    }
    let known = attribute::attached();
    let left = ended.iter().filter(|id| known.contains(id)).count();
    // 41 entries stay, and a few belong to other tests. Pruning starts at twice that, or at the minimum.
    assert!(left < 200, "{left} ended objects are known");
    for owner in &keepers {
        assert!(attribute::values_of(Handle::id(owner.handle())).is_some());
    }
    assert!(attribute::values_of(early_id).is_some());
    attribute::detach(early_id);
}

#[test]
fn a_size_of_clusters_is_a_value_and_reads_what_it_shows() {
    use squall_machine::ClusterSize;
    use squall_policy::attribute::Value;
    let fixed = [1, 2, 3, u32::MAX].map(ClusterSize::fixed);
    for size in ClusterSize::LEVELS.into_iter().chain(fixed) {
        assert_eq!(ClusterSize::from_bits(size.to_bits()), size);
        assert_eq!(<ClusterSize as Value>::parse(&format!(" {} ", size.show())), Ok(size));
        assert!(size.is_regular() && size.at_most(size));
    }
    static SIZE: Attribute<ClusterSize> = Attribute::new("size", ClusterSize::Node);
    static SCHEMA: Schema = Schema::new("spread", &[&SIZE]);
    static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    let values = InstanceValues::of_class(&CLASS);
    values.set_text("size", "fixed:4").unwrap();
    assert_eq!(
        (values.get(&SIZE), values.get_text("size").unwrap().as_str()),
        (ClusterSize::fixed(4), "fixed:4")
    );
    let refused = values.set_text("size", "8").unwrap_err().to_string();
    assert!(refused.ends_with(
        "it takes `cpu`, `core`, `cache`, `node`, `machine`, or `fixed:` and how many processors"
    ));
    let info = &values.list()[0];
    assert_eq!((info.kind.to_string().as_str(), info.default.as_str()), ("cluster size", "node"));
}
