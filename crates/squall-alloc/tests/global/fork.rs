//! After a fork the child goes on to allocate, even if other threads of the parent were in the middle of an
//! allocation.

use std::sync::atomic::{AtomicBool, Ordering};

fn busy(seed: usize) -> usize {
    let kept: Vec<Vec<u8>> = (0..300).map(|n| vec![n as u8; 1 + (n * 37 + seed * 101) % 20_000]).collect();
    kept.iter().map(Vec::len).sum()
}

/// Forks. The child runs `busy` and ends. Returns whether it ended well.
fn child_succeeds(seed: usize) -> bool {
    // SAFETY: the child only allocates, which is the subject of the test, and ends at once; it takes no locks
    // but the allocator's.
    unsafe {
        match libc::fork() {
            0 => {
                let ran = busy(seed) > 0;
                libc::_exit(i32::from(!ran));
            }
            child => {
                assert!(child > 0);
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

#[test]
fn a_child_allocates_after_a_fork_amid_allocations() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let over = &over;
            scope.spawn(move || {
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) {
                    busy(thread + rounds);
                    rounds += 1;
                }
            });
        }
        for seed in 0..40 {
            assert!(child_succeeds(seed));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(busy(7) > 0);
}
