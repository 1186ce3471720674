//! Doubly linked lists of slabs and of segments, by number.
//!
//! - I1. A number is in one list at most. The links of its neighbours in that list lead to it. One lock
//!   protects the number, its neighbours and the list.
//!
//! Cost: three entries are touched by an insertion or a removal.

/// The neighbours of a list element, as numbers plus one; 0: no neighbour. Zeros are valid.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Link {
    next: u32,
    prev: u32,
}

impl Link {
    pub(crate) const NONE: Link = Link { next: 0, prev: 0 };
}

/// Finds the links of one kind of numbers.
pub(crate) trait Links {
    /// Returns the link of this number. The list keeps no reference to it.
    fn link(&self, number: u32) -> *mut Link;
}

/// A list of numbered elements. Holds the number of the first element plus one, or 0 if the list is empty.
#[derive(Clone, Copy)]
pub(crate) struct List(u32);

impl List {
    pub(crate) const EMPTY: List = List(0);

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Returns the number behind `number`.
    ///
    /// # Safety
    /// `number` is in a list, and the caller holds its lock.
    #[inline]
    pub(crate) unsafe fn next(links: &impl Links, number: u32) -> Option<u32> {
        // SAFETY: by this function's contract no other thread accesses it (I1).
        unsafe { (*links.link(number)).next }.checked_sub(1)
    }

    /// Puts `number` at the front.
    ///
    /// # Safety
    /// `number` is in no list. The caller holds this list's lock, or is the only one that knows the list.
    pub(crate) unsafe fn push(&mut self, links: &impl Links, number: u32) {
        // SAFETY: by this function's contract no other thread accesses these (I1).
        unsafe {
            *links.link(number) = Link { next: self.0, prev: 0 };
            if let Some(first) = self.first() {
                (*links.link(first)).prev = number + 1;
            }
        }
        self.0 = number + 1;
    }

    /// Takes `number` out.
    ///
    /// # Safety
    /// `number` is in this list. The caller holds the list's lock, or is the only one that knows the list.
    pub(crate) unsafe fn remove(&mut self, links: &impl Links, number: u32) {
        // SAFETY: by this function's contract no other thread accesses these (I1).
        unsafe {
            let Link { next, prev } = *links.link(number);
            if let Some(next) = next.checked_sub(1) {
                (*links.link(next)).prev = prev;
            }
            match prev.checked_sub(1) {
                None => self.0 = next,
                Some(prev) => (*links.link(prev)).next = next,
            }
        }
    }

    /// Takes the first number out.
    ///
    /// # Safety
    /// The contract of [`remove`](List::remove).
    pub(crate) unsafe fn pop(&mut self, links: &impl Links) -> Option<u32> {
        let first = self.first()?;
        // SAFETY: passed on; it is the first of this list.
        unsafe { self.remove(links, first) };
        Some(first)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use squall_sys::sync::cell::UnsafeCell;

    struct Ten(UnsafeCell<[Link; 10]>);

    impl Links for Ten {
        fn link(&self, number: u32) -> *mut Link {
            self.0.with_mut(|links| links.cast::<Link>().wrapping_add(number as usize))
        }
    }

    fn all(of: &Ten, list: List) -> Vec<u32> {
        // SAFETY: one thread.
        std::iter::successors(list.first(), |at| unsafe { List::next(of, *at) }).collect()
    }

    #[test]
    fn the_list_holds_inserted_numbers() {
        let (of, mut list) = (Ten(UnsafeCell::new([Link::NONE; 10])), List::EMPTY);
        // SAFETY: one thread; each number is inserted while it is in no list, and removed once.
        unsafe {
            (0..5).for_each(|number| list.push(&of, number));
            assert_eq!(all(&of, list), [4, 3, 2, 1, 0]);
            list.remove(&of, 2);
            list.remove(&of, 4);
            list.remove(&of, 0);
            assert_eq!(all(&of, list), [3, 1]);
            list.push(&of, 0);
            assert_eq!(
                (list.pop(&of), list.pop(&of), list.pop(&of), list.pop(&of)),
                (Some(0), Some(3), Some(1), None)
            );
        }
    }
}
