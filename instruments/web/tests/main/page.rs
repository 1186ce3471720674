//! Behaviour of the page in a browser, with a program that answers as the test tells it.

use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use squall::Handle;
use squall::adapt::control;
use squall::browse::protocol::ObjectView;

use crate::browser::{click, keep_screenshot, text, wait_for, with_browser};
use crate::common::{AUTHOR, Page, Program};
use crate::scripted::Scripted;

/// Returns the row of a plain object.
fn plain(id: &str) -> Value {
    let mut object = ObjectView::default();
    (object.id, object.interface, object.class) = (id.to_owned(), "Session".to_owned(), "Plain".to_owned());
    object.state = "live".to_owned();
    json!(object)
}

/// Returns the row of an adaptive object.
fn adaptive(id: &str, name: &str) -> Value {
    let mut row = plain(id);
    row["name"] = json!(name);
    row["family"] = json!("counter");
    row["form"] = json!("shared");
    row["forms"] = json!(["shared", "distributed"]);
    row["contended_per_s"] = json!(0.0);
    row
}

/// Returns the details of an object with this row.
fn detail(row: &Value) -> Value {
    let mut detail = row.clone();
    let more = json!({
        "class_path": "it::Plain", "kind": "clustered", "interface_source": "it.rs:1", "made_at": "it.rs:2", "home": 0,
        "translations": "0-1", "value_bytes": 8, "rep_list": [{ "cluster": 1, "vp": 1, "holds": 2 }],
        "attributes": [attribute("freeze", "false", "default"), attribute("margin", "1.5", "instance")],
        "implementations": ["distributed"], "last": null,
    });
    for (name, value) in more.as_object().expect("an object") {
        detail[name] = value.clone();
    }
    detail
}

fn attribute(name: &str, value: &str, from: &str) -> Value {
    json!({ "name": name, "kind": "number", "value": value, "unit": "", "default": "1.0", "range": "any", "about": "it",
        "from": from })
}

fn machine() -> Value {
    json!({ "is_virtual": true, "online": [0, 1], "levels": [
        { "name": "core", "clusters": [[0], [1]] }, { "name": "machine", "clusters": [[0, 1]] },
    ] })
}

fn decision(id: &str) -> Value {
    json!({ "at_ms": 1, "id": id, "name": "hot", "family": "counter", "from": "shared", "to": "distributed", "place": null,
        "verdict": "swapped", "why": "many calls came from other processors", "readings": "", "took_us": 1, "swap": null })
}

/// Returns a program with the objects 10.1, which is adaptive and has details, and 2.1.
fn program() -> Scripted {
    let program = Scripted::new();
    let mut state = program.state();
    let row = adaptive("10.1", "hot");
    state.answers.insert("object", detail(&row));
    state.answers.insert("history", json!([]));
    state.answers.insert("swaps", json!([]));
    state.answers.insert("actions", json!([]));
    state.answers.insert("machine", machine());
    state.objects = vec![plain("2.1"), row];
    drop(state);
    program
}

/// Freezes the object 10.1.
fn freeze(program: &Scripted) {
    let mut state = program.state();
    state.objects[1]["frozen"] = json!(true);
    let details = state.answers.get_mut("object").expect("details");
    details["frozen"] = json!(true);
    details["attributes"][0] = attribute("freeze", "true", "instance");
}

/// Opens the page, and waits until it is live.
async fn open(browser: &Client, page: &Page, rest: &str) -> Result<(), CmdError> {
    browser.goto(&format!("{}{rest}", page.address)).await?;
    wait_for(browser, "#status", |text| text.starts_with("live")).await.map(drop)
}

async fn run(browser: &Client, script: &str) -> Result<Value, CmdError> {
    browser.execute(script, Vec::new()).await
}

/// Waits until a script returns this value.
async fn wait_until(browser: &Client, script: &str, wanted: Value) -> Result<(), CmdError> {
    while run(browser, script).await? != wanted {}
    Ok(())
}

/// Returns the ids of the drawn rows, in their order on the screen.
const IDS: &str = "return [...document.querySelectorAll('#rows .row')].sort((one, other) => \
     parseInt(one.style.top) - parseInt(other.style.top)).map(row => row.dataset.id)";

