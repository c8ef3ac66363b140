//! What a request asks for.

use super::answer::Answer;
use super::{PREFIX, Scope};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;

/// How many entries a list has if nothing is said.
const LIMIT: usize = 100;
/// The most entries of a list.
const LIMIT_MAX: usize = 1_000;
/// The longest identity in bytes.
const IDENTITY_MAX: usize = 250;
/// The largest share that may go by a PUT of the directory, if nothing is said.
const REMOVED: f64 = 0.1;

/// A path of the API, below its prefix, with the methods that it takes.
pub(super) const ROUTES: [(&str, &[&str]); 6] = [
    ("openapi.json", &["GET"]),
    ("directory", &["GET", "PUT"]),
    ("subscribers", &["GET"]),
    ("subscribers/{id}", &["GET", "PUT", "DELETE"]),
    ("sites", &["GET"]),
    ("sites/{id}", &["GET", "PUT", "DELETE"]),
];

/// A request that can be answered.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: Target,
    pub(super) method: Method,
    pub(super) query: Query,
    pub(super) condition: Condition,
}

/// Which resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Description,
    All,
    List(Kind),
    One(Kind, String),
}

/// What a resource is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Site,
    Subscriber,
}

/// The parameters of a query.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Query {
    pub(super) limit: usize,
    pub(super) after: Option<String>,
    pub(super) search: Option<String>,
    pub(super) is_dry: bool,
    pub(super) max_removed: f64,
}

/// What has to hold before a write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Condition {
    /// `If-Match: "REVISION"`.
    pub(super) revision: Option<u64>,
    /// `If-Match: *`: the resource is there. `If-None-Match: *`: it is not.
    pub(super) exists: Option<bool>,
}

/// The resource of a request, and what is done with it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) target: Target,
    pub(super) method: Method,
}

impl Route {
    pub(super) fn read<B>(request: &Request<B>) -> Result<Self, Answer> {
        let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
        let (target, methods) = target(path)?;
        let method = match request.method() {
            &Method::HEAD => Method::GET,
            method => method.clone(),
        };
        if !methods.contains(&method.as_str()) {
            let hint = match target {
                // What most APIs take at a list to make something new.
                Target::List(..) => "; to write one, PUT it at its identity below this path",
                _ => "",
            };
            let said = format!("this takes {}{hint}", methods.join(", "));
            let mut refusal = Answer::error(StatusCode::METHOD_NOT_ALLOWED, &said);
            let allow = HeaderValue::from_str(&methods.join(", "));
            refusal.add(header::ALLOW, allow.unwrap_or(HeaderValue::from_static("GET")));
            return Err(refusal);
        }
        Ok(Self { target, method })
    }
}

impl Asked {
    /// The rest of a request of somebody who may do what `scope` allows.
    pub(super) fn read<B>(
        route: Route,
        request: &Request<B>,
        scope: Scope,
    ) -> Result<Self, Answer> {
        let Route { target, method } = route;
        let query = query(request.uri().query().unwrap_or_default(), &target, &method)?;
        // A dry run changes nothing.
        if method != Method::GET && !query.is_dry && scope == Scope::Read {
            let said = "this token may only read: use one whose line begins with write";
            return Err(Answer::error(StatusCode::FORBIDDEN, said));
        }
        let condition = match method {
            Method::GET => Condition::default(),
            _ => condition(request.headers())?,
        };
        Ok(Self { target, method, query, condition })
    }
}

