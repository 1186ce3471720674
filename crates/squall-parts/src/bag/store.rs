//! The elements of a shard, in blocks. A transfer moves whole blocks.
//!
//! - I1. Methods neither allocate nor free memory, so a program's allocator never runs under the shard's
//!   lock. A method that needs memory says so, and the caller brings it. Spare memory goes back.
//! - I2. Each block in `older` has elements.

/// Memory that a caller brings for a put.
pub(super) struct Spare<T> {
    block: Option<Vec<T>>,
    older: Vec<Vec<T>>,
}

/// Memory that a put needs.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    block: bool,
    /// The number of blocks for which there must be room.
    older: usize,
}

impl<T> Spare<T> {
    pub(super) fn empty() -> Spare<T> {
        Spare { block: None, older: Vec::new() }
    }

    /// Allocates the memory that a put needs.
    pub(super) fn prepare(&mut self, needs: Needs) {
        if needs.block && self.block.is_none() {
            self.block = Some(Vec::with_capacity(block_len::<T>()));
        }
        if self.older.capacity() < needs.older {
            self.older = Vec::with_capacity(needs.older);
        }
    }
}

/// Number of elements in a block: that of a bulk transfer of the thesis, or fewer if they are large.
pub(super) const fn block_len<T>() -> usize {
    const MOST: usize = 50;
    const LEAST: usize = 8;
    const BYTES: usize = 16 * 1024;
    match BYTES.checked_div(size_of::<T>()) {
        // Elements without a size are a number, and one block holds any.
        None => usize::MAX,
        Some(fitting) if fitting < LEAST => LEAST,
        Some(fitting) if fitting < MOST => fitting,
        Some(_) => MOST,
    }
}

/// The elements, and how the shard takes part in the bag.
pub(super) struct Elements<T> {
    /// The block of the latest puts.
    top: Vec<T>,
    older: Vec<Vec<T>>,
    /// Number of elements in `older`.
    in_older: usize,
    /// An empty block, so that a shard whose size changes little around a block's end allocates nothing.
    empty: Option<Vec<T>>,
    standing: Standing,
    /// The shard keeps its bit in the directory.
    is_listed: bool,
    /// Each put and get goes the plain way, while there is room: the shard is a member without a bit.
    is_plain: bool,
}

/// How a shard takes part in the bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Calls do not visit it.
    Gone,
    Member,
    /// On its way out: it gives its elements away, and does not receive.
    Leaving,
}

impl<T> Elements<T> {
    pub(super) fn new() -> Elements<T> {
        Elements {
            top: Vec::new(),
            older: Vec::new(),
            in_older: 0,
            empty: None,
            standing: Standing::Gone,
            is_listed: false,
            is_plain: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.top.len() + self.in_older
    }

    /// Returns whether each put and get goes the plain way, while there is room.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
        self.is_plain = standing == Standing::Member && !self.is_listed;
    }

    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub(super) fn set_listed(&mut self, is: bool) {
        self.is_listed = is;
        self.is_plain = self.standing == Standing::Member && !is;
    }