#[test]
fn a_change_keeps_the_elements_the_focus_and_the_text_that_is_entered() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        wait_for(&browser, "[data-id='2.1']", |text| !text.is_empty()).await?;
        wait_until(&browser, IDS, json!(["10.1", "2.1"])).await?;
        let row = browser.find(Locator::Css("[data-id='2.1']")).await?;
        let link = browser.find(Locator::Css("[data-id='2.1'] a")).await?;
        run(&browser, "document.querySelector(`[data-id='2.1'] a`).focus()").await?;
        // The row changes, and moves to the top.
        program.state().objects[0]["contended_per_s"] = json!(5.0);
        wait_until(&browser, IDS, json!(["2.1", "10.1"])).await?;
        assert!(row.text().await?.contains('5'), "the element is still there");
        assert_eq!(
            run(&browser, "return document.activeElement.closest('.row').dataset.id").await?,
            json!("2.1")
        );
        link.click().await?;
        wait_until(&browser, "return location.hash", json!("#2.1")).await?;
        click(&browser, "nav a").await?;
        wait_for(&browser, "[data-id='10.1']", |text| !text.is_empty()).await?;
        // The link covers all cells.
        run(
            &browser,
            "const place = document.querySelector(`[data-id='10.1'] > .nil`).getBoundingClientRect(); \
             document.elementFromPoint(place.x + place.width / 2, place.y + place.height / 2).click()",
        )
        .await?;
        wait_until(&browser, "return location.hash", json!("#10.1")).await?;

        open(&browser, &page, "#10.1").await?;
        let input = browser.wait().for_element(Locator::Css("input[name=margin]")).await?;
        input.send_keys("7").await?;
        let set = |value: &str| {
            let changed =
                json!([attribute("freeze", "false", "default"), attribute("margin", value, "instance")]);
            program.state().answers.get_mut("object").expect("details")["attributes"] = changed;
        };
        // The value is not in the object's row.
        set("2.5");
        wait_for(&browser, "#object", |text| text.contains("2.5")).await?;
        input.send_keys("8").await?;
        set("2.25");
        wait_for(&browser, "#object", |text| text.contains("2.25")).await?;
        assert_eq!(run(&browser, "return document.activeElement.name").await?, json!("margin"));
        assert_eq!(input.prop("value").await?.as_deref(), Some("1.578"));
        run(&browser, "getSelection().selectAllChildren(document.querySelector('h1').parentElement)").await?;
        program.state().answers.get_mut("object").expect("details")["misses"] = json!(77);
        wait_for(&browser, "dl", |text| text.contains("77")).await?;
        let selected = run(&browser, "return getSelection().toString()").await?;
        assert!(
            selected.as_str().is_some_and(|text| text.contains("hot") && text.contains("77")),
            "{selected}"
        );
        click(&browser, "input[name=margin] + button").await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert_eq!(question, r#"Set margin of Session#10.1 "hot" from 2.25 to 1.578?"#);
        Ok(())
    });
}

#[test]
fn a_reading_has_no_input() {
    let program = program();
    let mut reading = attribute("fills", "12", "instance");
    reading["range"] = json!("read only");
    let attributes = json!([attribute("margin", "2.5", "instance"), reading]);
    program.state().answers.get_mut("object").expect("details")["attributes"] = attributes;
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#10.1").await?;
        wait_for(&browser, "#object", |text| text.contains("fills")).await?;
        let inputs = "return [...document.querySelectorAll('#object input')].map(input => input.name)";
        assert_eq!(run(&browser, inputs).await?, json!(["margin"]));
        Ok(())
    });
}

#[test]
fn a_confirmation_is_refused_unless_the_user_agrees() {
    let program = program();
    program.state().answers.insert("freeze", json!(null));
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#10.1").await?;
        let freeze = browser.wait().for_element(Locator::Id("freeze")).await?;
        let is_open = "return document.getElementById('confirm').open";
        // Enter on the button opens the question. A second Enter must not agree.
        for key in [Key::Enter, Key::Escape] {
            freeze.send_keys(&String::from(char::from(Key::Enter))).await?;
            wait_until(&browser, is_open, json!(true)).await?;
            assert_eq!(
                text(&browser, "#author").await?,
                format!("The program records the author: {}", *AUTHOR)
            );
            assert_eq!(browser.active_element().await?.attr("id").await?.as_deref(), Some("no"));
            browser.active_element().await?.send_keys(&String::from(char::from(key))).await?;
            wait_until(&browser, is_open, json!(false)).await?;
            assert_eq!(text(&browser, "#message").await?, "");
        }
        // The page also closes the question at the end of the program. That is a refusal.
        freeze.click().await?;
        run(&browser, "document.getElementById('confirm').close()").await?;
        assert!(!program.requests().contains(&"freeze".to_owned()));
        freeze.click().await?;
        click(&browser, "#yes").await?;
        wait_for(&browser, "#message", |text| text == r#"Freeze Session#10.1 "hot": done"#).await?;
        assert!(program.requests().contains(&"freeze".to_owned()));
        Ok(())
    });
}

