//! The page in a real browser. Skipped with a message where chromedriver or Chromium is not installed.
//!
//! Screenshots are kept in `target/tmp/squall-web`.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::json;
use squall::adapt::control;
use squall::objects::counter::Counter;
use squall::{Handle, Owned};

use crate::common::{AUTHOR, Folder, Page, Program};
use crate::http::plain;
use crate::scripted::{Reaction, Scripted};

/// Pause between two looks at the page.
const PAUSE: Duration = Duration::from_millis(20);
const OBJECTS: usize = 10_000;

/// A running chromedriver. Its process group, which has the browser too, is killed when the value is dropped.
struct Driver {
    process: Child,
    address: String,
    browser: PathBuf,
    /// Temporary files of the browser, which a killed browser leaves behind.
    _files: Folder,
}

/// Returns the program of the first of these names that is installed.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

impl Driver {
    /// Starts chromedriver at a free port. Says so if it is not installed.
    fn start() -> Option<Driver> {
        let driver = installed(&["chromedriver"]);
        let browser = installed(&["chromium-headless-shell", "chromium", "google-chrome"]);
        let (Some(driver), Some(browser)) = (driver, browser) else {
            eprintln!("skipped: chromedriver or Chromium is not installed");
            return None;
        };
        // It takes a free port of IPv4, and ends if another process has the same one of IPv6.
        let driver = (0..100).find_map(|_| Driver::try_start(&driver, &browser));
        Some(driver.expect("it starts"))
    }

    /// Starts chromedriver, unless it ends before it listens.
    fn try_start(driver: &Path, browser: &Path) -> Option<Driver> {
        let files = Folder::new();
        let mut command = Command::new(driver);
        command.env("TMPDIR", &files.0);
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let process = command.spawn().expect("it is installed");
        let address = String::new();
        let mut started = Driver { process, address, browser: browser.to_owned(), _files: files };
        let lines = BufReader::new(started.process.stdout.take().expect("a pipe")).lines();
        // The last words are `successfully on port 4711.`.
        let line = lines.map_while(Result::ok).find(|line| line.contains("successfully on port"))?;
        let port = line.rsplit(' ').next().expect("a word").trim_end_matches('.');
        started.address = format!("http://127.0.0.1:{port}");
        Some(started)
    }

    async fn connect(&self) -> Client {
        let options = json!({
            "binary": self.browser,
            // The tests may run as root, and then the sandbox does not work.
            "args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,900"],
        });
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        builder.capabilities(serde_json::Map::from_iter([("goog:chromeOptions".to_owned(), options)]));
        builder.connect(&self.address).await.expect("a browser")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.process.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.process.wait();
    }
}

/// Runs a test with a browser, if one is installed.
pub(crate) fn with_browser<F: Future<Output = Result<(), CmdError>>>(test: impl FnOnce(Client) -> F) {
    let Some(driver) = Driver::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let browser = driver.connect().await;
        test(browser.clone()).await.expect("the browser does as told");
        browser.close().await.expect("it ends");
    });
}

