//! `/api/v1`: the directory of sites and subscribers, to read and to write.
//!
//! *Idea.* A resource is a site or a subscriber under its identity, in the JSON form that the store
//! has. A write is one change of the store and one of the running instance. If either refuses,
//! both are as they were.
//!
//! *Principles.* Read-only, unless there is a file of tokens, and then only for tokens that may
//! write. PUT and DELETE are idempotent. The revision of the directory is the `ETag` of all
//! answers, and `If-Match` makes a write conditional on it (RFC 9110, sections 8.8.3 and 13.1).
//! The API owns what it has written: what another source has said is for that source to change.
//! Bodies are bounded, and large ones come one by one.
//!
//! *Non-goals.* Users and roles: who needs them puts a proxy in front. Patches: a PUT has all of a
//! resource.

mod answer;
mod request;
mod tokens;
mod work;

pub use tokens::{Scope, Tokens};

use crate::ServeError;
use answer::Answer;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use narrows_store::Store;
use request::{Asked, Route, Target};
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The beginning of all paths.
pub(crate) const PREFIX: &str = "/api/v1/";
/// The name of this source in the store.
const SOURCE: &str = "api";
/// The description of the API, in OpenAPI 3.1.
const OPENAPI: &str = include_str!("api/openapi.json");
/// The largest body of one site or subscriber, in bytes.
const ONE_MAX: usize = 64 << 10;
/// The largest body of a whole directory, in bytes.
const ALL_MAX: usize = 64 << 20;
/// The longest time for a body to arrive.
const ARRIVING: Duration = Duration::from_secs(60);

/// Makes the instance as the store says.
type Follow = dyn Fn(&mut Store) -> Result<(), String> + Send + Sync;

/// Brings an instance to what the store says.
#[derive(Clone)]
pub struct Apply(Arc<Follow>);

impl Apply {
    /// `apply` makes the instance as the store says, or changes nothing and says why.
    pub fn new(apply: impl Fn(&mut Store) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(apply))
    }
}

impl fmt::Debug for Apply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Apply")
    }
}

/// What the API serves.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The file of the store.
    pub store: PathBuf,
    /// Who may write, and who may read without other credentials. None: nobody writes.
    pub tokens: Option<Tokens>,
    /// How the instance follows.
    pub apply: Apply,
}

/// The API of a server.
#[derive(Debug)]
pub(crate) struct Api {
    options: ApiOptions,
    /// Open from the first request on that finds it.
    store: Mutex<Option<Store>>,
    /// Whole directories are read one by one.
    large: Semaphore,
}

impl Api {
    /// # Errors
    /// If there are tokens, and the store cannot be opened.
    pub(crate) fn new(options: ApiOptions) -> Result<Arc<Self>, ServeError> {
        let is_written = options.tokens.is_some();
        let store = is_written.then(|| Store::open(&options.store)).transpose();
        let store = store.map_err(|error| ServeError::Store(error.to_string()))?;
        Ok(Arc::new(Self { options, store: Mutex::new(store), large: Semaphore::new(1) }))
    }

    /// What the token of a request allows; none without a valid one.
    pub(crate) fn scope(&self, headers: &HeaderMap) -> Option<Scope> {
        let said = headers.get(header::AUTHORIZATION)?.as_bytes();
        self.options.tokens.as_ref()?.scope(said)
    }