#[test]
fn the_freeze_of_all_objects_is_shown_apart() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        assert_eq!(text(&browser, "#all-frozen").await?, "");
        program.state().all_frozen = true;
        wait_for(&browser, "#all-frozen", |text| text.starts_with("All objects are frozen")).await?;
        assert_eq!(text(&browser, "#freeze-all").await?, "Thaw all");
        let row = text(&browser, "[data-id='10.1']").await?;
        assert!(row.contains("hot") && !row.contains("frozen"), "{row}");
        // The button changes the freeze of the object itself.
        click(&browser, "[data-id='10.1'] a").await?;
        wait_for(&browser, "#freeze", |text| text == "Freeze").await?;
        keep_screenshot(&browser, "all-frozen").await?;
        freeze(&program);
        wait_for(&browser, "#freeze", |text| text == "Thaw").await?;
        click(&browser, "#freeze").await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert!(question.ends_with("All objects stay frozen until all are thawed."), "{question}");
        click(&browser, "#no").await?;
        click(&browser, "nav a").await?;
        wait_for(&browser, "[data-id='10.1']", |text| text.contains("frozen")).await?;
        Ok(())
    });
}

#[test]
fn an_object_is_loaded_by_one_request_at_a_time() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        // Answers about the object come later than some answers with rows.
        run(
            &browser,
            "const send = window.fetch; [window.now, window.most, window.rows, window.objects] = [0, 0, 0, 0]; \
             window.fetch = async (path, options) => { \
                 if (!path.startsWith('object/')) { window.rows += 1; return send(path, options); } \
                 window.now += 1; window.most = Math.max(window.most, window.now); \
                 const goal = window.rows + 5; \
                 while (window.rows < goal) await new Promise(resolve => setTimeout(resolve, 1)); \
                 window.now -= 1; window.objects += 1; return send(path, options); }; \
             location.hash = '#10.1'",
        )
        .await?;
        while run(&browser, "return window.objects").await?.as_u64() < Some(4) {}
        assert_eq!(run(&browser, "return window.most").await?, json!(1));
        Ok(())
    });
}

#[test]
fn a_page_says_that_it_hears_nothing_and_that_another_server_has_its_address() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        // The connection hangs, as after the sleep of a laptop.
        run(&browser, "window.send = window.fetch; window.fetch = () => new Promise(() => {})").await?;
        wait_for(&browser, "#status", |text| text.contains("does not answer")).await?;
        wait_for(&browser, "#silence", |text| text.starts_with("since ")).await?;
        open(&browser, &page, "").await?;
        let refusal =
            "squall browse: the address lacks its token; use the address that squall browse printed";
        let refuse = format!("window.fetch = async () => new Response('{refusal}', {{ status: 403 }})");
        run(&browser, &refuse).await?;
        let why = wait_for(&browser, "#ended", |text| !text.is_empty()).await?;
        assert_eq!(why, refusal);
        assert_eq!(text(&browser, "#status").await?, "ended");
        // The last rows stay readable. All changes are disabled.
        browser.find(Locator::Id("search")).await?.send_keys("hot").await?;
        wait_for(&browser, "#total", |text| text == "1 of 2 objects").await?;
        assert!(browser.find(Locator::Id("freeze-all")).await?.attr("disabled").await?.is_some());
        click(&browser, "[data-id='10.1'] a").await?;
        wait_for(&browser, "h1", |text| text == r#"Session#10.1 "hot""#).await?;
        wait_for(&browser, "#object", |text| text.contains("counter") && text.contains("shared")).await?;
        assert_eq!(text(&browser, "#freeze").await?, "");
        Ok(())
    });
}

