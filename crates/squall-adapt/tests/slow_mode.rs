//! With the feature `tracing`, a slow mode of the process is reported once.
#![cfg(all(feature = "tracing", target_os = "linux", not(miri)))]

use squall_adapt::engine;
use std::fmt::Debug;
use std::process::Command;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Subscriber that prints the fields of each warning.
struct Printer;

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.0 += &format!("{}={value:?};", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        println!("warning {}", text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The mode is chosen once in a process, so a child has the slow one.
#[test]
fn a_slow_mode_is_reported_once() {
    const CHILD: &str = "SQUALL_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        tracing::subscriber::set_global_default(Printer).unwrap();
        engine::start();
        engine::set_thread(false);
        engine::set_thread(true);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_slow_mode_is_reported_once", "--nocapture"]).env(CHILD, "1");
    child.env("SQUALL_RSEQ", "off").env("SQUALL_MEMBARRIER", "off").env_remove("SQUALL_TOPOLOGY");
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let count =
        |of: &str| text.lines().filter(|line| line.starts_with("warning ") && line.contains(of)).count();
    assert_eq!(
        [count("no restartable sequences (SQUALL_RSEQ=off)"), count("SQUALL_MEMBARRIER=off")],
        [1, 1],
        "{text}"
    );
}
