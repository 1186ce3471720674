//! The cached list as an object: its interface, its methods, and its owner.

use squall_core::__macro::Answer;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Interface, Owned, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::{__pin as pin, Guard};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::vec;

use super::distributed::{Body, Distributed, Local};
use super::items::{self, Cache, Changes, Item, Store};
use super::{Form, Sensors};
use crate::answers::panics_in;
use crate::sizes;

/// A cached list, as implementations provide it. [`Items`] has the methods for users.
///
/// Progress: lookups are lock-free, except for the moment in which a lookup that searched the store fills its
/// cache. That takes the lock of the cluster's list, as the removal of a cached item does. Insertions and
/// removals block each other while one of them copies the list. A call that meets a swap waits for it.
///
/// # Source
/// Appavoo 2005 (CO-43); Gamsa et al. 1999, Tornado (TO-05); Unrau et al. 1995, Hurricane (HU-15).
#[interface(crate = squall_core)]
pub trait CachedList<T: Send + Sync + 'static>: Send + Sync {
    /// Returns a view for one lookup in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> ListView<'o, T>;

    /// Calls `act` once with the list, for changes. All changes are complete when this returns.
    fn write(&self, act: &mut dyn FnMut(ListWriter<'_, T>));

    /// Returns the form.
    fn form(&self) -> Form;

    /// Reads the sensors.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// View of a cached list for a lookup.
pub struct ListView<'o, T: Send + Sync + 'static> {
    cache: Option<&'o Cache<T>>,
    store: &'o Store<T>,
}

impl<'o, T: Send + Sync + 'static> ListView<'o, T> {
    /// Returns an item for which `pred` returns true.
    pub fn find(&self, guard: &'o Guard, mut pred: impl FnMut(&T) -> bool) -> Option<&'o Item<T>> {
        items::find(guard, self.cache, self.store, &mut pred)
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for ListView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListView").finish_non_exhaustive()
    }
}

/// A cached list within a call, for the changes of [`Items`].
pub struct ListWriter<'a, T: Send + Sync + 'static>(Changes<'a, T>);

impl<T: Send + Sync + 'static> fmt::Debug for ListWriter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWriter").finish_non_exhaustive()
    }
}

/// Methods of a cached list, on a handle or an owner.
///
/// Closures run under no lock, in an operation, and may use the list. They may be called repeatedly, and for
/// items that are being removed. A predicate must not change this list on each call, or it is called forever.
/// Each method panics if the object was destroyed.
///
/// ```
/// use squall::objects::cached::{self, Form, Items};
///
/// let rules = cached::list(Form::shared());
/// rules.insert(("/admin", false));
/// rules.insert(("/", true));
/// assert_eq!(rules.find(|(path, _)| *path == "/admin", |(_, allowed)| *allowed), Some(false));
/// assert_eq!(rules.len(), 2);
/// ```
pub trait Items<T: Send + Sync + 'static>: Copy {
    /// Calls `f` with an item for which `pred` returns true, and returns the result. If several match, cached
    /// items of the caller's cluster are preferred.
    ///
    /// # Cost
    /// A scan of the cluster's cache. If that fails, a scan of the whole list.
    fn find<R>(self, pred: impl FnMut(&T) -> bool, f: impl FnOnce(&T) -> R) -> Option<R>;

    /// Returns an item for which `pred` returns true, for use beyond the operation.
    ///
    /// ```
    /// use squall::objects::cached::{self, Form, Items};
    ///
    /// let list = cached::list(Form::shared());
    /// list.insert(7);
    /// let item = list.get(|number| *number > 5).unwrap();
    /// list.remove(|_| true);
    /// assert!(*item == 7 && item.is_gone());
    /// ```
    ///
    /// # Cost
    /// The cost of [`find`](Items::find), and an increment of the item's shared reference count.
    fn get(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>>;

    /// Inserts an item, also into the cache of the caller's cluster.
    fn insert(self, value: T) -> Item<T>;

    /// Inserts an item, unless `conflicts` returns true for a present item and this one.
    ///
    /// ```
    /// use squall::objects::cached::{self, Form, Items};
    ///
    /// let list = cached::list(Form::shared());
    /// assert!(list.try_insert(7, |there, new| there == new).is_ok());
    /// assert_eq!(list.try_insert(7, |there, new| there == new).err(), Some(7));
    /// ```
    ///
    /// # Errors
    /// The item, if there is a conflict.
    fn try_insert(self, value: T, conflicts: impl FnMut(&T, &T) -> bool) -> Result<Item<T>, T>;

    /// Removes an item for which `pred` returns true. After the return no lookup finds it in any cluster.
    fn remove(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>>;

    /// Removes this item. Returns false if it was removed before, or belongs to another list.
    fn remove_item(self, item: &Item<T>) -> bool;

    /// Calls `f` with each item present at the start. An item that is removed meanwhile may be skipped.
    fn for_each(self, f: impl FnMut(&T));

    /// Returns an iterator over the present items. Each item stays valid after its removal.
    ///
    /// ```
    /// use squall::objects::cached::{self, Form, Items};
    ///
    /// let list = cached::list(Form::shared());
    /// list.insert(1);
    /// list.insert(2);
    /// assert_eq!(list.iter().map(|item| *item).sum::<i32>(), 3);
    /// ```
    #[track_caller]
    fn iter(self) -> vec::IntoIter<Item<T>> {
        self.items().into_iter()
    }

    /// Returns the present items.
    fn items(self) -> Vec<Item<T>>;

    /// Returns the number of items.
    #[track_caller]
    fn len(self) -> usize {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }

    /// Returns whether the list is empty.
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes the size of the clusters that have a cache, by a hot-swap.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::cached::{self, CachedList, Form, Items};
    ///
    /// let list = cached::list(Form::distributed(ClusterSize::Node));
    /// list.insert(1);
    /// list.set_cluster_size(ClusterSize::Core).unwrap();
    /// assert_eq!((list.form().cluster_size(), list.len()), (ClusterSize::Core, 1));
    /// ```
    ///
    /// # Errors
    /// [`SwapError`]: the object is unchanged.
    /// # Cost
    /// The cost of a [`Swap`]. The new caches are empty.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

/// Runs a lookup within a call.
#[inline(always)]
#[track_caller]
fn look<T: Send + Sync + 'static, R>(
    handle: Handle<dyn CachedList<T>>,
    gone: impl Answer<R>,
    f: impl for<'o> FnOnce(&'o Guard, ListView<'o, T>) -> R,
) -> R {
    handle.__call_in("look", |guard, list| f(guard, list.look(guard)), gone)
}

/// Runs a change within a call.
#[track_caller]
fn write<T: Send + Sync + 'static, R>(
    handle: Handle<dyn CachedList<T>>,
    gone: impl Answer<R>,
    f: impl FnOnce(&Changes<'_, T>) -> R,
) -> R {
    let (mut f, mut done) = (Some(f), None);
    if let Err(error) = handle.try_write(&mut |writer| done = f.take().map(|f| f(&writer.0))) {
        return gone.answer(error);
    }
    done.expect("this implementation of `CachedList` did not call the closure of `write`")
}

impl<T: Send + Sync + 'static> Items<T> for Handle<dyn CachedList<T>> {
    #[inline]
    #[track_caller]
    fn find<R>(self, pred: impl FnMut(&T) -> bool, f: impl FnOnce(&T) -> R) -> Option<R> {
        look(self, panics_in!("find"), |guard, list| list.find(guard, pred).map(|item| f(item)))
    }

    #[track_caller]
    fn get(self, pred: impl FnMut(&T) -> bool) -> Option<Item<T>> {
        look(self, panics_in!("get"), |guard, list| list.find(guard, pred).cloned())
    }

    #[track_caller]
    fn insert(self, value: T) -> Item<T> {
        match self.try_insert(value, |_, _| false) {
            Ok(item) => item,
            Err(_) => unreachable!("an insertion without a conflict test was rejected"),
        }
    }

    #[track_caller]
    fn try_insert(self, value: T, conflicts: impl FnMut(&T, &T) -> bool) -> Result<Item<T>, T> {
        write(self, panics_in!("try_insert"), |changes| changes.insert(value, conflicts))
    }

    #[track_caller]
    fn remove(self, mut pred: impl FnMut(&T) -> bool) -> Option<Item<T>> {
        write(self, panics_in!("remove"), |changes| changes.remove(&mut pred))
    }

    #[track_caller]
    fn remove_item(self, item: &Item<T>) -> bool {
        write(self, panics_in!("remove_item"), |changes| changes.remove_item(item))
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&T)) {
        look(self, panics_in!("for_each"), |guard, list| list.store.for_each(guard, |item| f(item)));
    }

    #[track_caller]
    fn items(self) -> Vec<Item<T>> {
        let mut items = Vec::new();
        look(self, panics_in!("items"), |guard, list| {
            list.store.for_each(guard, |item| items.push(item.clone()))
        });
        items
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_list(
            self.try_form()
                .unwrap_or_else(|error| panics_in!("set_cluster_size").answer(error))
                .resized(size),
        ))
    }
}

