//! An append-only list of elements that never move: it returns plain references without a lock and without
//! `unsafe`.
//!
//! - I1. A link is written once, by the call that wins its `OnceLock`, and stays until the chain is dropped.
//!
//! Not promised: speed for long chains, because a search reads every link before the wanted one.
//! Cost: one acquire load per link; no shared write once the element exists.
//! Source: the usual singly linked list over once-cells.

use squall_sys::sync::OnceLock;

/// The list. Users keep it short; each states its bound.
#[derive(Debug)]
pub(crate) struct Chain<T> {
    head: OnceLock<Box<Link<T>>>,
}

#[derive(Debug)]
struct Link<T> {
    value: T,
    next: OnceLock<Box<Link<T>>>,
}

impl<T> Chain<T> {
    pub(crate) const fn new() -> Chain<T> {
        Chain { head: OnceLock::new() }
    }

    /// Returns the first element for which `wanted` holds. If `wanted` holds for no element, appends
    /// the result of `make` and returns it.
    ///
    /// `make` runs at most once, and once more for each element that another thread appends during the call.
    /// `wanted` must hold for its result.
    pub(crate) fn find_or_push(&self, wanted: impl Fn(&T) -> bool, make: impl Fn() -> T) -> &T {
        let mut place = &self.head;
        loop {
            let link = place.get_or_init(|| Box::new(Link { value: make(), next: OnceLock::new() }));
            if wanted(&link.value) {
                return &link.value;
            }
            place = &link.next;
        }
    }

    /// Returns the newest element.
    pub(crate) fn last(&self) -> Option<&T> {
        let mut link = self.head.get()?;
        while let Some(next) = link.next.get() {
            link = next;
        }
        Some(&link.value)
    }

    /// Appends `value`.
    pub(crate) fn push(&self, value: T) {
        let mut fresh = Box::new(Link { value, next: OnceLock::new() });
        let mut place = &self.head;
        loop {
            match place.set(fresh) {
                Ok(()) => return,
                Err(back) => fresh = back,
            }
            match place.get() {
                Some(link) => place = &link.next,
                None => unreachable!("a cell rejected a value although it is empty (chain/I1)"),
            }
        }
    }
}

impl<T> Drop for Chain<T> {
    /// Drops link by link, because the compiler's own drop would recurse once per link.
    fn drop(&mut self) {
        let mut next = self.head.take();
        while let Some(mut link) = next {
            next = link.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_once_and_stay_in_place() {
        let chain = Chain::new();
        assert_eq!(chain.last(), None);
        let seven = std::ptr::from_ref(chain.find_or_push(|n| *n == 7, || 7));
        chain.push(8);
        assert_eq!(chain.last(), Some(&8));
        assert_eq!(std::ptr::from_ref(chain.find_or_push(|n| *n == 7, || unreachable!())), seven);
        assert_eq!(*chain.find_or_push(|n| *n == 9, || 9), 9);
        assert_eq!(chain.last(), Some(&9));
    }

    #[test]
    fn a_long_chain_drops_without_recursion() {
        let links = if cfg!(miri) { 100 } else { 3000 };
        let chain = Chain::new();
        for n in 0..links {
            chain.push([n; 64]);
        }
        let dropper =
            squall_sys::sync::thread::Builder::new().stack_size(32 * 1024).spawn(move || drop(chain));
        dropper.unwrap().join().unwrap();
    }

    #[test]
    fn racing_threads_agree_on_one_element() {
        let chain = Chain::new();
        let seen: Vec<usize> = squall_sys::sync::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|i| {
                    let chain = &chain;
                    scope.spawn(move || {
                        std::ptr::from_ref(chain.find_or_push(|v| *v == i % 2, || i % 2)).addr()
                    })
                })
                .collect();
            racers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        assert!(seen.iter().enumerate().all(|(i, a)| *a == seen[i % 2]));
    }
}
