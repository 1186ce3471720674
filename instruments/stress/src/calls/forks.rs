//! Clients that fork: a forked child may only exec or end, and its parent's calls go on.
//!
//! - I1. A forked child gets an error from each call, import and export. Its parent's books stay exact.
//! - I2. A forked child ends by `exit`, `_exit` or a signal, or executes a program. Then its parent's
//!   descriptors and mappings are gone.
//! - I3. A server notices the end of a client even if a forked child of it lives.
//! - I4. A lock that another thread holds during the fork makes the child panic instead of wait.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::getppid;
use squall::call::{ExportError, ExportOptions, ImportError, RenewableImport, disconnect, export, imports};
use squall::{CallError, CallErrorKind, Handle, Owned};

use super::account::{Account, Keeper, Ledger};
use super::breaks::Break;
use super::caller::Calls;
use super::child::{visit, visit_once};
use super::part::{PATIENCE, Part, Role};
use super::processes::{News, Voice, await_end, command, end_with_parent};
use super::scribble;
use crate::fork::raw::{Ended, end_connections, fork, keep_descriptors_at_exec};
use crate::run::{Rng, Violation};
use crate::skeleton::breaks::{Breaks, asked};
use crate::skeleton::expected_panic::{catch_silently, panic_message};

/// The time limit of a forked child, in seconds: much longer than any needs.
const LIMIT: u32 = 60;
/// Longest life of a forked child that is killed, in microseconds.
const LIFE_MAX: u64 = 2_000;

/// How a forked child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit,
    AtOnce,
    Exec,
    Killed,
    /// With the input of its parent.
    Late,
}

/// Faults that a forked child reports by its status: this one for the first, and so on.
const FIRST_FAULT: i32 = 10;
const FAULTS: [&str; 8] = [
    "a call returned a result or a wrong error",
    "an import returned an object or a wrong error",
    "an export returned a wrong result",
    "a call through a renewable import returned a result or a wrong error",
    "it panicked",
    "it cannot execute a program",
    "its descriptors remained when it executed a program",
    "its mappings remained when it executed a program",
];
const CALL: i32 = FIRST_FAULT;
const IMPORT: i32 = FIRST_FAULT + 1;
const EXPORT: i32 = FIRST_FAULT + 2;
const RENEWABLE: i32 = FIRST_FAULT + 3;
const PANIC: i32 = FIRST_FAULT + 4;
const EXEC: i32 = FIRST_FAULT + 5;
const DESCRIPTORS: i32 = FIRST_FAULT + 6;
const MAPPINGS: i32 = FIRST_FAULT + 7;

/// The objects of a client, which its forked children inherit.
struct Objects {
    imported: Owned<dyn Account>,
    renewable: RenewableImport<dyn Account>,
    own: Owned<dyn Account>,
    exported: squall::call::Export,
}

/// Calls and forks, until the parent closes the input.
pub(super) fn call_and_fork(part: &Part, inherited: usize) -> Result<(), String> {
    // Installs the hook for silent panics before the first child.
    let _ = catch_silently(|| ());
    let broken = asked(Break::ALL).map_err(|Violation(what)| what)?;
    let options = part.options();
    let own: Owned<dyn Account> = squall::shared(Keeper(Ledger::new(None).into()));
    let name = format!("{}-fork-{}", part.name, std::process::id());
    let exported = ExportOptions::new().export(own.handle(), &name).map_err(|error| error.to_string())?;
    let objects = Objects {
        imported: options.import(&part.name).map_err(|error| error.to_string())?,
        renewable: RenewableImport::new(options, &name, PATIENCE).map_err(|error| error.to_string())?,
        own,
        exported,
    };
    let (stop, voice) = (AtomicBool::new(false), Voice::default());
    let handle = objects.imported.handle();
    // The objects live until all threads have ended.
    let _objects = thread::scope(|scope| {
        let (stop, voice) = (&stop, &voice);
        // The forking thread is the last one.
        for index in 0..part.threads - 1 {
            scope.spawn(move || visit(part, index, handle, stop, voice));
        }
        let forking = scope.spawn(move || fork_until(part, objects, (inherited, broken), stop, voice));
        voice.tell(News::Ready, 0);
        await_end();
        // Relaxed: the flag publishes no other data.
        stop.store(true, Ordering::Relaxed);
        forking.join()
    });
    Ok(())
}