/// Contents of a list.
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
        pin(|guard| {
            act(ListWriter(Changes { store: self.store(), here: self.own_cache(guard), reach: self }))
        });
    }

    fn form(&self) -> Form {
        Local::form(self).clone()
    }

    fn sensors(&self) -> Sensors {
        self.read_sensors()
    }
}

/// Owner of a cached list. Dropping it destroys the object. It dereferences to the handle.
///
/// ```
/// use squall::objects::cached::{Items, List};
///
/// let list: List<u32> = [1, 2, 3].into_iter().collect();
/// assert!(list.find(|item| *item == 2, |_| ()).is_some());
/// ```
pub struct List<T: Send + Sync + 'static>(Owned<dyn CachedList<T>>);

impl<T: Send + Sync + 'static> List<T> {
    /// Gives the object a name for people, and returns its owner: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> List<T> {
        List(self.0.named(name))
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> List<T> {
        List(self.0.part_of(whole))
    }

    /// Converts to the general owner type.
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
    /// Creates an empty list in the form [`Form::shared`].
    #[track_caller]
    fn default() -> List<T> {
        list(Form::shared())
    }
}

impl<T: Send + Sync + 'static> FromIterator<T> for List<T> {
    /// Creates a list in the form [`Form::shared`].
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

    /// Returns an iterator over the present items. See [`Items::iter`].
    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.0.handle().iter()
    }
}