#[test]
fn the_page_starts_late_and_at_any_address() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        for name in ["#%", "#constructor"] {
            open(&browser, &page, name).await?;
            wait_for(&browser, "h1", |text| !text.is_empty()).await?;
        }
        // The first request fails, and is sent again.
        run(
            &browser,
            "const [send, path] = [window.fetch, new URL('main.js?late', location.href).href]; window.failed = 0; \
             window.fetch = (path, options) => path !== 'program' || window.failed++ > 0 ? send(path, options) \
             : Promise.reject(new TypeError('Failed to fetch')); \
             document.getElementById('status').textContent = ''; import(path)",
        )
        .await?;
        while run(&browser, "return window.failed").await?.as_u64() < Some(2) {}
        wait_for(&browser, "#status", |text| text.starts_with("live")).await?;
        Ok(())
    });
}

#[test]
fn search_and_order_are_kept_in_the_address() {
    let program = program();
    let mut state = program.state();
    state.objects.push(adaptive("3.1", "cold"));
    state.objects[1]["last_decision"] = json!("shared to distributed: swapped");
    state.objects[2]["dry_run"] = json!(true);
    state.objects[2]["state"] = json!("swapping");
    drop(state);
    let page = Page::new(program.target(), true, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        // By contended calls, then by number, not by text.
        wait_until(&browser, IDS, json!(["3.1", "10.1", "2.1"])).await?;
        let head = |number: usize| format!("#heads > :nth-child({number}) button");
        click(&browser, &head(2)).await?;
        wait_until(&browser, IDS, json!(["2.1", "3.1", "10.1"])).await?;
        let sort = "return [...document.querySelectorAll('[role=columnheader]')].map(head => head.ariaSort).slice(0, 5)";
        assert_eq!(run(&browser, sort).await?, json!(["none", "ascending", "none", "none", "none"]));
        click(&browser, &head(2)).await?;
        wait_until(&browser, IDS, json!(["10.1", "3.1", "2.1"])).await?;
        assert_eq!(run(&browser, sort).await?, json!(["none", "descending", "none", "none", "none"]));
        assert_eq!(
            run(&browser, "return document.activeElement.parentElement.role").await?,
            json!("columnheader")
        );
        let search = browser.find(Locator::Id("search")).await?;
        for (words, found) in [
            ("session (pl", json!(["2.1"])),
            ("swapped", json!(["10.1"])),
            ("dry run", json!(["3.1"])),
            ("swapping", json!(["3.1"])),
            ("counter", json!(["10.1", "3.1"])),
        ] {
            search.clear().await?;
            search.send_keys(words).await?;
            wait_until(&browser, IDS, found).await?;
        }
        browser.refresh().await?;
        wait_until(&browser, IDS, json!(["10.1", "3.1"])).await?;
        click(&browser, "[data-id='3.1'] a").await?;
        wait_for(&browser, "h1", |text| text.contains("10.1") || text.contains("3.1")).await?;
        browser.back().await?;
        wait_until(&browser, IDS, json!(["10.1", "3.1"])).await?;
        wait_for(&browser, "[data-id='3.1']", |text| text.contains("swapping, dry run")).await?;
        let count = "return document.getElementById('scroll').ariaRowCount";
        assert_eq!(run(&browser, count).await?, json!("3"));
        Ok(())
    });
}

#[test]
fn a_screen_reader_gets_each_text_once() {
    let program = program();
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#10.1").await?;
        wait_for(&browser, "#object", |text| text.contains("virtual topology")).await?;
        click(&browser, "summary").await?;
        wait_for(&browser, "details", |text| text.contains("1 1 2")).await?;
        let drawing =
            run(&browser, "return document.querySelector('svg[role=img] > title').textContent").await?;
        assert_eq!(drawing, json!("0 representatives, on VPs 1"));
        run(
            &browser,
            "window.writings = 0; window.asked = 0; const send = window.fetch; \
             window.fetch = (path, options) => { window.asked += 1; return send(path, options); }; \
             const watch = new MutationObserver(all => { window.writings += all.length; }); \
             document.querySelectorAll('[role=status], [role=alert]').forEach(node => \
                 watch.observe(node, { childList: true, characterData: true, subtree: true }))",
        )
        .await?;
        while run(&browser, "return window.asked").await?.as_u64() < Some(20) {}
        assert_eq!(run(&browser, "return window.writings").await?, json!(0));
        // The list of representatives stays open when one of them changes.
        program.state().answers.get_mut("object").expect("details")["rep_list"][0]["holds"] = json!(3);
        wait_for(&browser, "details", |text| text.contains("1 1 3")).await?;
        Ok(())
    });
}