/// Forks children and makes calls in turn. Returns the objects.
fn fork_until(
    part: &Part,
    objects: Objects,
    (inherited, broken): (usize, Option<Break>),
    stop: &AtomicBool,
    voice: &Voice,
) -> Option<Objects> {
    let index = part.threads - 1;
    let (mut calls, mut rng) = (Calls::new(objects.imported.handle(), index), Rng::new(part.seed, u64::MAX));
    let mut objects = Some(objects);
    let mut late = None;
    while !stop.load(Ordering::Relaxed) {
        visit_once(part, (&mut calls, index), &mut rng, stop, voice);
        let end = match rng.below(16) {
            // A break that only such an end can show. There are few forks on a slow machine.
            _ if broken == Some(Break::KeepAtExec) => End::Exec,
            0..5 => End::Exit,
            5..9 => End::AtOnce,
            9..11 => End::Exec,
            11..15 => End::Killed,
            _ if late.is_none() => End::Late,
            _ => End::AtOnce,
        };
        let life = Duration::from_micros(rng.below(LIFE_MAX));
        let parent = std::process::id();
        let forked = fork(LIMIT, || {
            let status = catch_silently(|| body(part, &mut objects, end, (inherited, broken), parent));
            (status.unwrap_or(PANIC), end == End::Exit)
        });
        let forked = match forked {
            Ok(forked) => forked,
            Err(error) => voice.wrong(&format!("cannot fork: {error}")),
        };
        if end == End::Late {
            late = Some(forked);
            voice.tell(News::Left, 0);
            continue;
        }
        if end == End::Killed {
            thread::sleep(life);
            forked.kill();
        }
        judge(forked.wait(), end, voice);
        voice.tell(News::Forked, 0);
    }
    if let Some(late) = late {
        judge(late.wait(), End::Late, voice);
    }
    objects
}

/// Checks how a forked child ended.
fn judge(ended: io::Result<Ended>, end: End, voice: &Voice) {
    let what = match ended {
        Ok(Ended::With(0)) if end != End::Killed => return,
        Ok(Ended::BySignal(signal)) if end == End::Killed && signal == libc::SIGKILL => return,
        Ok(Ended::With(status)) => FAULTS
            .get((status - FIRST_FAULT) as usize)
            .map_or_else(|| format!("it ended with status {status}"), |fault| (*fault).to_owned()),
        Ok(Ended::TooLate) => "it hung".to_owned(),
        Ok(Ended::BySignal(signal)) => format!("it was ended by signal {signal}"),
        Err(error) => format!("it cannot be waited for: {error}"),
    };
    voice.wrong(&format!("a forked child of a client ({end:?}): {what}"));
}

/// The body of a forked child. Returns its status.
fn body(
    part: &Part,
    objects: &mut Option<Objects>,
    end: End,
    (inherited, broken): (usize, Option<Break>),
    parent: u32,
) -> i32 {
    if end != End::Late {
        let is_parent = |pid: rustix::process::Pid| pid.as_raw_pid() as u32 == parent;
        if end_with_parent().is_err() || !getppid().is_some_and(is_parent) {
            return 0;
        }
    }
    let Some(all) = objects.as_ref() else { return PANIC };
    if broken == Some(Break::EndInFork) {
        end_connections();
    }
    loop {
        if let Err(fault) = use_all(part, all, broken) {
            return fault;
        }
        if end != End::Killed {
            break;
        }
    }
    match end {
        End::Exit => *objects = None,
        End::AtOnce | End::Killed => {}
        End::Exec => return execute(part, inherited, broken == Some(Break::KeepAtExec)),
        End::Late => wait_for_end(),
    }
    0
}