/// Returns the text of an element, or an empty text while the page has no such element.
pub(crate) async fn text(browser: &Client, css: &str) -> Result<String, CmdError> {
    match browser.find(Locator::Css(css)).await {
        // The page may replace the element at any time.
        Ok(element) => Ok(element.text().await.unwrap_or_default()),
        Err(error) if error.is_no_such_element() => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Waits until an element has a text that satisfies the condition.
pub(crate) async fn wait_for(
    browser: &Client,
    css: &str,
    is_there: impl Fn(&str) -> bool,
) -> Result<String, CmdError> {
    loop {
        let found = text(browser, css).await?;
        if is_there(&found) {
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Clicks an element, which the page may replace at any time.
pub(crate) async fn click(browser: &Client, css: &str) -> Result<(), CmdError> {
    loop {
        match browser.wait().for_element(Locator::Css(css)).await?.click().await {
            Err(error) if error.is_stale_element_reference() => {}
            other => return other,
        }
    }
}

pub(crate) async fn keep_screenshot(browser: &Client, name: &str) -> Result<(), CmdError> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("squall-web");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{name}.png")), browser.screenshot().await?).expect("room");
    Ok(())
}

#[test]
fn the_hot_object_among_ten_thousand_is_found_frozen_and_swapped() {
    let objects: Vec<Owned<_>> =
        (0..OBJECTS).map(|number| plain().0.named(format!("object {number}"))).collect();
    let hot = squall::objects::counter::adaptive().named("GET /login requests <b>");
    let id = Handle::id(hot.handle()).to_string();
    hot.handle().add(7);
    let form = control::status(Handle::id(hot.handle())).expect("it is adaptive").forms[1];
    let program = Program::new(false);
    let address = program.page.address.clone();
    with_browser(async |browser: Client| {
        browser.goto(&address).await?;
        let number = |text: &str| text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        wait_for(&browser, "#total", |text| number(text) > objects.len()).await?;
        let drawn = browser.find_all(Locator::Css("#rows .row")).await?.len();
        assert!((10..100).contains(&drawn), "{drawn} rows are elements");
        keep_screenshot(&browser, "list").await?;
        browser.find(Locator::Id("search")).await?.send_keys("login").await?;
        wait_for(&browser, "#total", |text| text.starts_with("1 of ")).await?;
        let row = wait_for(&browser, &format!("[data-id='{id}']"), |text| !text.is_empty()).await?;
        assert!(row.starts_with("GET /login requests <b>"), "{row}");
        click(&browser, &format!("[data-id='{id}']")).await?;
        wait_for(&browser, "h1", |text| text.contains(&id)).await?;
        keep_screenshot(&browser, "object").await?;

        // A refused confirmation changes no object.
        click(&browser, "#freeze").await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert!(question.starts_with("Freeze Counter#") && question.contains("login"), "{question}");
        keep_screenshot(&browser, "confirmation").await?;
        click(&browser, "#no").await?;
        assert!(!control::status(Handle::id(hot.handle())).expect("it lives").frozen);
        click(&browser, "#freeze").await?;
        click(&browser, "#yes").await?;
        wait_for(&browser, "#freeze", |text| text == "Thaw").await?;
        assert!(control::status(Handle::id(hot.handle())).expect("it lives").frozen);

        click(&browser, &format!("#implementation option[value='{form}']")).await?;
        click(&browser, "#swap").await?;
        click(&browser, "#yes").await?;
        wait_for(&browser, "#message", |text| {
            text.starts_with("Swap Counter#") && text.ends_with(": swapped")
        })
        .await?;
        let reason = format!("requested by {}", *AUTHOR);
        wait_for(&browser, "#object", |text| text.contains("swapped by hand") && text.contains(&reason))
            .await?;
        let page = wait_for(&browser, "#object", |text| text.contains(&format!("swap to {form}"))).await?;
        assert!(page.contains(&**AUTHOR), "{page}");
        keep_screenshot(&browser, "swapped").await?;
        assert_eq!(control::status(Handle::id(hot.handle())).expect("it lives").form, form);
        assert_eq!(hot.handle().total(), 7);
        browser.back().await?;
        let is_changed = |text: &str| text.contains(form) && text.contains("frozen");
        wait_for(&browser, &format!("[data-id='{id}']"), is_changed).await?;
        keep_screenshot(&browser, "changed").await
    });
}

#[test]
fn an_update_takes_away_no_click_no_entry_and_no_focus() {
    let object = squall::objects::counter::adaptive().named("unsteady");
    let id = Handle::id(object.handle());
    let margin = || {
        let attributes = control::attributes(id).expect("it is adaptive");
        attributes.into_iter().find(|attribute| attribute.name == "margin").expect("an attribute").value
    };
    let before = margin();
    let program = Program::new(false);
    let address = program.page.address.clone();
    with_browser(async |browser: Client| {
        browser.goto(&address).await?;
        browser.find(Locator::Id("search")).await?.send_keys(&id.to_string()).await?;
        let row = format!("[data-id='{id}']");
        wait_for(&browser, &row, |text| !text.is_empty()).await?;
        let element = browser.find(Locator::Css(&row)).await?;
        let mouse = || MouseActions::new("mouse".to_owned());
        let over = PointerAction::MoveToElement { element, duration: None, x: 0.0, y: 0.0 };
        let press = mouse().then(over).then(PointerAction::Down { button: MOUSE_BUTTON_LEFT });
        browser.perform_actions(press).await?;
        control::freeze(id, true).expect("it is adaptive");
        wait_for(&browser, &row, |text| text.contains("frozen")).await?;
        browser.perform_actions(mouse().then(PointerAction::Up { button: MOUSE_BUTTON_LEFT })).await?;
        wait_for(&browser, "h1", |text| text.contains("unsteady")).await?;

        let field = browser.wait().for_element(Locator::Css("input[name='margin']")).await?;
        field.clear().await?;
        field.send_keys("2.5").await?;
        field.send_keys(&char::from(Key::Tab).to_string()).await?;
        control::freeze(id, false).expect("it is adaptive");
        wait_for(&browser, "#freeze", |text| text == "Freeze").await?;
        let enter = char::from(Key::Enter).to_string();
        let focused = browser.active_element().await?;
        assert_eq!(focused.text().await?, "Set");
        focused.send_keys(&enter).await?;
        let question = wait_for(&browser, "#question", |text| !text.is_empty()).await?;
        assert!(question.ends_with(&format!("from {before} to 2.5?")), "{question}");
        // A key that is held down does not confirm.
        let cancel = browser.active_element().await?;
        assert_eq!(cancel.text().await?, "Cancel");
        cancel.send_keys(&enter).await?;
        wait_for(&browser, "#question", str::is_empty).await?;
        assert_eq!(margin(), before);
        browser.active_element().await?.send_keys(&enter).await?;
        click(&browser, "#yes").await?;
        wait_for(&browser, "#message", |text| text.contains("unsteady") && text.ends_with(": done")).await?;
        assert_eq!(margin(), "2.5");
        wait_for(&browser, "#object", |text| text.contains("set margin = 2.5")).await?;
        Ok(())
    });
}

#[test]
fn the_links_of_an_object_lead_to_its_parts_and_back() {
    let (service, service_id) = plain();
    let service = service.named("login service");
    let (cache, cache_id) = plain();
    let cache = cache.named("cache <i>").part_of(service.handle());
    let _arbiter = squall::swap::arbitrate_method(cache.handle(), "hit", |_| {}).expect("it lives");
    let program = Program::new(true);
    let address = program.page.address.clone();
    with_browser(async |browser: Client| {
        browser.goto(&format!("{address}#{service_id}")).await?;
        let part = format!("part: Hits#{cache_id} \"cache <i>\" (Always)");
        wait_for(&browser, "#relations", |text| text == part).await?;
        click(&browser, "#relations a").await?;
        wait_for(&browser, "h1", |text| text.contains(&cache_id)).await?;
        let page = wait_for(&browser, "#object", |text| text.contains("in front of")).await?;
        assert!(page.contains("in front of Always, phase arbitrate; for calls of hit"), "{page}");
        let whole = format!("part of Hits#{service_id} \"login service\" (Always)");
        wait_for(&browser, "#relations", |text| text == whole).await?;
        keep_screenshot(&browser, "links").await?;
        click(&browser, "#relations a").await?;
        wait_for(&browser, "h1", |text| text.contains(&service_id)).await.map(drop)
    });
}

#[test]
fn a_read_only_page_has_nothing_to_change_and_says_what_is_missing() {
    let object = squall::objects::counter::adaptive();
    let id = Handle::id(object.handle());
    let program = Program::new(true);
    let address = program.page.address.clone();
    with_browser(async |browser: Client| {
        browser.goto(&address).await?;
        wait_for(&browser, "#status", |text| text.contains("read-only")).await?;
        wait_for(&browser, "#no-count", |text| text.contains("calls/s are missing")).await?;
        assert!(!browser.find(Locator::Id("counting")).await?.is_displayed().await?);
        assert!(!browser.find(Locator::Id("freeze-all")).await?.is_displayed().await?);
        browser.goto(&format!("{address}#{id}")).await?;
        wait_for(&browser, "h1", |text| text.contains(&id.to_string())).await?;
        assert!(browser.find_all(Locator::Css("#object .act")).await?.is_empty());
        Ok(())
    });
}

#[test]
fn a_page_says_that_the_program_is_lost_and_found() {
    let program = Scripted::new();
    let page = Page::new(program.target(), false, None);
    let address = page.address.clone();
    with_browser(async |browser: Client| {
        browser.goto(&address).await?;
        wait_for(&browser, "#status", |text| text.starts_with("live")).await?;
        program.react(Reaction::Closes);
        wait_for(&browser, "#status", |text| text.starts_with("not up to date: ")).await?;
        program.react(Reaction::IsFull);
        wait_for(&browser, "#status", |text| text.contains("8 clients are connected")).await?;
        program.react(Reaction::Answers);
        wait_for(&browser, "#status", |text| text.starts_with("live")).await?;
        wait_for(&browser, "#message", |text| text == "connected to the program again").await?;
        Ok(())
    });
}

#[test]
fn ten_pages_of_one_browser_follow_the_program() {
    let (_object, id) = plain();
    let program = Program::new(false);
    let address = program.page.address.clone();
    with_browser(async |browser: Client| {
        for _ in 0..10 {
            let window = browser.new_window(false).await?;
            browser.switch_to_window(window.handle).await?;
            browser.goto(&address).await?;
            wait_for(&browser, "#status", |text| text.starts_with("live")).await?;
            browser.find(Locator::Id("search")).await?.send_keys(&id).await?;
            wait_for(&browser, &format!("[data-id='{id}']"), |text| !text.is_empty()).await?;
        }
        Ok(())
    });
}

#[test]
fn a_browser_without_the_token_is_refused_and_one_with_it_sees_the_end() {
    let program = Program::new(true);
    let (address, port) = (program.page.address.clone(), program.page.port);
    with_browser(async |browser: Client| {
        browser.goto(&format!("http://127.0.0.1:{port}/")).await?;
        wait_for(&browser, "body", |text| text.contains("lacks its token")).await?;
        browser.goto(&address).await?;
        wait_for(&browser, "#status", |text| text.starts_with("live") && text.contains("read-only")).await?;
        let page = program.end();
        let why = wait_for(&browser, "#ended", |text| !text.is_empty()).await?;
        assert!(why.contains("has ended"), "{why}");
        page.join().expect("the server ends too");
        keep_screenshot(&browser, "ended").await
    });
}
