//! The cached list as an object: its interface, what people do with it, and its owner.

use squall_core::__macro::Panic;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Owned, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::{Guard, pin};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::vec;

use super::items::{self, Cache, Changes, Item, Store};
use super::distributed::{Body, Local, Distributed};
use super::{Form, Sensors};
use crate::sizes;

/// A cached list. [`Items`] has what people do with one; this is what an implementation has.
///
/// Progress: lookups are lock-free, but for the moment in which one that asked the one place keeps what it found: that takes the lock of
/// its cluster's list, as a removal of what is in that list does. Insertions and removals block each other for as long as a copy of
/// the list takes. A call that meets a swap waits for that, as every call does.
/// # Source
/// CO-43, TO-05, HU-15; X-23.
#[interface(crate = squall_core)]
pub trait CachedList<T: Send + Sync + 'static>: Send + Sync {
    /// Lends what a lookup looks into, for one lookup in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> ListView<'o, T>;

    /// Calls `act` once with the list, for what changes it: when this returns, nothing is done to it any more.
    fn write(&self, act: &mut dyn FnMut(ListWriter<'_, T>));

    /// What it keeps where.
    fn form(&self) -> Form;

    /// What its sensors read.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// What a lookup in a cached list looks into.
pub struct ListView<'o, T: Send + Sync + 'static> {
    cache: Option<&'o Cache<T>>,
    store: &'o Store<T>,
}

impl<'o, T: Send + Sync + 'static> ListView<'o, T> {
    /// An item of which `pred` says so.
    pub fn find(&self, guard: &'o Guard, mut pred: impl FnMut(&T) -> bool) -> Option<&'o Item<T>> {
        items::find(guard, self.cache, self.store, &mut pred)
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for ListView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListView").finish_non_exhaustive()
    }
}

/// A cached list within a call, for changes: what the methods of [`Items`] are made of.
pub struct ListWriter<'a, T: Send + Sync + 'static>(Changes<'a, T>);

impl<T: Send + Sync + 'static> fmt::Debug for ListWriter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWriter").finish_non_exhaustive()
    }
}

/// What people do with a cached list. Comes with the reference.
///
/// Closures run under no lock, in an operation, and may use the list; they may be called again, and for any item, those included
/// that are being removed. Each method panics as every call does if the object was destroyed. A closure that says which item it is, or what stands
/// against one, must not change this list each time that it is called: it may be asked again for ever.
pub trait Items<T: Send + Sync + 'static>: Copy {
    /// What `f` makes of an item of which `pred` says so: any, if there are several, and those first that the caller's cluster keeps.
    ///
    /// # Cost
    /// A walk through what the cluster keeps; if it is not there, through the whole list.
    fn find<R>(self, pred: impl FnMut(&T) -> bool, f: impl FnOnce(&T) -> R) -> Option<R>;

    /// An item of which `pred` says so, to have beyond the operation.
    ///
    /// # Cost
    /// As [`find`](Items::find), and a change of the item's count, which others change, too.
    fn get(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>>;

    /// Inserts an item. The caller's cluster keeps it from then on.
    fn insert(self, value: T) -> Item<T>;

    /// Inserts an item, unless `conflicts` says so of one that is there, its first argument, and this one.
    ///
    /// # Errors
    /// There is such a one: the item comes back.
    fn try_insert(self, value: T, conflicts: impl FnMut(&T, &T) -> bool) -> Result<Item<T>, T>;

    /// Removes an item of which `pred` says so. When it returns, no lookup finds it anywhere.
    fn remove(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>>;

    /// Removes this item, and says whether it was there; one of another list is not.
    fn remove_item(self, item: &Item<T>) -> bool;

    /// Calls `f` with each item that is there when it begins; those that are removed meanwhile, perhaps.
    fn for_each(self, f: impl FnMut(&T));

    /// The items that are there now. Each stays as long as somebody has it, and says whether it was removed.
    #[track_caller]
    fn iter(self) -> vec::IntoIter<Item<T>> {
        self.items().into_iter()
    }

    /// The same as a list.
    fn items(self) -> Vec<Item<T>>;

    /// How many items there are.
    #[track_caller]
    fn len(self) -> usize {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }

    /// Whether there is none.
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes the size of the clusters that keep what they look up, while the list is used: by a swap.
    ///
    /// # Errors
    /// [`SwapError`]: everything is as it was.
    /// # Cost
    /// That of a [`Swap`]; each cluster keeps what it looks up from then on.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

/// Looks within a call.
#[inline(always)]
#[track_caller]
fn look<T: Send + Sync + 'static, R>(
    handle: Handle<dyn CachedList<T>>,
    f: impl for<'o> FnOnce(&'o Guard, ListView<'o, T>) -> R,
) -> R {
    handle.__call_in("look", |guard, list| f(guard, list.look(guard)), Panic)
}

/// Changes within a call.
#[track_caller]
fn write<T: Send + Sync + 'static, R>(
    handle: Handle<dyn CachedList<T>>,
    f: impl FnOnce(&Changes<'_, T>) -> R,
) -> R {
    let (mut f, mut done) = (Some(f), None);
    handle.write(&mut |writer| done = f.take().map(|f| f(&writer.0)));
    done.expect("an implementation of a cached list calls what it is given")
}

impl<T: Send + Sync + 'static> Items<T> for Handle<dyn CachedList<T>> {
    #[inline]
    #[track_caller]
    fn find<R>(self, pred: impl FnMut(&T) -> bool, f: impl FnOnce(&T) -> R) -> Option<R> {
        look(self, |guard, list| list.find(guard, pred).map(|item| f(item)))
    }

    #[track_caller]
    fn get(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>> {
        look(self, |guard, list| list.find(guard, pred).cloned())
    }

    #[track_caller]
    fn insert(self, value: T) -> Item<T> {
        match self.try_insert(value, |_, _| false) {
            Ok(item) => item,
            Err(_) => unreachable!("nothing stands against it"),
        }
    }

    #[track_caller]
    fn try_insert(self, value: T, conflicts: impl FnMut(&T, &T) -> bool) -> Result<Item<T>, T> {
        write(self, |changes| changes.insert(value, conflicts))
    }

    #[track_caller]
    fn remove(self, mut pred: impl FnMut(&T) -> bool) -> Option<Item<T>> {
        write(self, |changes| changes.remove(&mut pred))
    }

    #[track_caller]
    fn remove_item(self, item: &Item<T>) -> bool {
        write(self, |changes| changes.remove_item(item))
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&T)) {
        look(self, |guard, list| list.store.for_each(guard, |item| f(item)));
    }

    #[track_caller]
    fn items(self) -> Vec<Item<T>> {
        let mut items = Vec::new();
        look(self, |guard, list| list.store.for_each(guard, |item| items.push(item.clone())));
        items
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_list(self.form().resized(size)))
    }
}

