//! Profiles programs that are hard to profile. If there is no emulator, the tests print SKIP and pass.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use squall_locality::objects::Object;
use squall_locality::read::Losses;
use squall_locality::report::{LineReport, Report, page, table};
use squall_locality::run::Outcome;
use squall_locality::{Switch, Window};

use crate::common::{look, options};

/// Maximum number of lines in a report.
const LINES: usize = 1_000;

/// The line of this static variable.
fn line_of<'a>(report: &'a Report, name: &str) -> Option<&'a LineReport> {
    report.lines.iter().find(|line| match &line.object {
        Object::Static { names, .. } => names.iter().any(|known| known.contains(name)),
        _ => false,
    })
}

/// A new folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("squall-guest-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a name in UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn guest_that_closes_all_descriptors_keeps_its_own_files() {
    let folder = Folder::new("closes");
    let Some(options) = options("guest", &["closes", folder.text()]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0), "it found in its files what it wrote");
    for round in 0..10 {
        for at in 0..20 {
            let path = folder.0.join(format!("{round}-{at}"));
            assert_eq!(std::fs::read_to_string(&path).expect("the file"), path.to_str().expect("UTF-8"));
        }
    }
    // Ten rounds of four threads with a hundred writes each.
    assert_eq!(line_of(&report, "SHARED").expect("a shared line").writes, 4_000);
    assert_eq!(report.losses, Losses::default());
}