/// Uses the parent's objects in each way.
fn use_all(part: &Part, objects: &Objects, broken: Option<Break>) -> Result<(), i32> {
    let imported = objects.imported.handle();
    let answers_forked = broken == Some(Break::AnswerForked);
    let checks = [
        (all_refused(imported) && !answers_forked, CALL),
        (matches!(part.options().import::<dyn Account>(&part.name), Err(ImportError::Forked)), IMPORT),
        (matches!(export(objects.own.handle(), "forked"), Err(ExportError::Forked)), EXPORT),
        (objects.exported.deny("guarded").is_ok(), EXPORT),
    ];
    if let Some((_, fault)) = checks.into_iter().find(|(is_right, _)| !is_right) {
        return Err(fault);
    }
    // These take locks, which other threads of the parent may have held (I4).
    or_locked(|| {
        disconnect(imported);
        imports();
    })?;
    let renewed = or_locked(|| {
        is_refused(objects.renewable.call(PATIENCE, |object| object.try_hold(0)))
            && matches!(
                objects.renewable.renew(objects.renewable.handle(), PATIENCE),
                Err(ImportError::Forked)
            )
    })?;
    if renewed.unwrap_or(true) { Ok(()) } else { Err(RENEWABLE) }
}

fn is_refused<T>(answer: Result<T, CallError>) -> bool {
    answer.is_err_and(|error| error.reason() == CallErrorKind::Forked && !error.may_have_run())
}

/// Whether each method is refused.
fn all_refused(object: Handle<dyn Account>) -> bool {
    is_refused(object.try_enter(0))
        && is_refused(object.try_echo(&[1; 300]))
        && is_refused(object.try_hold(0))
        && is_refused(object.try_fail())
        && is_refused(object.try_guarded(1))
        && is_refused(object.try_nest(0, 1, 1))
}

/// Returns the result of `f`, unless a lock was held during the fork.
fn or_locked<R>(f: impl FnOnce() -> R) -> Result<Option<R>, i32> {
    match catch_silently(f) {
        Ok(result) => Ok(Some(result)),
        Err(payload) if panic_message(&*payload).contains("cannot be locked in the child of a fork") => {
            Ok(None)
        }
        Err(_) => Err(PANIC),
    }
}

/// Executes this program in the role of an heir. Returns only if that fails.
fn execute(part: &Part, inherited: usize, keeps: bool) -> i32 {
    if keeps {
        keep_descriptors_at_exec();
    }
    let heir = Part::new(Role::Heir, inherited as u32, part.seed, &part.name);
    if let Ok(mut command) = command(&heir.arguments()) {
        let _error = command.stdin(Stdio::null()).stdout(Stdio::null()).exec();
    }
    EXEC
}

/// The body of an heir: it has only the descriptors that the client had at its start.
pub(super) fn inherit(part: &Part, descriptors: usize) -> Result<(), String> {
    let fault = if descriptors > part.threads as usize {
        DESCRIPTORS
    } else if !scribble::segments().map_err(|error| error.to_string())?.is_empty() {
        MAPPINGS
    } else {
        return Ok(());
    };
    std::process::exit(fault)
}

/// Waits until the input is closed. The diary of the parent ends without this process.
fn wait_for_end() {
    if let Ok(null) = File::options().write(true).open("/dev/null")
        && rustix::stdio::dup2_stdout(null).is_ok()
    {
        // Another thread of the parent may have held the lock of `stdin`. Its descriptor has no lock.
        while rustix::io::read(io::stdin().as_fd(), &mut [0; 16]) == Err(rustix::io::Errno::INTR) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_text() {
        assert_eq!(FAULTS.len() as i32, MAPPINGS - FIRST_FAULT + 1);
        assert_eq!(FAULTS[(EXEC - FIRST_FAULT) as usize], "it cannot execute a program");
    }
}