#[test]
fn the_whole_program_has_views_and_a_pause() {
    let program = program();
    let mut state = program.state();
    state.answers.insert("decisions", json!([decision("10.1")]));
    let action =
        json!({ "at_ms": 1, "id": null, "action": "freeze all", "author": "bob", "outcome": "done" });
    state.answers.insert("actions", json!([action]));
    let memory = json!({ "mode": "restartable", "vp_bytes_max": 4096, "nodes": [{ "used_bytes": 8192, "free_bytes": 1 }],
        "vps": [{ "vp": 1, "cached_bytes": 7, "outbox_count": 0, "classes": [{ "block_bytes": 64, "used": 3 }] }] });
    state.answers.insert("memory", memory);
    drop(state);
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#log").await?;
        let log = wait_for(&browser, "#log", |text| text.contains("many calls came")).await?;
        assert!(log.contains("freeze all") && log.contains("all objects") && log.contains("bob"), "{log}");
        keep_screenshot(&browser, "log").await?;
        click(&browser, "#log a").await?;
        wait_for(&browser, "h1", |text| text == r#"Session#10.1 "hot""#).await?;
        program.state().objects[1]["contended_per_s"] = json!(1234.0);
        wait_for(&browser, ".curves", |text| text.contains("contended/s: 1234 now, at most 1234")).await?;
        keep_screenshot(&browser, "curves").await?;
        click(&browser, "nav a:last-child").await?;
        let memory = wait_for(&browser, "#memory", |text| text.contains("restartable")).await?;
        assert!(
            memory.contains("virtual topology") && memory.contains("64 B") && memory.contains("8192 B"),
            "{memory}"
        );

        click(&browser, "#pause").await?;
        wait_for(&browser, "#status", |text| text == "paused").await?;
        run(
            &browser,
            "[window.rows, window.logs] = [0, 0]; const send = window.fetch; window.fetch = (path, options) => { \
                 if (path.startsWith('rows/')) window.rows += 1; if (path === 'log') window.logs += 1; \
                 return send(path, options); }",
        )
        .await?;
        // A paused page sends requests only if the user opens a view.
        click(&browser, "nav a:nth-child(2)").await?;
        wait_until(&browser, "return window.logs", json!(1)).await?;
        wait_for(&browser, "#log", |text| text.contains("many calls came")).await?;
        assert_eq!(run(&browser, "return window.rows").await?, json!(0));
        assert_eq!(text(&browser, "#status").await?, "paused");
        click(&browser, "#pause").await?;
        wait_for(&browser, "#status", |text| text.starts_with("live")).await?;
        Ok(())
    });
}

#[test]
fn a_value_of_the_object_itself_is_unset() {
    let object = squall::objects::counter::adaptive().named("the one to set");
    let id = Handle::id(object.handle());
    let program = Program::new(false);
    let margin = || {
        let attributes = control::attributes(id).expect("it is adaptive");
        attributes.into_iter().find(|attribute| attribute.name == "margin").expect("an attribute").value
    };
    let before = margin();
    with_browser(async |browser: Client| {
        open(&browser, &program.page, &format!("#{id}")).await?;
        wait_for(&browser, "#object", |text| text.contains("margin")).await?;
        let chosen = "return document.getElementById('implementation').value";
        assert_eq!(run(&browser, chosen).await?, json!("distributed"), "the object is shared now");
        let unset = "return [...document.querySelectorAll('.unset')].filter(button => !button.hidden).length";
        assert_eq!(run(&browser, unset).await?, json!(0), "it has no value of its own");
        control::set_attribute(id, "margin", "2.75").expect("allowed");
        wait_until(&browser, unset, json!(1)).await?;
        click(&browser, ".unset:not([hidden])").await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert!(question.starts_with("End the own value 2.75 of margin of Counter#"), "{question}");
        click(&browser, "#yes").await?;
        wait_for(&browser, "#message", |text| {
            text.starts_with("Unset margin of") && text.ends_with(": done")
        })
        .await?;
        wait_until(&browser, unset, json!(0)).await?;
        assert_eq!(margin(), before);
        Ok(())
    });
}

