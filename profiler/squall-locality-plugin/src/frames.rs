//! When a call of the window's function is over.
//!
//! Problem: a function is left by a return, but that need not be its own: it may end by a jump to another function, or be
//! unwound, or jumped out of. Idea: a list of the frames of each thread, each known by a key. On x86-64 the key is where
//! on the stack the return address lies, which a call stores and a return loads: the stack pointer, as seen from outside.
//! On aarch64 no call stores anything, and the key is the return address itself. A window belongs to the frame that its
//! function was entered in, and ends when that frame, or one further out, is returned from, by whichever function.
//!
//! - I1. Keys are compared for being the same, never for order: other stacks (signals, coroutines) may lie anywhere.
//! - I2. `windows` are places in `keys`, ascending: a window at `n` is of the frame `keys[n - 1]`.
//! - I3. `innermost` has each key that is in `keys`, and no other, with the highest place that it is at; from there the others of the
//!   same key are a chain outwards.
//!
//! Not promised: the very end where nobody returns. What is left by `longjmp`, by a panic or to another coroutine ends with the
//! next return to a frame further out, or with the next call from where the frame was. On aarch64 frames of a recursion
//! that return to the same place are told apart by their number alone.
//!
//! Cost: a call and a return are each one step in a map, however deep they are.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Frames that are known; of more, the outer half is forgotten.
const FRAMES_MAX: usize = 1 << 20;

/// Spreads keys, which are addresses that nobody chose to collide.
#[derive(Clone, Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The map looks at the high and at the low bits.
        self.0 ^= self.0 >> 32;
    }
}

/// The frames of a thread, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// Of each its key, and the place above the next frame outwards that has the same; 0 for none.
    keys: Vec<(u64, u32)>,
    /// The place above the innermost frame of each key (I3).
    innermost: HashMap<u64, u32, BuildHasherDefault<Spread>>,
    windows: Vec<usize>,
    /// Whether a key is of one frame at a time.
    unique: bool,
}

impl Frames {
    pub(crate) fn new(unique: bool) -> Frames {
        Frames { keys: Vec::new(), innermost: HashMap::default(), windows: Vec::new(), unique }
    }

    /// A call. How many windows end, since their frames cannot be there any more.
    pub(crate) fn called(&mut self, key: u64) -> usize {
        let mut ended = 0;
        if self.unique {
            ended += self.returned(key);
        }
        if self.keys.len() == FRAMES_MAX {
            ended += self.forget_outer_half();
        }
        self.push(key);
        ended
    }

    fn push(&mut self, key: u64) {
        // Of at most FRAMES_MAX.
        let place = self.keys.len() as u32 + 1;
        let outer = self.innermost.insert(key, place).unwrap_or(0);
        self.keys.push((key, outer));
    }

    fn pop(&mut self) {
        if let Some((key, outer)) = self.keys.pop() {
            if outer == 0 {
                self.innermost.remove(&key);
            } else {
                self.innermost.insert(key, outer);
            }
        }
    }

    /// How many windows end by it.
    fn forget_outer_half(&mut self) -> usize {
        let half = FRAMES_MAX / 2;
        let inner: Vec<u64> = self.keys.drain(..).skip(half).map(|(key, _)| key).collect();
        self.innermost.clear();
        inner.into_iter().for_each(|key| self.push(key));
        let kept: Vec<usize> = self.windows.iter().filter(|at| **at > half).map(|at| at - half).collect();
        let ended = self.windows.len() - kept.len();
        self.windows = kept;
        ended
    }

    /// The window's function begins. Whether a window does: a jump back to where it begins is no new one.
    pub(crate) fn entered(&mut self) -> bool {
        let at = self.keys.len();
        if self.windows.last() == Some(&at) {
            return false;
        }
        self.windows.push(at);
        true
    }

