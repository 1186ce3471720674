//! Reasons of the engine: why it changed an object, and why it left one as it is.

use crate::adaptive::adders;
use crate::common::{form, made, on, virtual_time};
use squall_adapt::control;
use squall_adapt::decision::Held;
use squall_adapt::settings;
use squall_adapt::stays::Reason;
use squall_core::Handle;
use squall_objects::counter::{self, Counter, DISTRIBUTED, SHARED};
use std::time::Duration;

#[test]
fn a_decision_is_a_sentence_with_the_name_and_has_its_readings_apart() {
    let mut time = virtual_time();
    let counter = on(0, counter::adaptive).named("GET /login");
    let id = Handle::id(counter.handle());
    let (crew, _) = adders(counter.handle());
    time.with(crew, |time| time.until("it is distributed", || form(id) == DISTRIBUTED));
    let grown = control::history(id).remove(0);
    assert_eq!(grown.name.as_deref(), Some("GET /login"));
    assert!(grown.to_string().contains("\"GET /login\""), "{grown}");
    let (seen, costs) = grown.why.split_once("; ").expect("two parts");
    let words: Vec<&str> = seen.split(' ').collect();
    let [calls, "of", all, "calls", "in", ..] = words[..] else { panic!("{seen}") };
    let number = |text: &str| text.replace(',', "").parse::<u64>().expect("a number");
    assert!(number(calls) > 0 && number(calls) <= number(all), "{seen}");
    assert!(seen.ends_with("came from other processors"), "{seen}");
    assert!(costs.starts_with("one representative per processor costs an estimated "), "{costs}");
    let readings = grown.readings();
    assert!(readings.contains("foreign") && readings.contains("inc"), "{readings}");
    assert!(!grown.to_string().contains("foreign"), "{grown}");
}

#[test]
fn a_contended_object_that_stays_says_why() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::GAIN, Duration::from_secs(1)).unwrap();
    let (counter, id) = made();
    let reason = || control::stays(id).expect("it adapts").reason;
    // On virtual time the thread is off.
    assert!(matches!(reason(), Reason::EngineOff), "{:?}", reason());
    let (crew, _) = adders(counter.handle());
    time.with(crew, |time| {
        time.until("the gain is too small", || matches!(reason(), Reason::SmallGain(..)));
        let stays = control::stays(id).expect("it adapts");
        assert!(stays.seen.is_some_and(|seen| seen.foreign > 0), "{stays}");
        let text = stays.to_string();
        assert!(
            text.contains("came from other processors, but one representative per processor would save"),
            "{text}"
        );
        assert!(control::status(id).expect("it adapts").contended_per_s > 0.0);
        settings::ALL.unset("gain").unwrap();
        control::freeze(id, true).expect("it adapts");
        time.until("it is frozen", || matches!(reason(), Reason::Held(_, Held::Frozen)));
        let text = control::stays(id).expect("it adapts").to_string();
        assert!(
            text.ends_with("but it is frozen; one representative per processor would cost less"),
            "{text}"
        );
        assert_eq!((form(id), control::history(id).len()), (SHARED, 1), "the history is not flooded");
        control::freeze(id, false).expect("it adapts");
        time.until("it is distributed", || form(id) == DISTRIBUTED);
    });
    assert!(counter.total() > 0);
}