fn target(path: &str) -> Result<(Target, &'static [&'static str]), Answer> {
    let methods = |route: &str| {
        ROUTES.iter().find(|(known, _)| *known == route).map_or(&[][..], |(_, methods)| methods)
    };
    let kind = |word: &str| match word {
        "sites" => Some(Kind::Site),
        "subscribers" => Some(Kind::Subscriber),
        _ => None,
    };
    match (path, path.split_once('/')) {
        ("openapi.json", _) => Ok((Target::Description, methods(path))),
        ("directory", _) => Ok((Target::All, methods(path))),
        (word, None) if kind(word).is_some() => {
            Ok((Target::List(kind(word).unwrap_or(Kind::Site)), methods(path)))
        }
        (_, Some((word, identity))) if !identity.contains('/') => match kind(word) {
            Some(kind) => {
                let identity = identity_of(identity)?;
                Ok((Target::One(kind, identity), methods(&format!("{word}/{{id}}"))))
            }
            None => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

fn unknown() -> Answer {
    let paths: Vec<String> = ROUTES.iter().map(|(path, _)| format!("{PREFIX}{path}")).collect();
    let said = format!("not found; available: {}", paths.join(", "));
    Answer::error(StatusCode::NOT_FOUND, &said)
}

fn identity_of(encoded: &str) -> Result<String, Answer> {
    let bad = |said: &str| Answer::error(StatusCode::BAD_REQUEST, said);
    let identity = percent_decode_str(encoded).decode_utf8();
    let identity = identity.map_err(|_| bad("the identity in the path is not UTF-8"))?;
    check_identity(&identity).map_err(|why| bad(&why))?;
    Ok(identity.into_owned())
}

/// Whether the API takes an identity.
pub(super) fn check_identity(identity: &str) -> Result<(), String> {
    if identity.is_empty() || identity.len() > IDENTITY_MAX {
        return Err(format!("an identity has 1 to {IDENTITY_MAX} bytes"));
    }
    if identity.chars().any(char::is_control) {
        return Err("an identity has no control characters".to_owned());
    }
    Ok(())
}

fn query(text: &str, target: &Target, method: &Method) -> Result<Query, Answer> {
    let bad = |said: String| Answer::error(StatusCode::BAD_REQUEST, &said);
    let mut query =
        Query { limit: LIMIT, after: None, search: None, is_dry: false, max_removed: REMOVED };
    let is_list = matches!(target, Target::List(_));
    let is_replacing = *target == Target::All && *method == Method::PUT;
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match name.as_ref() {
            "limit" if is_list => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                let said = format!("limit is a number from 1 to {LIMIT_MAX}");
                query.limit = limit.ok_or_else(|| bad(said))?;
            }
            "after" if is_list => query.after = Some(value.into_owned()),
            "search" if is_list => query.search = Some(value.into_owned()),
            "dry-run" if is_replacing => {
                query.is_dry = match value.as_ref() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(bad("dry-run is true or false".to_owned())),
                };
            }
            "max-removed" if is_replacing => {
                let percent = value.parse::<u8>().ok().filter(|percent| *percent <= 100);
                let said = "max-removed is a percentage from 0 to 100".to_owned();
                query.max_removed = f64::from(percent.ok_or_else(|| bad(said))?) / 100.0;
            }
            _ => {
                let known = match (is_list, is_replacing) {
                    (true, _) => "limit, after and search are possible",
                    (_, true) => "dry-run and max-removed are possible",
                    _ => "none is possible here",
                };
                return Err(bad(format!("there is a parameter that is not known: {known}")));
            }
        }
    }
    Ok(query)
}

fn condition(headers: &HeaderMap) -> Result<Condition, Answer> {
    let bad = |said: &str| Answer::error(StatusCode::BAD_REQUEST, said);
    let text = |name: HeaderName, said: &str| {
        let value = headers.get(name);
        value.map(|value| value.to_str().map_err(|_| bad(said))).transpose()
    };
    let mut condition = Condition::default();
    let said = "If-Match is the ETag of an answer, as \"17\", or *";
    match text(header::IF_MATCH, said)?.map(str::trim) {
        None => {}
        Some("*") => condition.exists = Some(true),
        Some(tag) => {
            let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let number = number.and_then(|number| number.parse().ok());
            condition.revision = Some(number.ok_or_else(|| bad(said))?);
        }
    }
    let said = "If-None-Match is *: the resource must not be there";
    match text(header::IF_NONE_MATCH, said)?.map(str::trim) {
        None => {}
        Some("*") => condition.exists = Some(false),
        Some(_) => return Err(bad(said)),
    }
    Ok(condition)
}
