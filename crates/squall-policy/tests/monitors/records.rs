//! Records of swaps, as a reader of the monitor gets them.

use squall_core::swap::{Replacement, State, StateFormats, Swap};
use squall_core::{Handle, Owned, swappable};
use squall_policy::monitor::{Object, Record, Subscription, subscribe_without_collector};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::monitors::turn;

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
}

#[derive(Default)]
struct Count {
    n: AtomicU64,
    refuses: AtomicBool,
}

impl Hits for Count {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
    }
}

impl State for Count {
    fn formats(formats: &mut StateFormats<'_, Count>) {
        formats
            .export_part(|this| match this.refuses.load(Ordering::Relaxed) {
                true => Err("it refuses".into()),
                false => Ok(this.n.load(Ordering::Relaxed)),
            })
            .import_part(|this, n: u64| {
                this.add(n);
                Ok(())
            });
    }
}

/// Takes the kinds and codes of the records about `object`.
fn about(subscription: &Subscription, object: Object) -> Vec<String> {
    let batches = std::iter::from_fn(|| subscription.try_recv());
    let records: Vec<Record> = batches.flat_map(|batch| batch.records().to_vec()).collect();
    let ours = records.iter().filter(|record| record.object() == object);
    ours.map(|record| {
        let kind = record.kind();
        let code = kind.code_name(0, record.values()[0]);
        format!("{kind} {}", code.unwrap_or_default()).trim().to_owned()
    })
    .collect()
}

#[test]
fn kt_18_a_swap_is_recorded_with_its_phases() {
    let _turn = turn();
    let hits: Owned<dyn Hits> = swappable(Count::default());
    let object = Object::from(Handle::id(hits.handle()));
    let swap = |new| Swap::new(hits.handle()).run(Replacement::swappable(new));
    swap(Count::default()).expect("it moves its state");
    let subscription = subscribe_without_collector(64).expect("it needs no thread");
    let refusing = Count { refuses: AtomicBool::new(true), ..Count::default() };
    swap(refusing).expect("it moves its state");
    subscription.close();
    let phases =
        ["attach", "forward", "block", "transfer", "complete"].map(|name| format!("swap.phase {name}"));
    let mut expected = vec!["swap.begin".to_owned()];
    expected.extend(phases.clone());
    expected.push("swap.end swapped".to_owned());
    assert_eq!(about(&subscription, object), expected);

    let subscription = subscribe_without_collector(64).expect("it needs no thread");
    swap(Count::default()).expect_err("it refuses to export");
    subscription.close();
    expected.pop();
    expected.push("swap.end rolled-back".to_owned());
    assert_eq!(about(&subscription, object), expected);
    swap(Count::default()).expect_err("it refuses to export");
    assert!(about(&subscription, object).is_empty(), "the monitor is off");
}