#[test]
fn relations_are_links() {
    let program = program();
    let page = Page::new(program.target(), true, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        // Adds the relations to the answers about the object.
        run(
            &browser,
            "const other = id => ({ id, name: '<i>', interface: 'It', class: 'Of' }); \
             const mediator = { phase: 'forward', target: 'A', replacement: 'B', method: null }; \
             const more = { whole: other('2.1'), parts: [other('3.1')], parts_count: 5, mediator }; \
             const send = window.fetch; window.fetch = async (path, options) => { \
                 const answer = await send(path, options); if (!path.startsWith('object/')) return answer; \
                 const data = await answer.json(); Object.assign(data.detail, more); \
                 return new Response(JSON.stringify(data)); }; \
             location.hash = '#10.1'",
        )
        .await?;
        let relations = wait_for(&browser, "#relations", |text| !text.is_empty()).await?;
        assert_eq!(relations, "part of It#2.1 \"<i>\" (Of)\npart: It#3.1 \"<i>\" (Of)\nand 4 more parts");
        let page = text(&browser, "#object").await?;
        assert!(page.contains("in front of A, phase forward; a swap to B"), "{page}");
        click(&browser, "#relations a").await?;
        wait_until(&browser, "return location.hash", json!("#2.1")).await
    });
}

#[test]
fn callers_and_servers_of_other_processes_are_shown() {
    let program = program();
    let page = Page::new(program.target(), true, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "").await?;
        // Adds both ends to the answers about the object.
        run(
            &browser,
            "const callers = [{ number: 3, pid: 4711, uid: 1000, calls: 12, denied: ['clear', 'add'] }]; \
             const exports = [{ name: '<i>', denied: ['clear'], callers, callers_count: 1 }]; \
             const more = { exports, import: { name: 'x', pid: null, uid: 0, calls: 5, is_connected: false } }; \
             const send = window.fetch; window.fetch = async (path, options) => { \
                 const answer = await send(path, options); if (!path.startsWith('object/')) return answer; \
                 const data = await answer.json(); Object.assign(data.detail, more); \
                 return new Response(JSON.stringify(data)); }; \
             location.hash = '#10.1'",
        )
        .await?;
        let exports = wait_for(&browser, "#exports", |text| !text.is_empty()).await?;
        let caller = "caller 3: process 4711, user 1000; calls: 12; denied: add";
        assert_eq!(exports, format!("\"<i>\"; callers: 1; denied: clear\n{caller}"));
        let page = text(&browser, "#object").await?;
        assert!(
            page.contains("\"x\" from a process of another namespace, user 0; calls: 5; it is gone"),
            "{page}"
        );
        Ok(())
    });
}

#[test]
fn an_older_program_gets_no_request_that_it_does_not_know() {
    let program = program();
    let hello = json!({ "protocol": 1, "version": "0.0.9", "pid": 1, "program": "old", "all_frozen": false });
    program.state().answers.insert("hello", hello);
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#10.1").await?;
        wait_for(&browser, "#object", |text| text.contains("margin")).await?;
        assert!(browser.find_all(Locator::Css(".unset")).await?.is_empty());
        click(&browser, "#freeze").await?;
        let author = wait_for(&browser, "#author", |text| !text.is_empty()).await?;
        assert!(author.ends_with("records no authors."), "{author}");
        Ok(())
    });
}

/// The answer of a program with one member of a pool.
fn pool_members(elements: u64) -> Value {
    json!([{ "number": 2, "name": "/<b>", "node": "0a", "location": 5, "state": "serving", "master": true, "members": 3,
        "strategy": "directory", "elements": elements, "open_operations": 1, "untaken": 4, "has_heir": true, "operations": 12, "messages": 30,
        "demanded": 50, "demand_transfers": 2, "background_transfers": 6 }])
}

/// The figures of a node.
fn node_figures(timed_out: u64) -> Value {
    json!({ "state": "member", "leader": "0a", "term": 7, "lease_ms": 640, "joined": 1, "served": 12, "sessions": 3, "shards": 2,
        "imported": 1, "calls": { "done": 41, "timed_out": timed_out },
        "ends": [{ "node": "0d", "endpoint": "host/<i>", "reason": "died", "at_ms": 1 }] })
}

