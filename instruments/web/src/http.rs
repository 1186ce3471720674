//! Routes of the page's server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use squall_browse::protocol::{Hello, MachineView, REQUEST_BYTES_MAX, RefusalKind};
use squall_browse::{Client, ClientError};
use tokio::sync::{Notify, oneshot};

use crate::access::{self, Token};
use crate::assets;
use crate::poll::{AskError, Command, News, Poller, or_default};
use crate::rows::Update;

/// Time that a request for rows waits for the program, before the page is told that the program is slow.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time between two requests of a page that looks. Longer than a page's interval and `PATIENCE`.
const LOOKS_EVERY: Duration = Duration::from_secs(10);
/// Longest interval of a page.
const PAGE_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Largest number of objects with calls counted by one request, and the span of each count. All other
/// requests wait for as long.
const COUNTED_MAX: usize = 8;
const COUNT_MS: u64 = 20;

/// Time for which the program records after a request for records, in milliseconds. A page that shows them
/// asks again earlier.
const RECORDS_MS: u64 = 10_000;

/// Largest number of decisions, of swaps and of changes in the view of the whole program.
const LOG_MAX: usize = 200;

/// Policy for the browser: the page uses this server alone.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// State that all requests share.
pub(crate) struct Shared {
    pub(crate) token: Token,
    pub(crate) port: u16,
    pub(crate) read_only: bool,
    pub(crate) author: String,
    pub(crate) hello: Hello,
    pub(crate) machine: MachineView,
    pub(crate) interval: Duration,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) end: Arc<OnceLock<String>>,
    pub(crate) pages: Arc<Pages>,
}

/// Pages that look, and the time of the latest request of each.
#[derive(Default)]
pub(crate) struct Pages {
    seen: Mutex<HashMap<u64, Instant>>,
    /// Notified when a page was told the end.
    told: Notify,
}

