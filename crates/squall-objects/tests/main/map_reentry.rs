//! Users' code that calls the map that runs it: every form, method and kind of code.
//!
//! Such a call works, or panics with a message that names the map or its keys and the reason. No call waits
//! for its own thread, and the map keeps its entries.

use squall_core::Handle;
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Map, MapExt, MapLimit, OwnedMap};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A kind of users' code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Eq,
    Hash,
    CloneKey,
    CloneValue,
    DropKey,
    DropValue,
    Closure,
}

const CODES: [Code; 7] =
    [Code::Eq, Code::Hash, Code::CloneKey, Code::CloneValue, Code::DropKey, Code::DropValue, Code::Closure];

type Entries = Handle<dyn Map<Key, Value, std::hash::RandomState>>;

/// The code that calls the map, after this number of earlier runs.
#[derive(Clone, Copy)]
struct Armed {
    code: Code,
    runs: u32,
    map: Entries,
    /// Whether a panic of the call leaves the code.
    passes_on: bool,
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Calls the map if this code is armed and due.
fn run(code: Code) {
    let Some(armed) = ARMED.get().filter(|armed| armed.code == code) else { return };
    if armed.runs > 0 {
        ARMED.set(Some(Armed { runs: armed.runs - 1, ..armed }));
        return;
    }
    ARMED.set(None);
    CALLS.set(CALLS.get() + 1);
    let map = armed.map;
    let calls: [&dyn Fn(); 6] = [
        &|| drop(map.get_cloned(&Key(1))),
        &|| _ = map.set(Key(1), Value::new(1)),
        &|| _ = map.set(Key(EXTRA), Value::new(EXTRA)),
        &|| _ = map.update(&Key(1), |value| Value::new(*value.0)),
        &|| _ = map.delete(&Key(EXTRA)),
        &|| map.for_each(|_, _| ()),
    ];
    for call in calls {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            PANICS.with_borrow_mut(|panics| panics.push(text.expect("a panic of ours has a text")));
            if armed.passes_on && !std::thread::panicking() {
                resume_unwind(panic);
            }
        }
    }
}

/// A key that the map's entries do not have.
const EXTRA: u64 = 1000;
const ENTRIES: u64 = 20;

#[derive(Debug)]
struct Key(u64);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        run(Code::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        run(Code::Hash);
        self.0.hash(state);
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        run(Code::CloneKey);
        Key(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        run(Code::DropKey);
    }
}

/// A value in memory of its own, so that a double drop or a leak shows.
#[derive(Debug)]
struct Value(Box<u64>);

impl Value {
    fn new(value: u64) -> Value {
        Value(Box::new(value))
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        run(Code::CloneValue);
        Value(self.0.clone())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        run(Code::DropValue);
    }
}

type Make = fn() -> OwnedMap<Key, Value>;

const FORMS: [(&str, Make); 8] = [
    ("locked", || map::locked()),
    ("shared", || map::shared()),
    ("partitioned", || map::partitioned(2, |key| key as usize)),
    ("replicated", || map::replicated(ClusterSize::Cpu)),
    ("adaptive", || map::adaptive()),
    ("limited locked", || map::limited(map::locked(), MapLimit::entries(1000))),
    ("limited shared", || map::limited(map::shared(), MapLimit::entries(1000))),
    ("weighed", || map::limited(map::shared(), MapLimit::weight(1000, "units", |_| 1))),
];