#[test]
fn guest_that_forks_is_counted_in_both_processes() {
    let Some(options) = options("guest", &["fork", "700"]) else { return };
    let report = look(&options, Some(700), LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert!(!table(&report).contains("INCOMPLETE"), "{:?}", report.incomplete);
    assert_eq!(report.processes.len(), 2);
    for process in &report.processes {
        assert_eq!((process.threads_working, process.write_shared_accesses), (2, 1_400));
    }
    assert_eq!(report.write_shared_of_all_processes(), Some(1.0));
}

#[test]
fn guest_that_forks_in_its_window_has_a_child_in_the_window() {
    let Some(options) = options("guest", &["fork-inside", "3000"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    let child =
        report.processes.iter().find(|process| process.pid != report.pid || process.parent == report.pid);
    let child = child.expect("two processes");
    assert!(child.accesses >= 3_000, "{}", child.accesses);
    // The child's threads start after the end of the window and do not count.
    assert_eq!((child.threads_working, child.threads, child.write_shared_accesses), (1, 1, 0));
}

#[test]
fn guest_child_inherits_blocks() {
    let Some(mut options) = options("guest", &["inherits", "500"]) else { return };
    // The parent counts nothing, so the report is the child's.
    options.window = Window::Marks;
    let report = look(&options, Some(500), LINES);
    assert_eq!((&report.outcome, report.processes.len(), report.threads), (&Outcome::Exited(0), 2, 2));
    assert!(!report.notes.iter().any(|note| note.contains("Heap blocks are unknown")), "{:?}", report.notes);
    let [line] = &report.lines[..] else { panic!("{:?}", report.lines) };
    let Object::Heap { blocks } = &line.object else { panic!("{:?}", line.object) };
    let file = blocks[0].allocated_at().and_then(|frame| frame.file.as_deref());
    assert!(file.is_some_and(|file| file.ends_with("guest.rs")), "{:?}", blocks[0].frames);
    // Both processes have a thread 0; the parent's allocated the block.
    let parent = report.processes.iter().find(|process| process.pid == report.pid).map(|child| child.parent);
    assert_eq!((blocks[0].process, blocks[0].thread), (parent, 0));
}

#[test]
fn guest_with_many_children_has_a_report_of_each() {
    let Some(options) = options("guest", &["children", "150"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert_eq!(report.processes.len(), 151);
    assert!(report.processes.iter().all(|process| process.accesses > 10), "each did something");
    assert_eq!(report.losses, Losses::default());
}

#[test]
fn guest_that_calls_exec_is_reported_if_it_succeeds() {
    let Some(mut options) = options("guest", &["exec-fails", "-"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert_eq!(report.processes[0].became, None);
    assert!(!report.notes.iter().any(|note| note.contains("became")), "{:?}", report.notes);
    assert_eq!(line_of(&report, "SHARED").expect("a shared line").writes, 10_000);
    options.arguments = vec!["exec".into(), "/bin/false".into()];
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(1), "it is the other's");
    assert_eq!(report.processes[0].became.as_deref(), Some("/bin/false"));
    let notes = report.notes.iter().filter(|note| note.contains("became /bin/false"));
    assert_eq!(notes.count(), 1);
    assert_eq!(line_of(&report, "SHARED").expect("a shared line").writes, 10_000);
}

#[test]
fn guest_that_is_killed_keeps_its_counts() {
    let Some(options) = options("guest", &["kill", "4000"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Signal(9));
    assert_eq!(line_of(&report, "SHARED").expect("a shared line").writes, 8_000);
    assert!(report.incomplete.iter().any(|why| why.contains("signal 9")));
    for text in [table(&report), page(&report)] {
        let head = text.split("accesses").next().unwrap_or_default();
        assert!(text.contains("INCOMPLETE") && text.contains("died of signal 9"), "{head}");
    }
}

#[test]
fn guest_with_more_threads_than_descriptors_is_counted_completely() {
    let Some(mut options) = options("guest", &["crowd", "1200"]) else { return };
    // Work before the window takes room as well.
    options.entries_max = 1 << 23;
    let report = look(&options, Some(20), LINES);
    assert_eq!((&report.outcome, report.threads), (&Outcome::Exited(0), 1_200));
    assert_eq!(report.losses, Losses::default());
    assert_eq!(line_of(&report, "SHARED").expect("a shared line").writes, 24_000);
    assert_eq!(report.write_shared_accesses_per_op, Some(1.0), "{}", table(&report));
}

#[test]
fn guest_with_too_many_threads_reports_losses() {
    let Some(mut options) = options("guest", &["crowd", "300"]) else { return };
    options.entries_max = 1;
    let report = look(&options, Some(20), LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert!(report.losses.threads > 0 && report.losses.accesses > 0, "{:?}", report.losses);
    let why = report.incomplete.join("; ");
    assert!(why.contains("no room"), "{why}");
    for text in [table(&report), page(&report)] {
        assert!(text.contains("Not recorded: "), "{text}");
    }
    let json = serde_json::to_value(&report).expect("an object");
    assert_eq!(json["losses"]["threads"].as_u64(), Some(report.losses.threads));
}

#[test]
fn guest_thread_that_sleeps_through_the_first_window_counts_in_the_second() {
    let Some(options) = options("guest", &["idle", "800"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    let line = line_of(&report, "SHARED").expect("two threads share it");
    // Each thread counts in the second window; the sleeper's earlier work does not count.
    let writes: Vec<u64> = line.threads.iter().map(|touch| touch.writes).collect();
    assert_eq!(writes, [800, 800]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn guest_with_unmapped_stacks_does_not_crash() {
    // A cached walk that went from one stack to another is not reused.
    let Some(options) = options("guest", &["stacks", "-"]) else { return };
    assert_eq!(look(&options, None, LINES).outcome, Outcome::Exited(0));
}

#[test]
fn guest_keeps_its_errno() {
    let Some(options) = options("guest", &["errno", "-"]) else { return };
    assert_eq!(look(&options, None, LINES).outcome, Outcome::Exited(0));
}

#[test]
fn guest_stack_and_thread_local_words_have_an_owner() {
    for (name, is_local) in [("stack", false), ("local", true)] {
        let Some(options) = options("guest", &[name, "-"]) else { return };
        let report = look(&options, None, LINES);
        assert_eq!(report.outcome, Outcome::Exited(0));
        // The line on a stack may have been used before.
        let line =
            report.lines.iter().find(|line| line.content.starts_with("atomic") && line.writes >= 2_000);
        let line = line.expect("two threads share it");
        let tid = match &line.object {
            Object::ThreadLocal { tid } if is_local => *tid,
            Object::Stack { tid } if !is_local => *tid,
            other => panic!("{name}: {other:?}"),
        };
        // The owner is neither the first thread nor one of the adding threads.
        let owner = report.thread_list.iter().find(|thread| thread.tid == tid).expect("a thread");
        let adds = |thread: u32| line.threads.iter().any(|it| it.thread == thread && it.writes >= 1_000);
        assert!(owner.tid != report.pid && !adds(owner.number), "{name}: {owner:?}");
    }
}

#[test]
fn guest_that_replaces_a_mapping_is_attributed_to_the_new_one() {
    let folder = Folder::new("remap");
    let Some(options) = options("guest", &["remap", folder.text()]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    let line = report.lines.iter().find(|line| line.writes == 1_000).expect("two threads share it");
    let second = Object::File { path: folder.0.join("second"), offset: 4096 };
    assert_eq!(line.object, second);
}

#[test]
fn guest_threads_that_sleep_do_not_make_the_sample_coarser() {
    let Some(mut options) = options("guest", &["sleepers", "4000"]) else { return };
    options.entries_max = 8_192;
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    // 32000 lines and some thousand others: one in eight fits, or one in sixteen if they come late.
    assert!((4..=16).contains(&report.one_line_in), "{}", report.one_line_in);
}

/// Waits until each process of the report has ended. A killed process ends when it runs the next time. If one
/// was not killed, the test hangs.
fn await_end(report: &Report) {
    while report.processes.iter().any(|process| is_alive(process.pid)) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether this process is alive and not a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[test]
fn guest_accepts_the_longest_timeout() {
    let Some(mut options) = options("guest", &["errno", "-"]) else { return };
    options.timeout = Some(Duration::MAX);
    assert_eq!(look(&options, None, LINES).outcome, Outcome::Exited(0));
}

#[test]
fn guest_that_never_ends_is_killed_with_its_processes() {
    let folder = Folder::new("timeout");
    let Some(mut options) = options("guest", &["never-ends", folder.text()]) else { return };
    // A busy machine may need longer until all processes have started.
    let whole = [2, 8, 32, 128].iter().any(|seconds| {
        options.timeout = Some(Duration::from_secs(*seconds));
        let report = look(&options, None, LINES);
        assert_eq!(report.outcome, Outcome::TimedOut);
        await_end(&report);
        report.processes.len() == 3 && line_of(&report, "SHARED").is_some_and(|line| line.writes > 1_000)
    });
    assert!(whole, "three processes, and a line shared by two threads");
}

#[test]
fn guest_is_killed_and_reported_after_a_stop() {
    let folder = Folder::new("stop");
    let Some(mut options) = options("guest", &["never-ends", folder.text()]) else { return };
    let stop = Arc::new(AtomicUsize::new(0));
    options.stop = Some(Arc::clone(&stop));
    let files = ["0", "1", "child", "grandchild"].map(|name| folder.0.join(name));
    let told = std::thread::spawn(move || {
        while !files.iter().all(|file| file.exists()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(15, Ordering::Relaxed);
    });
    let report = look(&options, None, LINES);
    told.join().expect("it tells");
    assert_eq!((&report.outcome, report.processes.len()), (&Outcome::Stopped(15), 3));
    await_end(&report);
    assert!(line_of(&report, "SHARED").is_some_and(|line| line.writes > 1_000));
    assert!(report.notes.iter().any(|note| note.contains("stopped by signal 15")), "{:?}", report.notes);
}

#[test]
fn guest_server_that_was_stopped_on_purpose_is_complete() {
    for direct in [false, true] {
        let folder = Folder::new(if direct { "stopped" } else { "passed-on" });
        let Some(mut options) = options("guest", &["ends", folder.text()]) else { return };
        let stop = Arc::new(AtomicUsize::new(0));
        options.stop = Some(Arc::clone(&stop));
        let ready = folder.0.join("ready");
        let told = std::thread::spawn(move || {
            let pid = loop {
                match std::fs::read_to_string(&ready).unwrap_or_default().parse() {
                    Ok(pid) => break Pid::from_raw(pid).expect("a process"),
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            if direct {
                kill_process(pid, Signal::TERM).expect("it lives");
            } else {
                stop.store(15, Ordering::Relaxed);
            }
        });
        let report = look(&options, None, LINES);
        told.join().expect("it tells");
        assert_eq!(report.outcome, Outcome::Stopped(15));
        assert!(report.incomplete.is_empty(), "{:?}", report.incomplete);
        assert_eq!(line_of(&report, "SHARED").expect("it is shared").writes, 2_000);
    }
}

#[test]
fn guest_counts_only_while_its_switch_is_on() {
    let folder = Folder::new("phases");
    let Some(mut options) = options("guest", &["phases", folder.text()]) else { return };
    let switch = Arc::new(Switch::new(false));
    options.window = Window::Switch(Arc::clone(&switch));
    let path = folder.0.clone();
    let told = std::thread::spawn(move || {
        for (question, on) in [("begin", true), ("end", false)] {
            while !path.join(question).exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            switch.set(on);
            while switch.is_on() != on {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::fs::write(path.join(format!("{question}-answer")), "").expect("a file");
        }
    });
    let report = look(&options, None, LINES);
    told.join().expect("it tells");
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert_eq!(line_of(&report, "SHARED").expect("it is inside").writes, 2_000);
    assert!(line_of(&report, "OTHER").is_none(), "it is outside");
}

#[test]
fn guest_window_function_entered_by_a_jump_lasts_as_long_as_its_frame() {
    let Some(mut options) = options("guest", &["tail", "600"]) else { return };
    options.window = Window::Function("tail_window".into());
    let report = look(&options, Some(600), LINES);
    assert_eq!((&report.outcome, report.threads), (&Outcome::Exited(0), 2));
    assert_eq!(line_of(&report, "SHARED").expect("it is inside").writes, 1_200);
    assert!(line_of(&report, "OTHER").is_none(), "it is outside");
    assert_eq!(report.write_shared_accesses_per_op, Some(1.0));
}