    /// The answer to a request with a path of the API. Whoever asks may read.
    pub(crate) async fn answer<B>(self: Arc<Self>, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let route = match Route::read(&request) {
            Ok(route) => route,
            Err(refusal) => return refusal.into_response(),
        };
        if route.target == Target::Description {
            return Answer::json(StatusCode::OK, OPENAPI.to_owned()).into_response();
        }
        // Who may not is told nothing of what else is wrong.
        let asked = self.granted(request.headers(), route.method != Method::GET);
        let asked = asked.and_then(|scope| Asked::read(route, &request, scope));
        let asked = match asked {
            Ok(asked) => asked,
            Err(refusal) => return refusal.into_response(),
        };
        let is_put = request.method() == Method::PUT;
        // Held until the directory is in the store.
        let mut turn = None;
        if is_put && asked.target == Target::All {
            let Ok(permit) = self.large.try_acquire() else {
                let said = "another directory is being written: ask again in some seconds";
                let mut busy = Answer::error(StatusCode::SERVICE_UNAVAILABLE, said);
                busy.add(header::RETRY_AFTER, HeaderValue::from_static("5"));
                return busy.into_response();
            };
            turn = Some(permit);
        }
        let body = if is_put {
            match body(request, asked.target == Target::All).await {
                Ok(body) => body,
                Err(refusal) => return refusal.into_response(),
            }
        } else {
            Bytes::new()
        };
        let api = Arc::clone(&self);
        let worked = tokio::task::spawn_blocking(move || api.work(&asked, &body)).await;
        drop(turn);
        let answer = worked.unwrap_or_else(|error| {
            Answer::error(StatusCode::INTERNAL_SERVER_ERROR, &format!("it failed: {error}"))
        });
        answer.into_response()
    }

    /// What whoever asks may do. Refuses tokens that nobody knows, and none where one is needed.
    fn granted(&self, headers: &HeaderMap, needs_token: bool) -> Result<Scope, Answer> {
        let has_bearer = headers.get(header::AUTHORIZATION).is_some_and(|said| {
            said.as_bytes().get(..7).is_some_and(|begin| begin.eq_ignore_ascii_case(b"bearer "))
        });
        let unauthorized = |said: &str| {
            let mut refusal = Answer::error(StatusCode::UNAUTHORIZED, said);
            let realm = HeaderValue::from_static("Bearer realm=\"narrows\"");
            refusal.add(header::WWW_AUTHENTICATE, realm);
            Err(refusal)
        };
        match self.scope(headers) {
            Some(scope) => Ok(scope),
            None if has_bearer => unauthorized("the token is none of the file of --write-tokens"),
            None if !needs_token => Ok(Scope::Read),
            None if self.options.tokens.is_none() => {
                let said = "this server only reads: start it with --write-tokens FILE";
                Err(Answer::error(StatusCode::FORBIDDEN, said))
            }
            None => unauthorized("to write, send a token as Authorization: Bearer TOKEN"),
        }
    }

    /// Does what is asked, with the store.
    fn work(&self, asked: &Asked, body: &[u8]) -> Answer {
        // A panic while it was held has changed nothing halfway: each change is a transaction.
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() && self.options.store.exists() {
            match Store::open(&self.options.store) {
                Ok(opened) => *store = Some(opened),
                Err(error) => {
                    return Answer::error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
                }
            }
        }
        let Some(store) = store.as_mut() else {
            let path = self.options.store.display();
            let said = format!("there is no directory yet: narrows-sync makes {path}");
            return Answer::error(StatusCode::NOT_FOUND, &said);
        };
        work::work(store, self.options.apply.0.as_ref(), asked, body)
    }
}

/// The body of a PUT: JSON, not too large, and not too slow.
async fn body<B>(request: Request<B>, is_all: bool) -> Result<Bytes, Answer>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let said = "send JSON, with Content-Type: application/json";
        return Err(Answer::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, said));
    }
    let coding = request.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        let said = "send the body as it is, without Content-Encoding";
        return Err(Answer::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, said));
    }
    let limit = if is_all { ALL_MAX } else { ONE_MAX };
    let collected = Box::pin(Limited::new(request.into_body(), limit).collect());
    match tokio::time::timeout(ARRIVING, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let said = format!("the body has more than {limit} bytes");
            Err(Answer::error(StatusCode::PAYLOAD_TOO_LARGE, &said))
        }
        Ok(Err(error)) => {
            let said = format!("the body did not arrive: {error}");
            Err(Answer::error(StatusCode::BAD_REQUEST, &said))
        }
        Err(_) => {
            let said = format!("the body did not arrive in {} s", ARRIVING.as_secs());
            Err(Answer::error(StatusCode::REQUEST_TIMEOUT, &said))
        }
    }
}

#[cfg(test)]
mod tests;