/// What is spread of a list.
struct Listed<T>(PhantomData<fn(T)>);

impl<T: Send + Sync + 'static> Body for Listed<T> {
    type Interface = dyn CachedList<T>;
    type Store = Store<T>;
    type Cache = Cache<T>;

    fn cache(_: &Store<T>, place: usize, most: usize) -> Cache<T> {
        Cache::new(place, most)
    }

    fn refit(store: &Arc<Store<T>>, _: &Form) -> Arc<Store<T>> {
        store.clone()
    }

    fn read(store: &Store<T>) -> Sensors {
        store.read_sensors()
    }

    fn add(cache: &Cache<T>, sensors: &mut Sensors) {
        cache.read_sensors(sensors);
    }

    fn hand_on(guard: &Guard, from: &Cache<T>, to: &Cache<T>, most: usize) {
        to.take_over(guard, from, most);
    }
}

impl<T: Send + Sync + 'static> CachedList<T> for Local<Listed<T>> {
    #[inline]
    fn look<'o>(&self, guard: &'o Guard) -> ListView<'o, T> {
        ListView { cache: self.lend_cache(guard), store: self.lend_store(guard) }
    }

    fn write(&self, act: &mut dyn FnMut(ListWriter<'_, T>)) {
        pin(|guard| act(ListWriter(Changes { store: self.store(), here: self.own_cache(guard), reach: self })));
    }

    fn form(&self) -> Form {
        Local::form(self).clone()
    }

    fn sensors(&self) -> Sensors {
        self.read_sensors()
    }
}

/// The owner of a cached list: its drop ends the object. It derefs to the reference.
pub struct List<T: Send + Sync + 'static>(Owned<dyn CachedList<T>>);

impl<T: Send + Sync + 'static> List<T> {
    /// As an owner of any object.
    pub fn into_owned(self) -> Owned<dyn CachedList<T>> {
        self.0
    }
}

impl<T: Send + Sync + 'static> Deref for List<T> {
    type Target = Owned<dyn CachedList<T>>;

    #[inline(always)]
    fn deref(&self) -> &Owned<dyn CachedList<T>> {
        &self.0
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        self.0.handle().for_each(|item| _ = list.entry(item));
        list.finish()
    }
}

impl<T: Send + Sync + 'static> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        (&*self).extend(items);
    }
}

impl<T: Send + Sync + 'static> Extend<T> for &List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let handle = self.0.handle();
        items.into_iter().for_each(|item| _ = handle.insert(item));
    }
}

impl<T: Send + Sync + 'static> Default for List<T> {
    /// Of the form [`Form::shared`].
    #[track_caller]
    fn default() -> List<T> {
        list(Form::shared())
    }
}

impl<T: Send + Sync + 'static> FromIterator<T> for List<T> {
    /// Of the form [`Form::shared`].
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> List<T> {
        let list = List::default();
        (&list).extend(items);
        list
    }
}

impl<T: Send + Sync + 'static> IntoIterator for &List<T> {
    type Item = Item<T>;
    type IntoIter = vec::IntoIter<Item<T>>;

    /// As [`Items::iter`].
    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.0.handle().iter()
    }
}

#[cfg(feature = "serde")]
impl<T: Send + Sync + serde::Serialize + 'static> serde::Serialize for List<T> {
    /// As a sequence of the items.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items = self.0.handle().items();
        serializer.collect_seq(items.iter().map(|item| &**item))
    }
}

#[cfg(feature = "serde")]
impl<'de, T: Send + Sync + serde::Deserialize<'de> + 'static> serde::Deserialize<'de> for List<T> {
    /// Of the form [`Form::shared`].
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        Vec::deserialize(deserializer).map(|items: Vec<T>| items.into_iter().collect())
    }
}

/// Makes a cached list.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn list<T: Send + Sync + 'static>(form: Form) -> List<T> {
    have_sizes::<T>();
    let size = form.cluster_size();
    List(Distributed::<Listed<T>>::new(form, Some(Store::new())).create(size))
}

/// Has lists of this type have the attribute of their clusters' size.
fn have_sizes<T: Send + Sync + 'static>() {
    sizes::have::<dyn CachedList<T>>(
        |handle| handle.try_form().ok()?.chosen_size(),
        |handle, size| Some((handle, new_list(handle.try_form().ok()?.resized(size)))),
    );
}

/// An implementation, to take the place of a cached list: as [`list`] makes it. It takes the items over; swapped in without state it has
/// none, and every call errs.
pub fn new_list<T: Send + Sync + 'static>(form: Form) -> Replacement<dyn CachedList<T>> {
    Distributed::<Listed<T>>::to_come(form)
}
