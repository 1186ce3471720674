//! Private mappings in other processes, which are this program again in a role.

use crate::memory::State;
use crate::private::{mappable, numbered};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use squall_objects::pages::{self, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::hat::{self, AttachError, Attached, MapError};
use squall_pager::region::Mapping;
use squall_sys::uffd::{Features, Uffd};
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "SQUALL_TEST_ROLE";
const PAGES: usize = 64;

/// A process in a role, with a socket as its standard input.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    errors: Option<std::process::ChildStderr>,
}

impl Process {
    fn start(role: &str, socket: UnixStream) -> Process {
        let mut command = match std::env::var("SQUALL_TEST_RUNNER") {
            Ok(runner) => {
                let mut words = runner.split(' ');
                let mut command = Command::new(words.next().unwrap());
                command.args(words).arg(std::env::current_exe().unwrap());
                command
            }
            Err(_) => Command::new(std::env::current_exe().unwrap()),
        };
        command.args(["remote::role", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        let mut child = command
            .stdin(OwnedFd::from(socket))
            .stdout(Stdio::piped())
            .stderr(if role == "failing pager" { Stdio::piped() } else { Stdio::null() })
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = child.stderr.take();
        Process { child, output, errors }
    }

    /// Waits for a line of the process. Returns false if it ended before.
    fn wait_for(&mut self, wanted: &str) -> bool {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.trim_end().ends_with(wanted) {
                return true;
            }
            line.clear();
        }
        false
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asserts that SIGBUS ended the process. The address sanitizer makes it an error of its own.
    fn assert_signal(&mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.signal() == Some(libc::SIGBUS) || cfg!(squall_asan) && !status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn word(mapped: &Attached, page: usize) -> &AtomicU64 {
    assert!(page * PAGE_BYTES < mapped.len());
    // SAFETY: an aligned word of the mapping, which other threads access as a word too.
    unsafe { AtomicU64::from_ptr(mapped.as_ptr().as_ptr().add(page * PAGE_BYTES).cast()) }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Takes the socket from the standard input.
fn socket() -> UnixStream {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: dup2(2) with descriptors that are open.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), 0) }, 0);
    socket.into()
}

fn attach() -> Attached {
    // SAFETY: the roles touch the memory while they have the value, and the pager is another process.
    unsafe { hat::attach(socket()) }.unwrap()
}

/// Makes a child, which runs `act` and then lives until the test has closed the output.
fn fork(act: impl FnOnce()) {
    // SAFETY: the child runs `act`, which is written for the child of a fork, makes system calls, and ends.
    if unsafe { libc::fork() } == 0 {
        act();
        let mut output = libc::pollfd { fd: 1, events: 0, revents: 0 };
        // SAFETY: poll(2) of a place of our own. The child ends at once.
        unsafe {
            libc::alarm(120);
            libc::poll(&raw mut output, 1, -1);
            libc::_exit(0);
        }
    }
}

/// Serves a file until the process is killed.
fn pager(state: &Arc<State>, then: impl FnOnce()) -> ! {
    let (cache, _memory) = mappable(cache::Form::Shared, state, 8);
    cache.freeze();
    let _served = hat::serve(Mapping::new(cache), socket()).unwrap();
    then();
    say("serves");
    loop {
        thread::park();
    }
}

/// Not a test by itself.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_some() {
        // SAFETY: a process that waits in vain ends, and its test fails.
        unsafe { libc::alarm(120) };
    }
    match std::env::var(ROLE).as_deref() {
        Ok("worker") => worker(),
        Ok("survivor") => survivor(),
        Ok("toucher") => {
            let mapped = attach();
            say("attached");
            assert_eq!(word(&mapped, 1).load(Relaxed), 2);
            say("touched");
            word(&mapped, 7).load(Relaxed);
            say("not reached");
        }
        Ok("pager") => pager(&numbered(PAGES), || {}),
        Ok("forking pager") => pager(&numbered(PAGES), || fork(|| {})),
        Ok("failing pager") => {
            let state = numbered(PAGES);
            state.bad_reads.lock().unwrap().extend((0..PAGES as u64).map(|page| (page, "broken")));
            pager(&state, || {});
        }
        Ok("forking client") => forking_client(),
        _ => {}
    }
}

/// Changes pages from several threads, and sees no change of another process.
fn worker() {
    let mapped = attach();
    thread::scope(|scope| {
        for thread in 0..4 {
            let mapped = &mapped;
            scope.spawn(move || {
                for round in 0..100 {
                    let page = (thread * 11 + round * 7) % PAGES;
                    word(mapped, page).fetch_add(1 << 32, Relaxed);
                }
            });
        }
    });
    let words = || (0..PAGES).map(|page| word(&mapped, page).load(Relaxed));
    assert_eq!(words().map(|word| word & 0xFFFF_FFFF).sum::<u64>(), (1..=PAGES as u64).sum());
    assert_eq!(words().map(|word| word >> 32).sum::<u64>(), 400);
    say("done");
}

