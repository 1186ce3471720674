//! Tests of the screen without a terminal: the effect of keys on the state, and the drawing of the state.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;
use squall::browse::protocol::{DecisionView, Detail, ObjectView};

use super::args::Key;
use super::command::detail_lines;
use super::draw::draw;
use super::print::cells;
use super::state::{Action, Press, Prompt, State};
use super::watch::{Look, Row, object};

fn row(object: ObjectView) -> Row {
    Row { object, misses_per_s: None, calls_per_s: None }
}

fn adaptive(id: &str, bytes: usize, contended: f64) -> ObjectView {
    let mut object = object(id, bytes, 7);
    object.interface = "Counter".into();
    object.class = "Shared<u64>".into();
    object.state = "live".into();
    (object.family, object.form) = (Some("counter".into()), Some("shared".into()));
    object.forms = vec!["shared".into(), "distributed".into()];
    object.contended_per_s = Some(contended);
    (object.name, object.stays) = (Some("GET /login".into()), Some("it is frozen".into()));
    object
}

fn look(objects: Vec<ObjectView>) -> Look {
    let rows: Vec<Row> = objects.into_iter().map(row).collect();
    Look { total: rows.len(), rows, all_frozen: false }
}

#[test]
fn the_links_and_the_mediator_of_an_object_are_shown() {
    let (mut detail, _) = detail("7.1");
    let plain = detail_lines(&detail, &[], false);
    assert!(!plain.iter().any(|line| line.contains("part") || line.contains("mediator")), "{plain:?}");
    let related = |id: &str, name: &str| {
        let related =
            serde_json::json!({ "id": id, "name": name, "interface": "Map", "class": "Single<u64>" });
        serde_json::from_value(related).expect("an object")
    };
    detail.whole = Some(related("3.1", "login service"));
    detail.parts = vec![related("9.4", "a\u{1b}[2Jb")];
    detail.parts_count = 300;
    let mediator = serde_json::json!({ "phase": "block", "target": "Shared", "replacement": "Distributed", "method": null });
    detail.row.mediator = Some(serde_json::from_value(mediator).expect("a mediator"));
    let lines = detail_lines(&detail, &[], false);
    for expected in [
        "mediator in phase block before Shared, to be replaced by Distributed",
        "part of Map#3.1 \"login service\" (Single<u64>)",
        "parts: 300",
        "  Map#9.4 \"a\\u{1b}[2Jb\" (Single<u64>)",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} is not in {lines:?}");
    }
}

#[test]
fn the_callers_and_the_server_of_an_object_are_shown() {
    let (mut detail, _) = detail("7.1");
    let plain = detail_lines(&detail, &[], false);
    assert!(!plain.iter().any(|line| line.contains("exported") || line.contains("imported")), "{plain:?}");
    let export = serde_json::json!({ "name": "a\u{1b}[2Jb", "denied": ["clear"], "callers_count": 3, "callers": [
        { "number": 3, "pid": 4711, "uid": 1000, "calls": 12, "denied": ["clear"] },
        { "number": 4, "pid": null, "uid": 0, "calls": 0, "denied": ["clear", "add"] },
        { "number": 5, "pid": null, "uid": null, "calls": 1, "denied": [] } ] });
    detail.exports = vec![serde_json::from_value(export).expect("an export")];
    let import =
        serde_json::json!({ "name": "counts", "pid": 7, "uid": 1000, "is_connected": false, "calls": 5 });
    detail.import = Some(serde_json::from_value(import).expect("an import"));
    let lines = detail_lines(&detail, &[], false);
    for expected in [
        "exported as \"a\\u{1b}[2Jb\"; callers: 3; denied: clear",
        "  caller 3: process 4711, user 1000; 12 calls",
        "  caller 4: a process of another namespace, user 0; 0 calls; denied: add",
        "  caller 5: the other end of a socket pair; 1 calls",
        "imported as \"counts\" from process 7, user 1000; 5 calls; it is gone, import the object again",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} is not in {lines:?}");
    }
    let mut object = ObjectView::default();
    object.state = "live".into();
    object.exported_as = vec!["counts".into()];
    assert_eq!(cells(&row(object))[3], "live, exported");
}

