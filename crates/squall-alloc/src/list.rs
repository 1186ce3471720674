//! Lists through what is known of slabs and of segments, by their numbers.
//!
//! - I1. A number is in one list at most, and its neighbours there name it. Both, and the list, are read and written under one lock.
//!
//! Cost: three entries are touched where one is put in or taken out.

/// The neighbours of one that is in a list, as numbers plus one; 0: none. Zeros are a good one.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Link {
    next: u32,
    prev: u32,
}

impl Link {
    pub(crate) const NONE: Link = Link { next: 0, prev: 0 };
}

/// Where the links of a kind of numbers are.
pub(crate) trait Links {
    /// That of this number. No reference to it is kept.
    fn link(&self, number: u32) -> *mut Link;
}

/// A list: its first number, plus one; 0: it is empty.
#[derive(Clone, Copy)]
pub(crate) struct List(u32);

impl List {
    pub(crate) const EMPTY: List = List(0);

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// The one behind `number`.
    ///
    /// # Safety
    /// It is in a list whose lock the caller holds.
    #[inline]
    pub(crate) unsafe fn next(links: &impl Links, number: u32) -> Option<u32> {
        // SAFETY: by this function's contract nobody else is at it (I1).
        unsafe { (*links.link(number)).next }.checked_sub(1)
    }

    /// Puts `number` at the front.
    ///
    /// # Safety
    /// It is in no list; the caller holds this one's lock, or nobody else knows it.
    pub(crate) unsafe fn push(&mut self, links: &impl Links, number: u32) {
        // SAFETY: by this function's contract nobody else is at these (I1).
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
    /// It is in this list, whose lock the caller holds, or which nobody else knows.
    pub(crate) unsafe fn remove(&mut self, links: &impl Links, number: u32) {
        // SAFETY: by this function's contract nobody else is at these (I1).
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

    /// Takes the first one out.
    ///
    /// # Safety
    /// As for [`remove`](List::remove).
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
    fn what_is_put_in_is_in_it_until_it_is_taken_out() {
        let (of, mut list) = (Ten(UnsafeCell::new([Link::NONE; 10])), List::EMPTY);
        // SAFETY: one thread; each is put in while it is in no list, and taken out once.
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
