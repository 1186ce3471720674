//! The attributes of a bag by their names, for `squall top`, browsers and
//! [`control::set_attribute`](squall_adapt::control::set_attribute).

use squall_adapt::control::register_setting;
use squall_core::Handle;
use squall_parts::bag::{Attributes, Strategy};
use squall_policy::attribute::{Attribute, Choice, choices};

use super::Bag;

choices! {
    /// A [`Strategy`] by its name, in the order of [`Strategy::ALL`].
    enum Named {
        Centralized = "centralized",
        Distributed = "distributed",
        BulkTransfer = "bulk-transfer",
        BackgroundPull = "background-pull",
        BackgroundPush = "background-push",
        EstimatedPush = "estimated-push",
        Directory = "directory",
    }
}

static STRATEGY: Attribute<Named> = Attribute::new("strategy", Named::EstimatedPush)
    .about("how the distributed form moves elements between shards");

/// Reads an attribute of a bag that exists and is not being destroyed.
fn read<T: Send + 'static, V>(bag: Handle<dyn Bag<T>>, read: impl FnOnce(&Attributes) -> V) -> Option<V> {
    bag.try_contents_unarbitrated().ok().map(|(bag, _)| read(bag.attributes()))
}

/// Declares the numbers, and registers them for the bags of a type.
macro_rules! numbers {
    ($($name:literal $unit:literal $default:literal $get:ident $set:ident $about:literal)*) => {
        fn have_numbers<T: Send + 'static>() {
            $({
                static NUMBER: Attribute<u64> =
                    Attribute::<u64>::new($name, $default).in_unit($unit).about($about);
                register_setting::<dyn Bag<T>, u64>(
                    &NUMBER,
                    |bag| read(bag, |it| it.$get() as u64),
                    |bag, value| read(bag, |it| it.$set(usize::try_from(value).unwrap_or(usize::MAX))),
                );
            })*
        }
    };
}

numbers! {
    "bulk" "elements" 50 bulk set_bulk "the most elements of one transfer"
    "idle-events" "events" 100 idle_events set_idle_events "idle events until an idle client acts once"
    "pull-below" "elements" 1024 pull_below set_pull_below "size of a shard below which its idle client pulls"
    "push-above" "elements" 20000 push_above set_push_above "size of a shard above which its idle client pushes"
    "estimate-step" "elements" 500 estimate_step set_estimate_step "change of a size that renews its estimate"
    "push-margin" "elements" 2048 push_margin set_push_margin "least difference to a shard that gets elements"
    "hoard" "elements" 65536 hoard set_hoard "size of a shard above which a put moves blocks to the common one"
    "leave-after" "acts" 16 leave_after set_leave_after "idle acts until an unused shard leaves; 0: never"
}

/// Registers the attributes for the bags of a type.
pub(super) fn have<T: Send + 'static>() {
    register_setting::<dyn Bag<T>, Named>(
        &STRATEGY,
        |bag| read(bag, |it| Named::ALL[it.strategy() as usize]),
        |bag, value| read(bag, |it| it.set_strategy(Strategy::ALL[value.index()])),
    );
    have_numbers::<T>();
}