#[test]
fn groups_have_their_view_and_a_member_leaves() {
    let program = program();
    let member = |endpoint: &str, number: Option<u64>, figures: Option<Value>| {
        json!({ "node": endpoint, "endpoint": endpoint, "machine": "00ab", "leader": number.is_some(), "votes": true,
            "number": number, "figures": figures })
    };
    let mut node = node_figures(0);
    (node["number"], node["node"], node["endpoint"]) = (json!(4), json!("0a"), json!("host/a"));
    let group = |members: Value| {
        json!({ "leader": "host/a", "members": members, "reserved": ["/sys"], "names": [
            { "name": "/fleet", "nodes": ["host/a", "host/b"], "shards": 3,
                "owners": [{ "member": "host/a", "shards": 2 }, { "member": "host/b", "shards": 1 }],
                "moves": [{ "shard": 2, "from": "host/b", "to": "host/a" }] },
            { "name": "/echo", "stateless": true, "nodes": ["host/b"] },
            { "name": "/pages", "roster": true, "nodes": ["host/b", "host/a"] },
        ] })
    };
    let with =
        |endpoint, number, timed_out: Option<u64>| member(endpoint, number, timed_out.map(node_figures));
    let members =
        [with("host/a", Some(4), Some(0)), with("host/b", None, Some(5)), with("host/c", None, None)];
    let mut state = program.state();
    state.answers.insert("nodes", json!([node]));
    state.answers.insert("group", group(json!(members)));
    state.answers.insert("leave", json!(false));
    state.answers.insert("pools", pool_members(7));
    drop(state);
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#fleet").await?;
        let fleet = wait_for(&browser, "#fleet", |text| text.contains("/fleet")).await?;
        for part in [
            "Node 4: host/a",
            "member, leader, votes",
            "votes (does not answer)",
            "5 timed out",
            "12, 0 running",
            "host/a: 2, host/b: 1",
            "2 to host/a",
            "/sys/*",
            "host/<i> died host/a, host/b",
            "/pages roster host/b, host/a",
            "/<b> 2 0a serving, master, has an heir 3 directory 7 12 begun, 1 open 4 30 2 with 50 elements 6",
        ] {
            assert!(fleet.contains(part), "{part} in {fleet}");
        }
        keep_screenshot(&browser, "fleet").await?;
        // The button stays when the figures of its member change.
        let button = browser.find(Locator::Css(".leave")).await?;
        run(&browser, "document.querySelector('.leave').focus()").await?;
        let mut changed = members.clone();
        changed[0]["figures"]["served"] = json!(9999);
        program.state().answers.insert("group", group(json!(changed)));
        wait_for(&browser, "#fleet", |text| text.contains("9999, 0 running")).await?;
        assert_eq!(run(&browser, "return document.activeElement.className").await?, json!("act leave"));
        program.requests();
        button.click().await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert!(question.starts_with("Let host/a leave its group?"), "{question}");
        click(&browser, "#yes").await?;
        wait_for(&browser, "#message", |text| text == "Leave host/a: it moves its shards away").await?;
        assert!(program.requests().contains(&"leave".to_owned()));
        program.state().answers.insert("pools", pool_members(8888));
        wait_for(&browser, "#fleet", |text| text.contains("8888 12 begun")).await?;
        program.state().answers.insert("pools", json!([]));
        program.state().answers.insert("nodes", json!([]));
        wait_for(&browser, "#fleet", |text| text == "The program has no nodes of groups.").await?;
        Ok(())
    });
}

#[test]
fn a_read_only_page_lets_no_member_leave() {
    let network = squall::fleet::LocalNetwork::new();
    let builder = squall::fleet::NodeBuilder::new(squall::fleet::GroupKey::random());
    let (node, _root) = builder.found(network.bind("of-the-page").expect("free"), &[]).expect("a node");
    let program = Program::new(true);
    with_browser(async |browser: Client| {
        open(&browser, &program.page, "#fleet").await?;
        wait_for(&browser, "#fleet", |text| text.contains("local/of-the-page")).await?;
        assert!(browser.find_all(Locator::Css(".leave")).await?.is_empty());
        Ok(())
    });
    let fleet = program.page.get("fleet").json();
    let nodes = fleet["nodes"].as_array().expect("nodes");
    let shown = nodes.iter().find(|shown| shown["node"]["endpoint"] == "local/of-the-page").expect("listed");
    let number = &shown["node"]["number"];
    let why = program.page.post(&format!("fleet/{number}/leave"), &json!({})).refused(403);
    assert!(why.contains("--read-only"), "{why}");
    assert!(node.is_member());
}