/// Goes on with its pages after the pager is gone, and ends at an absent one.
fn survivor() {
    let mapped = attach();
    assert_eq!(word(&mapped, 1).fetch_add(1, Relaxed), 2);
    say("ready");
    while !mapped.is_lost() {
        thread::yield_now();
    }
    assert_eq!(word(&mapped, 1).load(Relaxed), 3);
    say("lost");
    word(&mapped, 2).load(Relaxed);
    say("not reached");
}

/// Goes on with its pages after its child has dropped the mapping.
fn forking_client() {
    let mapped = attach();
    assert_eq!(word(&mapped, 1).load(Relaxed), 2);
    let (mut here, there) = UnixStream::pair().unwrap();
    let copy = std::mem::ManuallyDrop::new(mapped);
    fork(|| {
        // SAFETY: the child has a copy of the value, and drops that once.
        drop(unsafe { std::ptr::read(&*copy) });
        (&there).write_all(&[1]).unwrap();
    });
    here.read_exact(&mut [0]).unwrap();
    assert_eq!(word(&copy, 2).load(Relaxed), 3);
    say("went on");
    loop {
        thread::park();
    }
}

/// Returns whether the system allows mappings in other processes. Prints the reason if not.
fn is_allowed() -> bool {
    let (pager, client) = UnixStream::pair().unwrap();
    let memory = pages::distributed(Supply::system(1));
    let cache = cache::shared(State::with_pages(1).source(), memory.handle());
    cache.freeze();
    let serve = thread::spawn(move || hat::serve(Mapping::new(Arc::new(cache)), pager).map(drop));
    // SAFETY: no memory is touched.
    let attached = unsafe { hat::attach(client) };
    let served = serve.join().unwrap();
    match attached {
        Ok(_) => served.map(|()| true).unwrap(),
        Err(error @ AttachError::Refused(_)) => {
            println!("SKIP: {error}");
            false
        }
        Err(error) => panic!("{error}, {served:?}"),
    }
}

#[test]
fn processes_have_clones_of_one_file_and_one_may_be_killed() {
    if !is_allowed() {
        return;
    }
    for form in crate::FORMS {
        let (cache, _memory) = mappable(form, &numbered(PAGES), 8);
        cache.freeze();
        let start = |role| {
            let (pager, client) = UnixStream::pair().unwrap();
            let process = Process::start(role, client);
            (hat::serve(Mapping::new(cache.clone()), pager).unwrap(), process)
        };
        let (killed, mut victim) = start("survivor");
        assert!(victim.wait_for("ready"));
        let (_first, mut one) = start("worker");
        let (second, mut other) = start("worker");
        victim.kill();
        assert!(one.wait_for("done") && other.wait_for("done"));
        while !killed.is_over() {
            thread::yield_now();
        }
        assert!(second.pages() >= PAGES as u64 && killed.pages() >= 1);
        assert_eq!((cache.sensors().dirty, cache.pin(3).unwrap()[0]), (0, 4));
    }
}

#[test]
fn a_client_goes_on_with_its_pages_after_its_pager_was_killed() {
    if !is_allowed() {
        return;
    }
    let (pager, client) = UnixStream::pair().unwrap();
    let mut pager = Process::start("pager", pager);
    let mut client = Process::start("survivor", client);
    assert!(pager.wait_for("serves") && client.wait_for("ready"));
    pager.kill();
    assert!(client.wait_for("lost"));
    assert!(!client.wait_for("not reached"));
    client.assert_signal();
}

#[test]
fn a_page_that_cannot_be_read_is_a_signal_in_its_client_alone() {
    if !is_allowed() {
        return;
    }
    let state = numbered(PAGES);
    state.bad_reads.lock().unwrap().insert(7, "broken");
    // The second file has no window: its pages are copied.
    let memory = pages::distributed(Supply::system(64));
    let plain = Arc::new(cache::shared(state.source(), memory.handle()));
    let (window, _memory) = mappable(cache::Form::Shared, &state, 8);
    for cache in [window, plain] {
        cache.freeze();
        let (pager, client) = UnixStream::pair().unwrap();
        let mut toucher = Process::start("toucher", client);
        let served = hat::serve(Mapping::new(cache.clone()), pager).unwrap();
        assert!(toucher.wait_for("touched") && !toucher.wait_for("not reached"));
        toucher.assert_signal();
        assert!(served.pages() >= 1);
        assert_eq!((served.pages_failed(), cache.pin(1).unwrap()[0]), (1, 2));
    }
}

