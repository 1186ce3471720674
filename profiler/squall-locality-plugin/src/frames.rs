//! Detects the end of a call of the window's function.
//!
//! Problem: a function can end without a return of its own: by a tail call, by unwinding, or by a jump out.
//! Idea: each thread has a list of its stack frames, each with a key. On x86-64 the key is the stack address
//! of the return address, which a call stores and a return loads. On aarch64 a call stores nothing, so the
//! key is the return address itself. A window belongs to the frame in which its function was entered. It ends
//! when that frame or an outer one returns.
//!
//! - I1. Keys are compared for equality, never for order: other stacks (signals, coroutines) may lie
//!   anywhere.
//! - I2. `windows` are indexes into `keys`, ascending: a window at `n` belongs to the frame `keys[n - 1]`.
//! - I3. `innermost` maps exactly the keys in `keys`, each to its highest index plus one. From there, frames
//!   with the same key form a chain outwards.
//!
//! Not promised: the exact end if there is no return. After `longjmp`, a panic or a coroutine switch, a
//! window ends with the next return to an outer frame, or with the next call at the same stack address. On
//! aarch64, recursive frames with the same return address are distinguished only by their count.
//!
//! Cost: one map operation per call and per return, at any depth.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Maximum number of frames; beyond it, the outer half is forgotten.
const FRAMES_MAX: usize = 1 << 20;

/// Hasher for keys, which are addresses without adversarial collisions.
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
        // The map uses the high and the low bits.
        self.0 ^= self.0 >> 32;
    }
}

/// Frames of a thread, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// Per frame: its key, and the index plus one of the next outer frame with that key, or 0.
    keys: Vec<(u64, u32)>,
    /// Index plus one of the innermost frame of each key (I3).
    innermost: HashMap<u64, u32, BuildHasherDefault<Spread>>,
    windows: Vec<usize>,
    /// Whether frames have distinct keys.
    unique: bool,
}

impl Frames {
    pub(crate) fn new(unique: bool) -> Frames {
        Frames { keys: Vec::new(), innermost: HashMap::default(), windows: Vec::new(), unique }
    }

    /// Handles a call. Returns the number of windows that end because their frames cannot exist any more.
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
        // Fits: at most `FRAMES_MAX`.
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

    /// Forgets the outer half of the frames. Returns the number of windows that end.
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

    /// Handles the entry of the window's function. Returns whether a window begins; a jump back to the entry
    /// starts none.
    pub(crate) fn entered(&mut self) -> bool {
        let at = self.keys.len();
        if self.windows.last() == Some(&at) {
            return false;
        }
        self.windows.push(at);
        true
    }

    /// Handles a return. Returns the number of windows that end.
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
    fn tail_calls_stay_in_the_frame() {
        let mut frames = Frames::new(true);
        frames.called(100);
        // A function that calls and then jumps to the window's function, which jumps to another that calls.
        frames.called(90);
        assert_eq!(frames.returned(90), 0);
        assert!(frames.entered());
        frames.called(92);
        assert_eq!(frames.returned(92), 0);
        assert_eq!(frames.returned(100), 1);
    }

    #[test]
    fn a_jump_out_ends_with_the_next_outer_return_or_call() {
        let mut frames = Frames::new(true);
        for key in [100, 90, 80] {
            frames.called(key);
        }
        assert!(frames.entered());
        frames.called(70);
        assert_eq!(frames.clone().returned(90), 1);
        assert_eq!(frames.called(80), 1);
        // A return on another stack ends no window.
        assert!(frames.entered());
        assert_eq!(frames.returned(5_000), 0);
        assert_eq!(frames.returned(80), 1);
    }

    #[test]
    fn recursion_opens_a_window_and_a_loop_does_not() {
        let mut frames = Frames::new(false);
        frames.called(7);
        assert!(frames.entered() && !frames.entered());
        // The same return address in another frame.
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
    fn outer_frames_are_forgotten_with_their_windows() {
        let mut frames = Frames::new(false);
        frames.called(1);
        assert!(frames.entered());
        let ended: usize = (0..FRAMES_MAX as u64).map(|key| frames.called(2 + key)).sum();
        assert_eq!((ended, frames.windows.len()), (1, 0));
        assert!(frames.keys.len() <= FRAMES_MAX);
    }

    #[test]
    fn a_frame_is_found_below_many_inner_frames() {
        for unique in [true, false] {
            let mut frames = Frames::new(unique);
            frames.called(7);
            assert!(frames.entered());
            for key in 0..100_000 {
                frames.called(1_000 + key);
            }
            // Jumps out of all inner frames.
            assert_eq!(frames.returned(7), 1);
            assert!(frames.keys.is_empty() && frames.innermost.is_empty() && frames.windows.is_empty());
        }
    }

    #[test]
    fn keys_agree_with_a_linear_search() {
        // xorshift64 with a fixed seed.
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