fn detail(id: &str) -> (Detail, Vec<DecisionView>) {
    let mut text = serde_json::to_value(adaptive(id, 96, 0.0)).expect("a row");
    let more = serde_json::json!({
        "class_path": "squall_objects::counter::Shared<u64>",
        "kind": "shared",
        "interface_source": "src/lib.rs:10",
        "made_at": "src/main.rs:20:5",
        "home": 0,
        "translations": "0-1",
        "value_bytes": 8,
        "rep_list": [],
        "attributes": [
            { "name": "freeze", "kind": "bool", "value": "false", "unit": "", "default": "false",
              "range": "true or false", "about": "leaves it as it is", "from": "default" },
            { "name": "cooldown", "kind": "duration", "value": "100", "unit": "ms", "default": "100",
              "range": "1 to 10000", "about": "between swaps", "from": "class" }
        ],
        "implementations": ["shared", "distributed"],
        "last": null
    });
    text.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    let decision = serde_json::json!({
        "at_ms": 0, "id": id, "family": "counter", "from": "shared", "to": "distributed", "verdict": "swapped",
        "why": "2 VPs call it", "took_us": 7, "swap": null
    });
    let decision = serde_json::from_value(decision).expect("a decision");
    (serde_json::from_value(text).expect("a detail"), vec![decision])
}

/// Makes a state with three objects. The most contended object is selected.
fn state() -> State {
    let mut state = State::new("line_server (4711)".into(), Key::Contention, false);
    state.see(look(vec![adaptive("1.0", 96, 5.0), adaptive("2.0", 4096, 900.0), object("3.0", 200, 3)]));
    state
}

fn with_detail() -> State {
    let mut state = state();
    state.detail = Some(detail("2.0"));
    state
}