#[cfg(feature = "serde")]
impl<T: Send + Sync + serde::Serialize + 'static> serde::Serialize for List<T> {
    /// Serializes a sequence of the items.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items = self.0.handle().items();
        serializer.collect_seq(items.iter().map(|item| &**item))
    }
}

#[cfg(feature = "serde")]
impl<'de, T: Send + Sync + serde::Deserialize<'de> + 'static> serde::Deserialize<'de> for List<T> {
    /// Deserializes a list into the form [`Form::shared`].
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        Vec::deserialize(deserializer).map(|items: Vec<T>| items.into_iter().collect())
    }
}

/// Creates a cached list.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, Form, Items};
///
/// let list = cached::list(Form::distributed(ClusterSize::Cache));
/// list.insert("a");
/// assert_eq!(list.len(), 1);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn list<T: Send + Sync + 'static>(form: Form) -> List<T> {
    have_sizes::<T>();
    let size = form.cluster_size();
    List(Distributed::<Listed<T>>::new(form, Some(Store::new())).create(size))
}

/// Registers the attribute [`CLUSTER_SIZE`](crate::CLUSTER_SIZE) for lists of this type.
fn have_sizes<T: Send + Sync + 'static>() {
    sizes::have::<dyn CachedList<T>>(
        |handle| handle.try_form().ok()?.chosen_size(),
        |handle, size| Some((handle, new_list(handle.try_form().ok()?.resized(size)))),
    );
}

/// Returns a replacement for a hot-swap of a cached list. It takes over the items.
///
/// If a swap moves no state into it, every call of the list fails.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, Form, Items};
/// use squall::swap::swap;
///
/// let list = cached::list(Form::shared());
/// list.insert(1);
/// swap(list.handle(), cached::new_list(Form::distributed(ClusterSize::Core))).unwrap();
/// assert_eq!(list.len(), 1);
/// ```
pub fn new_list<T: Send + Sync + 'static>(form: Form) -> Replacement<dyn CachedList<T>> {
    Distributed::<Listed<T>>::to_come(form)
}
