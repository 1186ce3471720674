//! The child: it serves a decoder on its standard input, under seccomp.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use squall::call::export_on;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use crate::redo::{Decoder, Redo};

/// System calls of a child that serves calls: it waits, shares memory, starts threads, and ends. The filter
/// refuses all others.
const ALLOWED: &[i64] = &[
    // Waiting and messages.
    libc::SYS_futex,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_ctl,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Memory: the segment of the connection, and the allocator's.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    // Threads: workers.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further system calls of the hostile child: it changes its own memory through `/proc/self/mem`.
const HOSTILE: [i64; 2] = [libc::SYS_pread64, libc::SYS_pwrite64];

/// Serves until the host closes the socket.
pub(crate) fn run(hostile: bool) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let memory =
        hostile.then(|| OpenOptions::new().read(true).write(true).open("/proc/self/mem")).transpose()?;
    let maps = std::fs::File::open("/proc/self/maps")?;
    let decoder = squall::shared::<dyn Redo, _>(Decoder);
    let export = export_on(decoder.handle(), socket).map_err(io::Error::other)?;
    confine(hostile)?;
    while export.clients().iter().any(|client| client.is_connected()) {
        if let Some(memory) = &memory {
            scribble(&maps, memory)?;
        } else {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Gives up all system calls but the allowed ones, for all threads of the process.
fn confine(hostile: bool) -> io::Result<()> {
    let hostile: &[i64] = if hostile { &HOSTILE } else { &[] };
    let rules: BTreeMap<_, _> = ALLOWED.iter().chain(hostile).map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter =
        SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}

/// Writes random bytes over the memory that is shared with the host.
fn scribble(maps: &std::fs::File, memory: &std::fs::File) -> io::Result<()> {
    let mut text = vec![0; 1 << 16];
    let length = maps.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for line in text.lines().filter(|line| line.contains("squall")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let Some((Ok(start), Ok(end))) =
            range.map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)))
        else {
            continue;
        };
        for _ in 0..10_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Half of the words go to the first slots, where the calls are.
            let span = if random & 1 == 0 { 4096.min(end - start) } else { end - start };
            let at = start + (random >> 1) % span;
            let _ = memory.write_at(&random.to_le_bytes()[..4], at & !3);
        }
    }
    Ok(())
}