#[test]
fn the_records_of_a_program_are_shown_while_their_view_is_open() {
    let program = program();
    let sums = |count: u64| {
        json!({ "span_us": 2_000_000, "dropped": 3, "missed": 0, "sums": [
            { "kind": "lock.wait", "object": "0x7f00d0", "name": "<b>", "count": count, "values": [
                { "name": "lock", "code": "biased" }, { "name": "waited_ns", "sum": 5000, "max": 700 }] },
            { "kind": "engine.mode", "object": null, "name": null, "count": 1, "values": [] },
        ] })
    };
    program.state().answers.insert("records", json!({ "begins": true }));
    let page = Page::new(program.target(), false, None);
    with_browser(async |browser: Client| {
        open(&browser, &page, "#records").await?;
        wait_for(&browser, "#records", |text| text.contains("The program begins to record.")).await?;
        program.state().answers.insert("records", sums(10));
        let records = wait_for(&browser, "#records", |text| text.contains("lock.wait")).await?;
        for part in [
            "Records in the last 2.0 s; 3 dropped, 0 missed.",
            "lock.wait lock=biased 0x7f00d0 \"<b>\" 5 waited_ns 500 waited_ns 700",
            "engine.mode - 0.5",
        ] {
            assert!(records.contains(part), "{part} in {records}");
        }
        program.state().answers.insert("records", json!({ "span_us": 1_000_000 }));
        wait_for(&browser, "#records", |text| text.contains("No record in the last 1.0 s")).await?;
        // Another view asks for no records.
        open(&browser, &page, "#memory").await?;
        wait_for(&browser, "#memory", |text| text.contains("Machine")).await?;
        program.requests();
        program.state().answers.insert("memory", json!({ "mode": "restartable", "vps": [], "nodes": [] }));
        wait_for(&browser, "#memory", |text| text.contains("restartable")).await?;
        assert!(!program.requests().contains(&"records".to_owned()));
        Ok(())
    });
}

#[test]
fn a_member_leaves_by_the_page_and_its_author_is_recorded() {
    let network = squall::fleet::LocalNetwork::new();
    let key = squall::fleet::GroupKey::random();
    let transport = |name: &str| network.bind(name).expect("free");
    let (first, _root) = squall::fleet::NodeBuilder::new(key).found(transport("stays"), &[]).expect("a node");
    let other =
        squall::fleet::NodeBuilder::new(key).join(transport("leaves"), &["local/stays"]).expect("a node");
    other.wait_joined(std::time::Duration::from_secs(60)).expect("joined");
    let program = Program::new(false);
    let page = &program.page;
    let fleet = page.get("fleet").json();
    let nodes = fleet["nodes"].as_array().expect("nodes");
    // Both nodes are of one group, which is shown once.
    let shown: Vec<&Value> =
        nodes.iter().filter(|shown| shown["node"]["endpoint"] == "local/stays").collect();
    assert_eq!(shown.len(), 1, "{fleet}");
    assert!(nodes.iter().all(|shown| shown["node"]["endpoint"] != "local/leaves"), "{fleet}");
    let members = shown[0]["group"]["members"].as_array().expect("members");
    let leaver = members.iter().find(|member| member["endpoint"] == "local/leaves").expect("a member");
    let path = format!("fleet/{}/leave", leaver["number"]);
    assert!(page.post(&path, &json!({ "now": true })).refused(400).contains("`now`"));
    while page.post(&path, &json!({})).json()["outcome"] != "it has left" {}
    assert!(!other.is_member() && first.is_member());
    let log = page.get("log").json();
    let action = format!("let node {} leave", leaver["number"]);
    let actions = log["actions"].as_array().expect("changes");
    let recorded = actions.iter().find(|recorded| recorded["action"] == action.as_str()).expect("recorded");
    assert_eq!(recorded["author"], AUTHOR.as_str());
    assert!(page.post("fleet/4000000/leave", &json!({})).refused(409).contains("no node 4000000"));
}