    /// Puts an element if the top block has room.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> Result<(), T> {
        if self.top.len() == self.top.capacity() {
            return Err(value);
        }
        self.top.push(value);
        Ok(())
    }

    /// Takes the latest element of the top block.
    #[inline]
    pub(super) fn pop_top(&mut self) -> Option<T> {
        self.top.pop()
    }

    /// Takes an element. The second result is memory for the caller to free.
    pub(super) fn pop(&mut self) -> (Option<T>, Vec<T>) {
        let old = self.refill();
        (self.top.pop(), old)
    }

    /// Makes the latest other block the top, if the top is empty. Returns memory for the caller to free.
    fn refill(&mut self) -> Vec<T> {
        if self.top.is_empty()
            && let Some(block) = self.older.pop()
        {
            self.in_older -= block.len();
            let old = std::mem::replace(&mut self.top, block);
            return self.keep(old);
        }
        Vec::new()
    }

    /// Moves up to `max` elements of one block into `into`. Returns their number, and memory for the caller
    /// to free.
    pub(super) fn take_into(&mut self, into: &mut Vec<T>, max: usize) -> (usize, Vec<T>) {
        let old = self.refill();
        let count = max.min(self.top.len());
        into.extend(self.top.drain(self.top.len() - count..));
        (count, old)
    }

    /// Keeps an empty block for later, or returns it.
    fn keep(&mut self, block: Vec<T>) -> Vec<T> {
        debug_assert!(block.is_empty());
        // Larger ones come from batches.
        let fits = (block_len::<T>()..=block_len::<T>().saturating_mul(2)).contains(&block.capacity());
        if self.empty.is_none() && self.standing != Standing::Gone && fits {
            self.empty = Some(block);
            return Vec::new();
        }
        block
    }

    /// Makes room in the top block for `count` elements, fewer than a block has. If that needs memory which
    /// `spare` lacks, it returns the needs and does no more.
    pub(super) fn make_room(&mut self, count: usize, spare: &mut Spare<T>) -> Result<(), Needs> {
        if count <= self.top.capacity() - self.top.len() {
            return Ok(());
        }
        let block = self.empty.is_none() && spare.block.is_none();
        let older = if self.top.is_empty() { 0 } else { self.lacks_older(spare) };
        if block || older > 0 {
            return Err(Needs { block, older });
        }
        let new = self.empty.take().or_else(|| spare.block.take()).unwrap_or_default();
        let old = std::mem::replace(&mut self.top, new);
        if old.is_empty() {
            spare.block = Some(old);
        } else {
            self.push_older(old, spare);
        }
        Ok(())
    }

    /// Puts an element. [`make_room`](Elements::make_room) has made the room.
    pub(super) fn push_with_room(&mut self, value: T) {
        self.top.push(value);
    }

    /// Moves elements out of `values`, fewer than a block has. [`make_room`](Elements::make_room) has made
    /// the room.
    pub(super) fn append(&mut self, values: &mut Vec<T>) {
        self.top.append(values);
    }

    /// Puts a block, and leaves memory for the caller to free in its place. If that needs memory which
    /// `spare` lacks, it returns the needs and does no more.
    pub(super) fn put_block(&mut self, block: &mut Vec<T>, spare: &mut Spare<T>) -> Result<(), Needs> {
        if self.top.is_empty() {
            std::mem::swap(&mut self.top, block);
            return Ok(());
        }
        if block.len() <= self.top.capacity() - self.top.len() {
            // Small blocks must not pile up.
            self.top.append(block);
            return Ok(());
        }
        match self.lacks_older(spare) {
            0 => self.push_older(std::mem::take(block), spare),
            older => return Err(Needs { block: false, older }),
        }
        Ok(())
    }

    /// Returns how many blocks the list of older ones should have room for, or 0 if there is room for one.
    fn lacks_older(&self, spare: &Spare<T>) -> usize {
        let len = self.older.len();
        if len < self.older.capacity() || len < spare.older.capacity() { 0 } else { (len * 2).max(4) }
    }

    fn push_older(&mut self, block: Vec<T>, spare: &mut Spare<T>) {
        if self.older.len() == self.older.capacity() {
            spare.older.append(&mut self.older);
            std::mem::swap(&mut self.older, &mut spare.older);
        }
        self.in_older += block.len();
        self.older.push(block);
    }

    /// Lends the top block as memory for a transfer, if it is empty.
    pub(super) fn lend(&mut self) -> Vec<T> {
        if self.top.is_empty() { std::mem::take(&mut self.top) } else { Vec::new() }
    }

    /// Takes back an empty block, or returns it for the caller to free.
    pub(super) fn take_back(&mut self, block: Vec<T>) -> Vec<T> {
        if self.top.capacity() == 0 && self.standing != Standing::Gone {
            return std::mem::replace(&mut self.top, block);
        }
        self.keep(block)
    }

    /// Takes up to `max` elements in exchange for an empty block, usually the oldest ones. If `block` is
    /// too small for single elements, it only returns how many it should hold. `free` gets memory for the
    /// caller to free.
    pub(super) fn exchange(&mut self, block: &mut Vec<T>, max: usize, free: &mut Vec<T>) -> Option<usize> {
        debug_assert!(block.is_empty() && free.is_empty());
        let is_top = self.older.is_empty();
        let source = self.older.first_mut().unwrap_or(&mut self.top);
        if source.is_empty() {
            return None;
        }
        if source.len() > max {
            if block.capacity() == 0 {
                return Some(max.min(source.len()));
            }
            let count = max.min(block.capacity());
            block.extend(source.drain(source.len() - count..));
            self.in_older -= if is_top { 0 } else { count };
        } else if is_top {
            std::mem::swap(source, block);
        } else {
            // Any order is right, so the last block takes the place of the first.
            let taken = self.older.swap_remove(0);
            self.in_older -= taken.len();
            *free = self.keep(std::mem::replace(block, taken));
        }
        None
    }

    /// Takes the memory of a shard without elements, for the caller to free.
    pub(super) fn release(&mut self) -> impl Sized + use<T> {
        debug_assert_eq!(self.len(), 0);
        (std::mem::take(&mut self.top), std::mem::take(&mut self.older), self.empty.take())
    }
}
