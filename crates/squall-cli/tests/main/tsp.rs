//! `squall demo tsp` proves optima, and names what is wrong with a file. `squall bench tsp` counts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{run, squall, stderr, stdout};

const FORMS: [&str; 10] =
    ["central", "naive", "unbalanced", "ring", "tree", "star", "all", "relaxed", "object", "adaptive"];
/// A processor for each searcher of KTK's table 3.
const TOPOLOGY: (&str, &str) = ("SQUALL_TOPOLOGY", "cores:16");

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tsp-{}-{name}", std::process::id()))
}

/// A file that is deleted on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = file(name);
        fs::write(&path, text).expect("a file");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const TEXT: &str = "NAME : four\nTYPE : TSP\nCOMMENT : optimum 40\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\n\
                    NODE_COORD_SECTION\n1 0 0\n2 10 10\n3 10 0\n4 0 10\nEOF\n";

#[test]
fn an_optimum_is_proven_drawn_and_compared_in_each_form() {
    let drawing = File::new("drawing.svg", "");
    let args = ["demo", "tsp", "wind12", "--threads", "3", "--svg"];
    let output = run(squall().args(args).arg(&drawing.0).envs([TOPOLOGY]));
    let (said, complaint) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && !complaint.contains("panicked"), "{said}\n{complaint}");
    assert!(said.contains("12 cities, asymmetric. 3 threads search"), "{said}");
    assert!(said.contains(", proven in ") && said.contains("The file states this optimum, too."), "{said}");
    assert!(said.contains("  a tour of length ") && !said.contains('\u{1b}'), "{said}");
    for form in FORMS.into_iter().filter(|form| *form != "adaptive") {
        let row = said.lines().find(|line| line.trim_start().starts_with(&format!("{form} ")));
        assert!(row.is_some(), "no row of {form} in {said}");
    }
    let drawn = fs::read_to_string(&drawing.0).expect("the drawing is there");
    assert!(drawn.starts_with("<svg ") && drawn.matches("<circle ").count() == 12, "{drawn}");
}

#[test]
fn a_file_is_solved_in_each_form() {
    let input = File::new("four.tsp", TEXT);
    for form in FORMS {
        let output = run(squall().args(["demo", "tsp", "--form", form, "--threads", "2"]).arg(&input.0));
        let said = stdout(&output);
        assert!(output.status.success(), "{form}: {said}\n{}", stderr(&output));
        assert!(said.contains("The optimum is 40, proven"), "{form}: {said}");
    }
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    for (name, text, clue) in [
        ("cut.tsp", &TEXT[..TEXT.len() - 11], ":9: 3 of 4 cities have coordinates"),
        ("more.tsp", &TEXT.replace("EOF", "5 1 1\nEOF"), ":11: there are more than 4 cities"),
        ("large.tsp", &TEXT.replace(" 4\n", " 4000000000\n"), ":4: DIMENSION : 4000000000"),
        ("wrong.tsp", &TEXT.replace("optimum 40", "optimum 39"), "states the optimum 39, and 40 is proven"),
        ("esc.tsp", "\u{1b}[31m : x\n", ":1: the keyword "),
    ] {
        let input = File::new(name, text);
        let output = run(squall().args(["demo", "tsp"]).arg(&input.0));
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {complaint}");
        assert!(complaint.contains(clue) && !complaint.contains('\u{1b}'), "{name}: {complaint}");
        assert!(!complaint.contains("panicked"), "{name}: {complaint}");
    }
    let output = run(squall().args(["demo", "tsp", "no-such-city"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("or one of: plane8, wind8"), "{}", stderr(&output));
    let output = run(squall().args(["demo", "tsp", "--form", "circle"]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_bench_counts_each_form() {
    let args = ["bench", "tsp", "--variant", "stepped", "--quick", "--json", "--threads", "1,15"];
    let output = run(squall().args(args).envs([TOPOLOGY]));
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    for form in FORMS {
        let expanded = |threads: u64| {
            let metric = format!("{form}/expanded");
            let row = rows.iter().find(|row| row["metric"] == metric.as_str() && row["threads"] == threads);
            row.unwrap_or_else(|| panic!("no row {metric}"))["value"].as_f64().expect("a number")
        };
        assert!(expanded(1) > 0.0 && expanded(15) > 0.0, "{form}");
    }
}