impl Pages {
    fn seen(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        // Only a failed allocation panics under this lock, and it leaves the map intact.
        self.seen.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn note(&self, page: u64) {
        let now = Instant::now();
        let mut seen = self.seen();
        seen.retain(|_, at| now.saturating_duration_since(*at) < LOOKS_EVERY);
        seen.insert(page, now);
    }

    fn tell_end(&self, page: u64) {
        self.seen().remove(&page);
        self.told.notify_one();
    }

    /// Waits until all pages that look were told the end.
    pub(crate) async fn all_told(&self) {
        let looks = |at: &Instant| at.elapsed() < LOOKS_EVERY;
        while self.seen().values().any(looks) {
            let _ = tokio::time::timeout(PATIENCE, self.told.notified()).await;
        }
    }
}

impl Shared {
    /// Returns the reason why the poller has ended.
    fn why_ended(&self) -> &str {
        self.end.get().map_or("squall browse has ended", String::as_str)
    }
}

type Site = State<Arc<Shared>>;

/// Returns the routes, behind the access control.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(
            "/{token}",
            get(|Path(token): Path<String>| async move { Redirect::permanent(&format!("/{token}/")) }),
        )
        .route("/{token}/", get(|| asset(Path((String::new(), String::new())))))
        .route("/{token}/{file}", get(asset))
        .route("/{token}/program", get(program))
        .route("/{token}/log", get(log))
        .route("/{token}/memory", get(memory))
        .route("/{token}/records", get(records))
        .route("/{token}/fleet", get(fleet))
        .route("/{token}/fleet/{node}/leave", post(leave))
        .route("/{token}/rows/{page}/{since}", get(rows))
        .route("/{token}/count", post(count))
        .route("/{token}/freeze-all", post(freeze_all))
        .route("/{token}/object/{id}", get(object))
        .route("/{token}/object/{id}/freeze", post(freeze))
        .route("/{token}/object/{id}/swap", post(swap))
        .route("/{token}/object/{id}/set", post(set))
        .route("/{token}/object/{id}/unset", post(unset))
        .fallback(|| async { Failed(StatusCode::NOT_FOUND, "there is no such request".to_owned()) })
        .method_not_allowed_fallback(|| async {
            let why = "reading is GET, and changing is POST".to_owned();
            Failed(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// Refuses requests without access, and adds the headers for the browser to all answers.
async fn guard(State(shared): Site, request: Request, next: Next) -> Response {
    let refusal = access::refusal(
        &shared.token,
        shared.port,
        request.method(),
        request.uri().path(),
        request.headers(),
    );
    let mut response = match refusal {
        Some(why) => (StatusCode::FORBIDDEN, format!("squall browse: {why}\n")).into_response(),
        None => next.run(request).await,
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Reason why a request failed, as the page shows it.
struct Failed(StatusCode, String);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = as_json(&json!({ "error": self.1 }));
        *response.status_mut() = self.0;
        response
    }
}

impl From<AskError> for Failed {
    fn from(error: AskError) -> Failed {
        let status = match &error {
            AskError::Lost(_) => StatusCode::SERVICE_UNAVAILABLE,
            AskError::Failed(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::NoObject => {
                StatusCode::NOT_FOUND
            }
            AskError::Failed(ClientError::Refused(_)) => StatusCode::CONFLICT,
            AskError::Failed(_) => StatusCode::BAD_GATEWAY,
        };
        Failed(status, error.to_string())
    }
}

fn as_json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Runs a command on the poller's thread, unless the sender of the HTTP request is gone by then. Fails if the
/// poller has ended.
async fn command<T: Send + 'static>(
    shared: &Shared,
    run: impl FnOnce(&mut Poller) -> T + Send + 'static,
) -> Result<T, Failed> {
    let (sender, answer) = oneshot::channel();
    let command: Command = Box::new(move |poller| {
        if !sender.is_closed() {
            // The page may be gone by now.
            let _ = sender.send(run(poller));
        }
    });
    // If the poller has ended, the answer's sender is dropped.
    let _ = shared.commands.send(command);
    let ended = || Failed(StatusCode::GONE, shared.why_ended().to_owned());
    answer.await.map_err(|_| ended())
}

/// Sends requests that change nothing.
async fn read(
    shared: &Shared,
    requests: impl Fn(&mut Client) -> Result<Value, ClientError> + Send + 'static,
) -> Result<Response, Failed> {
    let value = command(shared, move |poller| poller.read(requests)).await??;
    Ok(as_json(&value))
}

/// Sends a request that changes the program, unless the server is read-only.
async fn act<T: Send + 'static>(
    shared: &Shared,
    change: impl FnOnce(&mut Poller) -> Result<T, AskError> + Send + 'static,
) -> Result<T, Failed> {
    if shared.read_only {
        let why = "squall browse was started with --read-only, so it changes nothing";
        return Err(Failed(StatusCode::FORBIDDEN, why.to_owned()));
    }
    command(shared, change).await?.map_err(|error| {
        let is_unknown = matches!(&error, AskError::Failed(error) if !error.is_refusal());
        let Failed(status, why) = error.into();
        let warning = "; whether the program made the change is unknown: look at the changes by people";
        Failed(status, if is_unknown { why + warning } else { why })
    })
}

/// Sends one change.
async fn change(
    shared: &Shared,
    change: impl FnOnce(&mut Client) -> Result<Value, ClientError> + Send + 'static,
) -> Result<Response, Failed> {
    let value = act(shared, move |poller| poller.act(change)).await?;
    Ok(as_json(&value))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(body).map_err(|error| {
        Failed(StatusCode::BAD_REQUEST, format!("the body of the request is not as expected: {error}"))
    })
}

async fn asset(Path((_, file)): Path<(String, String)>) -> Response {
    match assets::named(&file) {
        Some(asset) => ([(header::CONTENT_TYPE, asset.media_type)], asset.text).into_response(),
        None => (StatusCode::NOT_FOUND, "squall browse: there is no such file\n").into_response(),
    }
}

/// Returns the program and its topology. Sends the program no request.
async fn program(State(shared): Site) -> Response {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    as_json(&json!({
        "program": shared.hello.program,
        "pid": shared.hello.pid,
        "version": shared.hello.version,
        "read_only": shared.read_only,
        "author": shared.author,
        "records_authors": shared.hello.records_authors,
        "operations": shared.hello.operations,
        "interval_ms": millis(shared.interval.min(PAGE_INTERVAL_MAX)),
        "poll_ms": millis(shared.interval),
        "machine": shared.machine,
    }))
}

/// Returns the rows that changed, and the state of the connection to the program.
async fn rows(
    State(shared): Site,
    Path((_, page, since)): Path<(String, u64, u64)>,
) -> Result<Response, Failed> {
    shared.pages.note(page);
    let news = command(&shared, move |poller| poller.news(since));
    let text = match tokio::time::timeout(PATIENCE, news).await {
        Ok(Ok(news)) => news_json(&news),
        Ok(Err(Failed(_, why))) => {
            shared.pages.tell_end(page);
            json!({ "ended": why }).to_string()
        }
        Err(_) => {
            json!({ "lost": "the program has not answered for 2 s; squall browse waits for it" }).to_string()
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn news_json(news: &News) -> String {
    let Update { number, full, rows, gone, all_frozen } = &news.update;
    let (gone, lost, connections) = (json!(gone), json!(news.lost), news.connections);
    let rows: Vec<&str> = rows.iter().map(|row| row.json.as_str()).collect();
    let rows = rows.join(",");
    format!(
        "{{\"number\":{number},\"full\":{full},\"all_frozen\":{all_frozen},\"lost\":{lost},\"connections\":{connections},\
         \"gone\":{gone},\"rows\":[{rows}]}}"
    )
}

async fn object(State(shared): Site, Path((_, id)): Path<(String, String)>) -> Result<Response, Failed> {
    read(&shared, move |client| {
        Ok(json!({
            "detail": client.object(&id)?,
            "history": client.history(&id)?,
            "swaps": client.swaps_of(&id)?,
            "actions": or_default(client.actions_of(&id))?,
            "now_ms": now_ms(),
        }))
    })
    .await
}

/// Returns the time in milliseconds since 1970. The program runs on the same machine.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the latest entries, as the program gives them: oldest first.
fn latest<T>(mut entries: Vec<T>) -> Vec<T> {
    entries.drain(..entries.len().saturating_sub(LOG_MAX));
    entries
}

/// Returns the latest decisions, swaps and changes by people of all objects.
async fn log(State(shared): Site) -> Result<Response, Failed> {
    read(&shared, |client| {
        Ok(json!({
            "decisions": latest(client.decisions()?),
            "swaps": latest(client.swaps()?),
            "actions": latest(or_default(client.actions())?),
            "now_ms": now_ms(),
        }))
    })
    .await
}

/// Returns the statistics of the locality allocator.
async fn memory(State(shared): Site) -> Result<Response, Failed> {
    read(&shared, |client| Ok(json!({ "memory": or_default(client.memory())?, "now_ms": now_ms() }))).await
}

/// Returns the sums of the program's records since the latest request of any page for them. The first request
/// begins the recording. It ends when no page asks any more.
async fn records(State(shared): Site) -> Result<Response, Failed> {
    read(&shared, |client| {
        let (records, why) = match client.records(RECORDS_MS) {
            Ok(records) => (Some(records), None),
            // The program has no monitor, or an older version of Squall.
            Err(error) if error.is_refusal() => (None, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        Ok(json!({ "records": records, "why": why, "now_ms": now_ms() }))
    })
    .await
}

/// Returns the members of pools and the nodes of the program, each node with its group. Nodes of one group
/// share one answer of it.
async fn fleet(State(shared): Site) -> Result<Response, Failed> {
    read(&shared, |client| {
        let pools = or_default(client.pools())?;
        Ok(json!({ "nodes": groups(client)?, "pools": pools, "now_ms": now_ms() }))
    })
    .await
}

/// Asks for the group of each node. A group with several nodes of the program is asked for once, and shown
/// with the first of them.
fn groups(client: &mut Client) -> Result<Vec<Value>, ClientError> {
    let (mut shown, mut known) = (Vec::new(), BTreeSet::new());
    for node in or_default(client.nodes())? {
        if known.contains(&node.number) {
            continue;
        }
        let (group, why) = match client.group(node.number) {
            Ok(group) => (Some(group), None),
            // The node has ended, or no member answers.
            Err(error) if error.is_refusal() => (None, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        known.extend(group.iter().flat_map(|group| &group.members).filter_map(|member| member.number));
        shown.push(json!({ "node": node, "group": group, "why": why }));
    }
    Ok(shown)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {}

/// Lets a node of the program leave its group.
async fn leave(
    State(shared): Site,
    Path((_, node)): Path<(String, u64)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Leave {} = parse(&body)?;
    change(&shared, move |client| {
        let outcome = if client.leave(node)? { "it has left" } else { "it moves its shards away" };
        Ok(json!({ "outcome": outcome }))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    ids: Vec<String>,
}

/// Counts the calls of some objects, which slows these calls. Their rows have the rates from the next poll
/// on. Answers with the reasons for those that cannot be counted.
async fn count(State(shared): Site, body: Bytes) -> Result<Response, Failed> {
    let Count { ids } = parse(&body)?;
    if ids.len() > COUNTED_MAX {
        let why = format!("the calls of at most {COUNTED_MAX} objects are counted at once");
        return Err(Failed(StatusCode::BAD_REQUEST, why));
    }
    let refused = act(&shared, move |poller| {
        let mut refused = Vec::new();
        for id in ids {
            match poller.act(|client| client.sample(&id, COUNT_MS)) {
                Ok(calls) => poller.counted(&id, calls.per_s()),
                // The object is gone, is being swapped, or has another arbiter.
                Err(AskError::Failed(error)) if error.is_refusal() => {
                    refused.push(json!({ "id": id, "why": error.to_string() }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(refused)
    })
    .await?;
    Ok(as_json(&json!({ "refused": refused })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    frozen: bool,
}

async fn freeze_all(State(shared): Site, body: Bytes) -> Result<Response, Failed> {
    let Freeze { frozen } = parse(&body)?;
    change(&shared, move |client| client.freeze_all(frozen).map(Value::from)).await
}

async fn freeze(
    State(shared): Site,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Freeze { frozen } = parse(&body)?;
    change(&shared, move |client| client.freeze(&id, frozen).map(Value::from)).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Swap {
    implementation: String,
}

async fn swap(
    State(shared): Site,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Swap { implementation } = parse(&body)?;
    change(&shared, move |client| Ok(json!(client.swap(&id, &implementation)?))).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    name: String,
    value: String,
}

async fn set(
    State(shared): Site,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Set { name, value } = parse(&body)?;
    change(&shared, move |client| client.set(&id, &name, &value).map(Value::from)).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unset {
    name: String,
}

async fn unset(
    State(shared): Site,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Unset { name } = parse(&body)?;
    change(&shared, move |client| client.unset(&id, &name).map(Value::from)).await
}
