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
//!
//! Not promised: the very end where nobody returns. What is left by `longjmp`, by a panic or to another coroutine ends with the
//! next return to a frame further out, or with the next call from where the frame was. On aarch64 frames of a recursion
//! that return to the same place are told apart by their number alone.

/// Frames that are looked through for a key.
const SEARCHED_MAX: usize = 4_096;
/// Frames that are known; of more, the outer half is forgotten.
const FRAMES_MAX: usize = 1 << 20;

/// The frames of a thread, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    keys: Vec<u64>,
    windows: Vec<usize>,
    /// Whether a key is of one frame at a time.
    unique: bool,
}

impl Frames {
    pub(crate) fn new(unique: bool) -> Frames {
        Frames { keys: Vec::new(), windows: Vec::new(), unique }
    }

    /// A call. How many windows end, since their frames cannot be there any more.
    pub(crate) fn called(&mut self, key: u64) -> usize {
        let mut ended = 0;
        if self.unique {
            ended += self.returned(key);
        }
        if self.keys.len() == FRAMES_MAX {
            let half = FRAMES_MAX / 2;
            self.keys.drain(..half);
            let kept: Vec<usize> = self.windows.iter().filter(|at| **at > half).map(|at| at - half).collect();
            ended += self.windows.len() - kept.len();
            self.windows = kept;
        }
        self.keys.push(key);
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
        let Some(up) = self.keys.iter().rev().take(SEARCHED_MAX).position(|known| *known == key) else {
            return 0;
        };
        self.keys.truncate(self.keys.len() - up - 1);
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
}