#[test]
fn each_side_sees_the_end_of_the_other_one_while_a_child_of_that_lives() {
    if !is_allowed() {
        return;
    }
    let (pager, client) = UnixStream::pair().unwrap();
    let mut pager = Process::start("forking pager", pager);
    let mut client = Process::start("survivor", client);
    assert!(pager.wait_for("serves") && client.wait_for("ready"));
    pager.kill();
    assert!(client.wait_for("lost"));
    let (cache, _memory) = mappable(cache::Form::Shared, &numbered(PAGES), 8);
    cache.freeze();
    let (pager, client) = UnixStream::pair().unwrap();
    let mut client = Process::start("forking client", client);
    let served = hat::serve(Mapping::new(cache.clone()), pager).unwrap();
    assert!(client.wait_for("went on") && !served.is_over());
    assert_eq!(cache.sensors().clients, 1);
    client.kill();
    let until = Instant::now() + Duration::from_secs(100);
    while !served.is_over() {
        assert!(Instant::now() < until, "the child of the client keeps the mapping");
        thread::yield_now();
    }
    assert_eq!(cache.sensors().clients, 0);
}

#[test]
fn a_hostile_client_does_not_flood_the_standard_error_of_its_pager() {
    let whole = Uffd::open(Features::EMPTY).is_ok_and(|uffd| uffd.user_mode_only() == Some(false));
    if !whole || !is_allowed() {
        println!("SKIP: the kernel's own faults are left out");
        return;
    }
    let (pager, client) = UnixStream::pair().unwrap();
    let mut pager = Process::start("failing pager", pager);
    // SAFETY: system calls alone touch the memory, and they return an error.
    let mapped = unsafe { hat::attach(client) }.unwrap();
    assert!(pager.wait_for("serves"));
    let (_from, to) = std::io::pipe().unwrap();
    for page in 0..PAGES {
        let from = word(&mapped, page).as_ptr().cast();
        // SAFETY: write(2) of a word of the mapping.
        let written = unsafe { libc::write(to.as_raw_fd(), from, 8) };
        assert_eq!((written, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    }
    pager.kill();
    let mut errors = String::new();
    pager.errors.take().unwrap().read_to_string(&mut errors).unwrap();
    let told = Vec::from_iter(errors.lines().filter(|line| line.starts_with("squall: no page at ")));
    // The failures 1, 2, 4, 8, 16, 32 and 64.
    assert_eq!(told.len(), 7, "{errors}");
    assert!(told[6].contains("failure 64 of a client"), "{errors}");
}

#[test]
fn a_peer_that_breaks_the_protocol_is_an_error() {
    let memory = pages::distributed(Supply::system(8));
    let cache = Arc::new(cache::shared(State::with_pages(2).source(), memory.handle()));
    let refused = |peer: &mut dyn FnMut(UnixStream)| {
        let (pager, client) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let serve = scope.spawn(|| hat::serve(Mapping::new(cache.clone()), pager).unwrap_err());
            peer(client);
            serve.join().unwrap().to_string()
        })
    };
    let unfrozen = refused(&mut drop);
    assert!(unfrozen.contains("freeze it first"), "{unfrozen}");
    cache.freeze();
    let gone = refused(&mut drop);
    assert!(gone.contains("cannot map a region: "), "{gone}");
    let other = refused(&mut |mut client| {
        client.write_all(&[7; 24]).unwrap();
        // To the end, so that the pager's greeting is no error.
        let _ = client.read_to_end(&mut Vec::new());
    });
    assert!(other.contains("another protocol"), "{other}");
    let without = refused(&mut |mut client| {
        let mut greeting = [0; 24];
        client.read_exact(&mut greeting).unwrap();
        client.write_all(&greeting).unwrap();
    });
    assert!(without.contains("no descriptor"), "{without}");
    let another = refused(&mut |mut client| {
        let mut greeting = [0; 24];
        client.read_exact(&mut greeting).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [client.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [IoSlice::new(&greeting)];
        rustix::net::sendmsg(&client, &bytes, &mut control, SendFlags::empty()).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    });
    assert!(another.contains("userfaultfd"), "{another}");
    let (client, pager) = UnixStream::pair().unwrap();
    drop(pager);
    // SAFETY: no memory is touched.
    let closed = unsafe { hat::attach(client) }.unwrap_err();
    assert!(
        closed.to_string().ends_with("the other process closed the socket before it answered"),
        "{closed}"
    );
    let range = hat::serve(Mapping::new(cache.clone()).part(2, 1), UnixStream::pair().unwrap().0);
    assert!(matches!(range, Err(MapError::Range { first_page: 2, bytes: 1, len: 8192 })));
}