    /// A return. How many windows end.
    pub(crate) fn returned(&mut self, key: u64) -> usize {
        let Some(place) = self.innermost.get(&key).map(|place| *place as usize) else { return 0 };
        while self.keys.len() >= place {
            self.pop();
        }
        let before = self.windows.len();
        while self.windows.last().is_some_and(|at| *at > self.keys.len()) {
            self.windows.pop();
        }
        before - self.windows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_with_the_return_of_its_frame() {
        let mut frames = Frames::new(true);
        frames.called(100);
        frames.called(90);
        assert!(frames.entered());
        frames.called(80);
        assert_eq!(frames.returned(80), 0);
        assert_eq!(frames.returned(90), 1);
        assert_eq!(frames.returned(100), 0);
    }

    #[test]
    fn a_jump_out_and_a_jump_in_stay_in_the_frame() {
        let mut frames = Frames::new(true);
        frames.called(100);
        // A function that calls, and then jumps to the window's, which jumps to another, which calls, too.
        frames.called(90);
        assert_eq!(frames.returned(90), 0);
        assert!(frames.entered());
        frames.called(92);
        assert_eq!(frames.returned(92), 0);
        assert_eq!(frames.returned(100), 1);
    }

    #[test]
    fn what_is_jumped_out_of_ends_with_the_next_outer_return_or_the_next_call_there() {
        let mut frames = Frames::new(true);
        for key in [100, 90, 80] {
            frames.called(key);
        }
        assert!(frames.entered());
        frames.called(70);
        assert_eq!(frames.clone().returned(90), 1);
        assert_eq!(frames.called(80), 1);
        // Another stack's return ends nothing.
        assert!(frames.entered());
        assert_eq!(frames.returned(5_000), 0);
        assert_eq!(frames.returned(80), 1);
    }

    #[test]
    fn a_jump_back_to_the_beginning_is_no_new_window_and_a_recursion_is() {
        let mut frames = Frames::new(false);
        frames.called(7);
        assert!(frames.entered() && !frames.entered());
        // The same return address, in another frame.
        for _ in 0..3 {
            frames.called(7);
            assert!(frames.entered());
        }
        for _ in 0..4 {
            assert_eq!(frames.returned(7), 1);
        }
        assert_eq!(frames.returned(7), 0);
    }

    #[test]
    fn frames_beyond_the_most_are_forgotten_and_their_windows_end() {
        let mut frames = Frames::new(false);
        frames.called(1);
        assert!(frames.entered());
        let ended: usize = (0..FRAMES_MAX as u64).map(|key| frames.called(2 + key)).sum();
        assert_eq!((ended, frames.windows.len()), (1, 0));
        assert!(frames.keys.len() <= FRAMES_MAX);
    }

    #[test]
    fn a_frame_is_found_however_deep_others_are_in_it() {
        for unique in [true, false] {
            let mut frames = Frames::new(unique);
            frames.called(7);
            assert!(frames.entered());
            for key in 0..100_000 {
                frames.called(1_000 + key);
            }
            // Jumped out of all of them.
            assert_eq!(frames.returned(7), 1);
            assert!(frames.keys.is_empty() && frames.innermost.is_empty() && frames.windows.is_empty());
        }
    }

    #[test]
    fn keys_are_found_as_by_looking_through_all() {
        // xorshift64, from a seed of its own.
        let mut random = 0x2545_f491_4f6c_dd1du64;
        for unique in [true, false] {
            let mut frames = Frames::new(unique);
            let mut plain: Vec<u64> = Vec::new();
            let leave = |plain: &mut Vec<u64>, key: u64| {
                if let Some(at) = plain.iter().rposition(|known| *known == key) {
                    plain.truncate(at);
                }
            };
            for _ in 0..20_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = random >> 8 & 63;
                if random & 3 == 0 {
                    frames.returned(key);
                    leave(&mut plain, key);
                } else {
                    frames.called(key);
                    if unique {
                        leave(&mut plain, key);
                    }
                    plain.push(key);
                }
                assert!(frames.keys.iter().map(|(key, _)| key).eq(&plain));
            }
        }
    }
}
