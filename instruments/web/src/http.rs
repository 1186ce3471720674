//! Routes of the page's server.

use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use squall_browse::protocol::{Hello, REQUEST_BYTES_MAX, RefusalKind};
use squall_browse::{Client, ClientError};
use tokio::sync::oneshot;

use crate::access::{self, Token};
use crate::assets;
use crate::events::Events;
use crate::poll::Command;
use crate::rows::Rows;

/// Messages that a page may leave unread before it is behind.
const UPDATES_MAX: usize = 4;
/// Largest number of objects with calls counted by one request, and the span of each count. All other
/// requests wait for as long.
const COUNTED_MAX: usize = 8;
const COUNT_MS: u64 = 20;

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
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) end: Arc<OnceLock<String>>,
}

type Site = State<Arc<Shared>>;

/// Returns the routes, behind the access control.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/{token}/", get(|| asset(Path((String::new(), String::new())))))
        .route("/{token}/{file}", get(asset))
        .route("/{token}/program", get(program))
        .route("/{token}/events", get(events))
        .route("/{token}/count", post(count))
        .route("/{token}/freeze-all", post(freeze_all))
        .route("/{token}/object/{id}", get(object))
        .route("/{token}/object/{id}/freeze", post(freeze))
        .route("/{token}/object/{id}/swap", post(swap))
        .route("/{token}/object/{id}/set", post(set))
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

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        let status = match &error {
            ClientError::Refused(refusal) if refusal.kind == RefusalKind::NoObject => StatusCode::NOT_FOUND,
            ClientError::Refused(_) => StatusCode::CONFLICT,
            ClientError::Gone => StatusCode::GONE,
            _ => StatusCode::BAD_GATEWAY,
        };
        Failed(status, error.to_string())
    }
}

fn as_json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Uses the connection to the program on the poller's thread.
async fn ask(
    shared: &Shared,
    request: impl FnOnce(&mut Client, &mut Rows) -> Result<Value, ClientError> + Send + 'static,
) -> Result<Response, Failed> {
    let (sender, answer) = oneshot::channel();
    let command = Command::Use(Box::new(move |client, rows| {
        // The page may be gone.
        let _ = sender.send(request(client, rows));
    }));
    // If the poller has ended, the answer's sender is dropped.
    let _ = shared.commands.send(command);
    let value = answer.await.unwrap_or(Err(ClientError::Gone))?;
    Ok(as_json(&value))
}

/// Carries out a change, unless the server is read-only.
async fn act(
    shared: &Shared,
    change: impl FnOnce(&mut Client) -> Result<Value, ClientError> + Send + 'static,
) -> Result<Response, Failed> {
    if shared.read_only {
        let why = "squall browse was started with --read-only, so it changes nothing";
        return Err(Failed(StatusCode::FORBIDDEN, why.to_owned()));
    }
    ask(shared, |client, _| change(client)).await
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(body).map_err(|error| Failed(StatusCode::BAD_REQUEST, error.to_string()))
}

async fn asset(Path((_, file)): Path<(String, String)>) -> Response {
    match assets::named(&file) {
        Some(asset) => ([(header::CONTENT_TYPE, asset.media_type)], asset.text).into_response(),
        None => (StatusCode::NOT_FOUND, "squall browse: there is no such file\n").into_response(),
    }
}

/// Returns the program, and its topology if the program's version knows that request.
async fn program(State(shared): Site) -> Result<Response, Failed> {
    let known = json!({
        "program": shared.hello.program,
        "pid": shared.hello.pid,
        "version": shared.hello.version,
        "read_only": shared.read_only,
        "author": shared.author,
    });
    ask(&shared, move |client, _| {
        let mut answer = known;
        answer["machine"] = json!(or_default(client.machine())?);
        Ok(answer)
    })
    .await
}

/// Turns the refusal of an older program into an empty answer.
fn or_default<T: Default>(answer: Result<T, ClientError>) -> Result<T, ClientError> {
    match answer {
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::BadRequest => Ok(T::default()),
        answer => answer,
    }
}

async fn events(State(shared): Site) -> Response {
    let (sender, updates) = tokio::sync::mpsc::channel(UPDATES_MAX);
    // If the poller has ended, the sender is dropped, and the stream says so.
    let _ = shared.commands.send(Command::Watch(sender));
    let stream = Events::new(updates, Arc::clone(&shared.end));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

async fn object(State(shared): Site, Path((_, id)): Path<(String, String)>) -> Result<Response, Failed> {
    ask(&shared, move |client, _| {
        let mut swaps = client.swaps()?;
        swaps.retain(|swap| swap.id == id);
        let mut actions = or_default(client.actions())?;
        actions.retain(|action| action.id.as_ref().is_none_or(|of| *of == id));
        Ok(json!({
            "detail": client.object(&id)?,
            "history": client.history(&id)?,
            "swaps": swaps,
            "actions": actions,
        }))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    ids: Vec<String>,
}

/// Counts the calls of some objects. Their rows have the rates from the next poll on.
async fn count(State(shared): Site, body: Bytes) -> Result<Response, Failed> {
    let Count { ids } = parse(&body)?;
    if ids.len() > COUNTED_MAX {
        let why = format!("the calls of at most {COUNTED_MAX} objects are counted at once");
        return Err(Failed(StatusCode::BAD_REQUEST, why));
    }
    ask(&shared, move |client, rows| {
        for id in &ids {
            match client.sample(id, COUNT_MS) {
                Ok(calls) => rows.counted(id, calls.per_s()),
                // The object is gone, is being swapped, or has another arbiter.
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Value::Null)
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    frozen: bool,
}

async fn freeze_all(State(shared): Site, body: Bytes) -> Result<Response, Failed> {
    let Freeze { frozen } = parse(&body)?;
    act(&shared, move |client| client.freeze_all(frozen).map(Value::from)).await
}

async fn freeze(
    State(shared): Site,
    Path((_, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Freeze { frozen } = parse(&body)?;
    act(&shared, move |client| client.freeze(&id, frozen).map(Value::from)).await
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
    act(&shared, move |client| Ok(json!(client.swap(&id, &implementation)?))).await
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
    act(&shared, move |client| client.set(&id, &name, &value).map(Value::from)).await
}