type Method = (&'static str, fn(Entries));

const METHODS: &[Method] = &[
    ("get", |map| drop(map.get_cloned(&Key(1)))),
    ("with", |map| _ = map.with(&Key(1), |_| run(Code::Closure))),
    ("contains_key", |map| _ = map.contains_key(&Key(1))),
    ("insert", |map| drop(map.insert(Key(1), Value::new(1)))),
    ("set", |map| _ = map.set(Key(1), Value::new(1))),
    ("set of an absent key", |map| _ = map.set(Key(50), Value::new(50))),
    ("try_insert", |map| drop(map.try_insert(Key(1), Value::new(1)))),
    ("get_or_insert_with", |map| drop(map.get_or_insert_with(Key(1), || Value::new(1)))),
    ("get_or_insert_with of an absent key", |map| {
        drop(map.get_or_insert_with(Key(50), || {
            run(Code::Closure);
            Value::new(50)
        }));
    }),
    ("remove", |map| drop(map.remove(&Key(2)))),
    ("delete", |map| _ = map.delete(&Key(2))),
    ("remove_if", |map| {
        let goes = |_: &Value| {
            run(Code::Closure);
            true
        };
        _ = map.remove_if(&Key(2), goes);
    }),
    ("update", |map| {
        let change = |value: &Value| {
            run(Code::Closure);
            Value::new(*value.0)
        };
        _ = map.update(&Key(1), change);
    }),
    ("compute", |map| {
        let _ = map.compute(Key(1), |value| {
            run(Code::Closure);
            Compute::Put(Value::new(value.map_or(1, |value| *value.0)))
        });
    }),
    ("compute of an absent key", |map| {
        let _ = map.compute(Key(50), |_| {
            run(Code::Closure);
            Compute::Put(Value::new(50))
        });
    }),
    ("for_each", |map| map.for_each(|_, _| run(Code::Closure))),
    ("iter", |map| map.iter().for_each(drop)),
    ("retain", |map| {
        map.retain(|key, _| {
            run(Code::Closure);
            key.0 != 2
        });
    }),
    ("clear", |map| map.clear()),
    ("growth", |map| (100..200).for_each(|key| _ = map.set(Key(key), Value::new(key)))),
    ("try_reserve", |map| _ = map.try_reserve(500)),
    ("shrink_to_fit", |map| {
        map.shrink_to_fit();
    }),
];

/// Returns the keys of a map, and checks that each is found and counted.
fn keys_of(map: Entries, case: &str) -> BTreeSet<u64> {
    let mut keys = BTreeSet::new();
    map.for_each(|key, value| {
        assert_eq!(key.0, *value.0, "{case}");
        assert!(keys.insert(key.0), "{case}: {} is there twice", key.0);
    });
    assert_eq!(map.len(), keys.len(), "{case}");
    for key in &keys {
        assert!(map.contains_key(&Key(*key)), "{case}: {key} is lost");
    }
    keys
}

/// Runs a method while code of this kind calls the map. Returns whether that code ran.
fn check(
    form: &str,
    make: Make,
    method: &str,
    call: fn(Entries),
    armed: (Code, u32, bool),
    biased: bool,
) -> bool {
    let (code, runs, passes_on) = armed;
    let case = format!("{form}, {method}, {code:?} after {runs}, passes on: {passes_on}, biased: {biased}");
    let owner = make();
    let map = owner.handle();
    (0..ENTRIES).for_each(|key| _ = map.set(Key(key), Value::new(key)));
    if biased {
        (0..50).for_each(|_| _ = map.contains_key(&Key(1)));
    }
    CALLS.set(0);
    ARMED.set(Some(Armed { code, runs, map, passes_on }));
    let ended = catch_unwind(AssertUnwindSafe(|| call(map)));
    ARMED.set(None);
    let panics = PANICS.take();
    for text in &panics {
        // Builds without debug assertions know the id of locked maps alone.
        // A limited map names its inner map.
        let names = text.contains(&Handle::id(map).to_string()) || form.starts_with("limited");
        let names = names && text.starts_with("map ") || !cfg!(debug_assertions);
        assert!(names && text.contains("runs under"), "{case}: {text}");
        assert!(!matches!(code, Code::Closure | Code::DropKey | Code::DropValue), "{case}: {text}");
    }
    assert_eq!(ended.is_err(), passes_on && !panics.is_empty(), "{case}");
    let keys = keys_of(map, &case);
    // Only the method removes and inserts entries, and a call from the code removes `EXTRA` only if it got
    // so far.
    let may_go = |key: u64| key == 2 || method == "clear";
    assert!((0..ENTRIES).all(|key| keys.contains(&key) || may_go(key)), "{case}: {keys:?}");
    assert!(keys.iter().all(|key| *key < ENTRIES || *key == 50 || (100..200).contains(key) || *key == EXTRA));
    // The map serves on.
    assert!(!map.set(Key(500), Value::new(500)) && map.delete(&Key(500)), "{case}");
    CALLS.get() > 0
}

#[test]
fn users_code_may_call_the_map_or_gets_a_panic_that_names_it() {
    let mut ran = BTreeSet::new();
    for (form, make) in FORMS {
        for (method, call) in METHODS {
            for code in CODES {
                for runs in [0, 1, 3, 21] {
                    for (passes_on, biased) in [(true, false), (false, true), (true, true)] {
                        // A drop must not panic. Only a map with one lock has an owner.
                        let is_drop = matches!(code, Code::DropKey | Code::DropValue);
                        let has_lock = ["locked", "adaptive", "limited locked"].contains(&form);
                        if passes_on && (is_drop || biased && !has_lock) {
                            continue;
                        }
                        if check(form, make, method, *call, (code, runs, passes_on), biased) {
                            ran.insert((form, format!("{code:?}")));
                        }
                    }
                }
            }
        }
    }
    for (form, _) in FORMS {
        for code in CODES {
            assert!(ran.contains(&(form, format!("{code:?}"))), "{form}: {code:?} never ran in a call");
        }
    }
}
