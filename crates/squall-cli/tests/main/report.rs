//! `squall report`: list, verdicts, files.

use std::fs;

use crate::common::{self, stderr, stdout};
use serde_json::Value;

#[test]
fn the_list_gives_an_id_and_a_title_on_each_line() {
    let output = common::run(common::squall().args(["report", "--list"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for line in text.lines() {
        let (id, title) = line.split_once(' ').unwrap_or_default();
        assert!(id.starts_with("EX-") && !title.trim().is_empty(), "{line}");
    }
    assert!(text.lines().any(|line| line.starts_with("EX-K1 ")), "{text}");
    let json = stdout(&common::run(common::squall().args(["report", "--list", "--json", "ex-k1"])));
    let row: Value = serde_json::from_str(&json).expect("one object");
    assert!(row["experiment"] == "EX-K1" && row["question"].is_string(), "{row}");
}

#[test]
fn an_unknown_experiment_is_answered_with_those_there_are() {
    let output = common::run(common::squall().args(["report", "EX-K999"]));
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(text.contains("\"EX-K999\"") && text.contains("EX-K13"), "{text}");
}

/// Names an emulator that does not exist, so the test runs anywhere.
#[test]
fn a_missing_instrument_gives_part_and_a_page() {
    let folder = std::env::temp_dir().join(format!("squall-report-cli-{}", std::process::id()));
    let mut command = common::squall();
    command.args(["report", "EX-T7", "--quick", "--json", "--out"]).arg(&folder);
    let output = common::run(command.env("SQUALL_EMULATOR", "/no/emulator"));
    assert!(output.status.success(), "{}", stderr(&output));
    let row: Value = serde_json::from_str(&stdout(&output)).expect("one object");
    assert_eq!((&row["experiment"], &row["verdict"]), (&"EX-T7".into(), &"part".into()));
    assert!(row["why"].as_str().is_some_and(|why| why.contains("/no/emulator")), "{row}");
    let page = fs::read_to_string(folder.join("index.html")).expect("the page");
    fs::remove_dir_all(&folder).expect("remove the folder");
    assert!(page.contains("EX-T7") && page.contains("/no/emulator"));
}

#[test]
fn the_plot_of_the_readme_needs_its_instrument() {
    let file = std::env::temp_dir().join(format!("squall-readme-{}.svg", std::process::id()));
    let mut command = common::squall();
    command.args(["report", "--readme"]).arg(&file).env("SQUALL_EMULATOR", "/no/emulator");
    let output = common::run(&mut command);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("/no/emulator"), "{}", stderr(&output));
    assert!(!file.exists(), "a plot without counts was written");
}