fn ids(state: &State) -> Vec<&str> {
    state.rows.iter().map(|row| row.object.id.as_str()).collect()
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn rows_are_sorted_by_the_key_that_was_pressed() {
    let mut state = state();
    assert_eq!(
        ids(&state),
        ["2.0", "1.0", "3.0"],
        "sorted by contention; rows without a measurement come last"
    );
    assert_eq!(state.press(Press::Letter('d')), Action::Look);
    assert_eq!(ids(&state), ["1.0", "2.0", "3.0"]);
    assert_eq!(state.press(Press::Letter('m')), Action::Look);
    assert_eq!(ids(&state), ["2.0", "3.0", "1.0"]);
    state.press(Press::Letter('c'));
    assert!(state.counting, "sorting by calls must start to count them");
    state.press(Press::Letter('n'));
    assert!(!state.counting);
}

#[test]
fn the_selection_follows_its_object_and_moves_on_when_it_is_gone() {
    let mut state = state();
    assert_eq!(state.selected.as_deref(), Some("2.0"));
    state.press(Press::Letter('d'));
    assert_eq!((state.selected.as_deref(), state.place()), (Some("2.0"), Some(1)));
    assert_eq!(state.press(Press::Down), Action::Detail("3.0".into()));
    assert_eq!(state.press(Press::Down), Action::Detail("3.0".into()), "the selection stays at the last row");
    assert_eq!(state.press(Press::PageUp), Action::Detail("1.0".into()));
    state.press(Press::End);
    state.see(look(vec![adaptive("1.0", 96, 5.0), adaptive("2.0", 4096, 900.0)]));
    assert_eq!(state.selected.as_deref(), Some("2.0"));
    state.see(look(Vec::new()));
    assert_eq!(state.selected, None);
    for letter in ['f', 'a', 's'] {
        assert_eq!(state.press(Press::Letter(letter)), Action::None);
        assert_eq!(state.message.as_deref(), Some("No object is selected."));
    }
    assert_eq!(state.press(Press::Down), Action::None);
}

#[test]
fn the_freeze_keys_toggle() {
    let mut state = state();
    assert_eq!(state.press(Press::Letter('f')), Action::Freeze { id: "2.0".into(), frozen: true });
    state.rows[0].object.frozen = true;
    assert_eq!(state.press(Press::Letter('f')), Action::Freeze { id: "2.0".into(), frozen: false });
    assert_eq!(state.press(Press::Letter('F')), Action::FreezeAll(true));
    state.all_frozen = true;
    assert_eq!(state.press(Press::Letter('F')), Action::FreezeAll(false));
}

#[test]
fn an_attribute_is_picked_edited_and_set() {
    let mut state = with_detail();
    state.press(Press::Letter('a'));
    state.press(Press::Down);
    state.press(Press::Down);
    state.press(Press::Enter);
    let Prompt::Value { name, value, .. } = &state.prompt else { panic!("{:?}", state.prompt) };
    assert_eq!((name.as_str(), value.as_str()), ("cooldown", "100"));
    state.press(Press::Backspace);
    // Letters now edit the value; `q` does not quit.
    state.press(Press::Letter('q'));
    state.press(Press::Backspace);
    state.press(Press::Letter('5'));
    let set = Action::Set { id: "2.0".into(), name: "cooldown".into(), value: "105".into() };
    assert_eq!(state.press(Press::Enter), set);
    assert_eq!(state.prompt, Prompt::None);
}

#[test]
fn an_implementation_is_picked_and_swapped_to() {
    let mut state = with_detail();
    state.press(Press::Letter('s'));
    state.press(Press::Letter('j'));
    let swap = Action::Swap { id: "2.0".into(), implementation: "distributed".into() };
    assert_eq!(state.press(Press::Enter), swap);
    state.press(Press::Letter('s'));
    assert_eq!(state.press(Press::Escape), Action::None);
    assert_eq!(state.prompt, Prompt::None);
    // The offered implementations belong to another object, so no prompt opens.
    state.press(Press::Letter('s'));
    state.see(look(vec![adaptive("1.0", 96, 5.0)]));
    assert_eq!(state.press(Press::Enter), Action::None);
}

#[test]
fn a_missing_attribute_or_implementation_is_reported() {
    let mut state = state();
    state.press(Press::Letter('a'));
    assert_eq!((&state.prompt, state.message.as_deref()), (&Prompt::None, Some("2.0 has no attributes.")));
    state.press(Press::Letter('s'));
    assert!(state.message.as_deref().is_some_and(|message| message.contains("registered no implementation")));
}

#[test]
fn quitting_works_from_everywhere() {
    assert_eq!(state().press(Press::Letter('q')), Action::Quit);
    let mut state = with_detail();
    state.press(Press::Letter('s'));
    assert_eq!(state.press(Press::Interrupt), Action::Quit);
}

#[test]
fn the_table_shows_the_rows_and_marks_the_selection() {
    let state = with_detail();
    let lines = screen(&state, 130, 30);
    assert!(lines[0].starts_with("line_server (4711)  3 objects, by contention"), "{lines:#?}");
    for column in ["name", "id", "class", "bytes", "contended/s", "frozen"] {
        assert!(lines[1].contains(column), "{lines:#?}");
    }
    for part in ["GET /login", "2.0", "counter (shared)", "4096", "900", "no"] {
        assert!(lines[2].contains(part), "{part}: {lines:#?}");
    }
    assert!(lines[4].split_whitespace().nth(1) == Some("3.0"), "{lines:#?}");
    assert!(
        lines.last().is_some_and(|line| line.contains("q quits") || line.contains("q quit")),
        "{lines:#?}"
    );
    let all = lines.join("\n");
    for part in [
        "object 2.0 \"GET /login\"",
        "stays shared: it is frozen",
        "src/main.rs:20:5",
        "cooldown = 100 ms",
        "shared to distributed: swapped; 2 VPs call it",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let mut terminal = Terminal::new(TestBackend::new(130, 30)).expect("a screen");
    terminal.draw(|frame| draw(frame, &state)).expect("drawn");
    let marked = |y| terminal.backend().buffer()[(0, y)].modifier.contains(Modifier::REVERSED);
    assert!(marked(2) && !marked(3));
}

#[test]
fn readings_of_decisions_are_shown_on_request() {
    let mut state = with_detail();
    if let Some((_, history)) = &mut state.detail {
        history[0].readings = "local 900, foreign 3100".into();
    }
    let shown = |state: &State| screen(state, 200, 40).join("\n").contains("[local 900, foreign 3100]");
    assert!(!shown(&state));
    assert_eq!(state.press(Press::Letter('v')), Action::None);
    assert!(shown(&state));
    state.press(Press::Letter('v'));
    assert!(!shown(&state));
}

#[test]
fn prompts_and_help_lie_over_the_table() {
    let mut state = with_detail();
    state.press(Press::Letter('?'));
    let help = screen(&state, 100, 30).join("\n");
    assert!(help.contains("sort by calls, contention, memory"), "{help}");
    assert_eq!(
        state.press(Press::Letter('q')),
        Action::None,
        "any key leaves the help and has no other effect"
    );
    assert_eq!(state.press(Press::Letter('g')), Action::Nodes);
    state.prompt = Prompt::Nodes(vec!["node 1 host/a: member".to_owned()]);
    assert!(screen(&state, 100, 30).join("\n").contains("node 1 host/a: member"));
    assert_eq!(state.press(Press::Letter('q')), Action::None, "any key leaves the nodes");
    state.press(Press::Letter('a'));
    assert!(screen(&state, 100, 30).join("\n").contains("set an attribute of 2.0"));
    state.press(Press::Enter);
    let value = screen(&state, 100, 30).join("\n");
    assert!(value.contains("freeze = false_") && value.contains("true or false"), "{value}");
    state.press(Press::Escape);
    state.press(Press::Letter('s'));
    let swap = screen(&state, 100, 30).join("\n");
    assert!(swap.contains("swap 2.0 to") && swap.contains("distributed"), "{swap}");
}

#[test]
fn trouble_is_shown_before_messages() {
    let mut state = state();
    state.message = Some("2.0 is frozen.".into());
    assert!(screen(&state, 80, 24).join("\n").contains("2.0 is frozen."));
    state.trouble = Some("there is no process 4711; q quits".into());
    let lines = screen(&state, 80, 24).join("\n");
    assert!(lines.contains("there is no process 4711") && !lines.contains("2.0 is frozen."), "{lines}");
}

#[test]
fn every_size_of_the_screen_can_be_drawn() {
    let mut state = with_detail();
    let prompts = [Press::Escape, Press::Letter('?'), Press::Letter('a'), Press::Letter('s')];
    for prompt in prompts {
        if prompt != Press::Escape {
            state.prompt = Prompt::None;
            state.press(prompt);
        }
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (500, 100)] {
            assert_eq!(screen(&state, width, height).len(), usize::from(height));
        }
    }
}

#[test]
fn the_selected_row_is_always_visible() {
    let mut state = State::new("many (1)".into(), Key::Id, false);
    state.see(look((0..5000).map(|id| object(&format!("{id}.0"), 96, 0)).collect()));
    for (press, id) in [(Press::End, "4999.0"), (Press::Home, "0.0"), (Press::PageDown, "10.0")] {
        state.press(press);
        let lines = screen(&state, 100, 24);
        assert!(lines.iter().any(|line| line.split_whitespace().nth(1) == Some(id)), "{id}: {lines:#?}");
    }
}

#[test]
fn control_characters_of_the_program_are_not_printed() {
    let mut state = state();
    state.rows[0].object.form = Some("a\u{1b}[2Jb".into());
    state.rows[1].object.name = Some("c\u{1b}[2Jd".into());
    let all = screen(&state, 130, 24).join("\n");
    assert!(all.contains("a [2Jb") && all.contains("c\\u{1b}[2Jd") && !all.contains('\u{1b}'), "{all}");
}
