//! What requests do with the store.

use super::answer::Answer;
use super::request::{Asked, Kind, Target, check_identity};
use super::{Follow, SOURCE};
use hyper::{Method, StatusCode};
use narrows_directory::Change;
use narrows_store::{Changes, Directory, Edit, Guard, Site, Store, StoreError, Subscriber};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The most changes that an answer names; it counts all.
const CHANGES_MAX: usize = 1_000;

/// Part of a list.
#[derive(Serialize)]
struct Page<'a, T> {
    revision: u64,
    /// The identity after which the next part begins; none at the end.
    next: Option<&'a str>,
    items: BTreeMap<&'a str, &'a T>,
}

/// What a write did, or a dry run would do.
#[derive(Serialize)]
struct Done {
    revision: u64,
    /// In people's words.
    summary: String,
    changes: Vec<String>,
}

impl Done {
    fn new(revision: u64, changes: &Changes) -> Self {
        let lines = changes.sites.iter().map(ToString::to_string);
        let lines = lines.chain(changes.subscribers.iter().map(ToString::to_string));
        let summary = changes.summary();
        Self { revision, summary, changes: lines.take(CHANGES_MAX).collect() }
    }
}

pub(super) fn work(store: &mut Store, apply: &Follow, asked: &Asked, body: &[u8]) -> Answer {
    try_work(store, apply, asked, body).unwrap_or_else(|refusal| refusal)
}

fn try_work(
    store: &mut Store,
    apply: &Follow,
    asked: &Asked,
    body: &[u8],
) -> Result<Answer, Answer> {
    let revision = store.revision().map_err(refusal)?;
    let is_get = asked.method == Method::GET;
    if !is_get {
        check_condition(store, asked, revision)?;
    }
    match &asked.target {
        // Answered before.
        Target::Description => Err(Answer::error(StatusCode::NOT_FOUND, "not here")),
        Target::All if is_get => {
            Ok(Answer::of(StatusCode::OK, store.directory().map_err(refusal)?).at(revision))
        }
        Target::All => replace(store, apply, asked, body, revision),
        Target::List(Kind::Site) => {
            let sites = &store.directory().map_err(refusal)?.sites;
            Ok(page(sites, asked, revision, |site, word| contains(&site.name, word)))
        }
        Target::List(Kind::Subscriber) => {
            let subscribers = &store.directory().map_err(refusal)?.subscribers;
            Ok(page(subscribers, asked, revision, is_about))
        }
        Target::One(kind, identity) if is_get => {
            let directory = store.directory().map_err(refusal)?;
            let found = match kind {
                Kind::Site => directory.sites.get(identity).map(one),
                Kind::Subscriber => directory.subscribers.get(identity).map(one),
            };
            found
                .map(|answer| answer.at(revision))
                .ok_or_else(|| Answer::error(StatusCode::NOT_FOUND, "nobody has this identity"))
        }
        Target::One(kind, identity) => {
            let is_there = exists(store, *kind, identity)?;
            let mut edit = Edit::default();
            let is_put = asked.method == Method::PUT;
            match kind {
                Kind::Site => {
                    let site = is_put.then(|| parse::<Site>(body)).transpose()?;
                    edit.sites.insert(identity.clone(), site);
                }
                Kind::Subscriber => {
                    let subscriber = is_put.then(|| parse::<Subscriber>(body)).transpose()?;
                    edit.subscribers.insert(identity.clone(), subscriber);
                }
            }
            let changes = store.change_at(revision, SOURCE, edit).map_err(refusal)?;
            let done = finish(store, apply, &changes)?;
            let is_new = is_put && !is_there;
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            Ok(Answer::of(status, &done).at(done.revision))
        }
    }
}

/// Makes a directory all that the API has.
fn replace(
    store: &mut Store,
    apply: &Follow,
    asked: &Asked,
    body: &[u8],
    revision: u64,
) -> Result<Answer, Answer> {
    let directory = parse::<Directory>(body)?;
    for identity in directory.sites.keys().chain(directory.subscribers.keys()) {
        check_identity(identity)
            .map_err(|why| Answer::error(StatusCode::UNPROCESSABLE_ENTITY, &why))?;
    }
    if asked.query.is_dry {
        let changes = store.plan(SOURCE, &directory).map_err(refusal)?;
        return Ok(Answer::of(StatusCode::OK, &Done::new(revision, &changes)).at(revision));
    }
    let guard = Guard { max_removed_share: asked.query.max_removed };
    let changes = store.replace(SOURCE, &directory, guard).map_err(|error| match error {
        StoreError::Removes { .. } => {
            let said = error.to_string().replace("--max-removed ", "max-removed=");
            Answer::error(StatusCode::CONFLICT, said.trim_end_matches('%'))
        }
        error => refusal(error),
    })?;
    let done = finish(store, apply, &changes)?;
    Ok(Answer::of(StatusCode::OK, &done).at(done.revision))
}

/// Lets the instance follow. If it does not, the store is as it was.
fn finish(store: &mut Store, apply: &Follow, changes: &Changes) -> Result<Done, Answer> {
    if !changes.is_empty()
        && let Err(why) = apply(store)
    {
        let undone =
            Edit { sites: former(&changes.sites), subscribers: former(&changes.subscribers) };
        let said = match store.change(SOURCE, undone) {
            Ok(_) => format!("the directory is as it was: {why}"),
            Err(error) => format!(
                "{why}; and the store cannot be set back ({error}): it is ahead of the instance \
                 until narrows-sync apply"
            ),
        };
        return Err(Answer::error(StatusCode::BAD_GATEWAY, &said));
    }
    let revision = store.revision().map_err(refusal)?;
    Ok(Done::new(revision, changes))
}

fn former<T: Clone>(changes: &[Change<T>]) -> BTreeMap<String, Option<T>> {
    changes.iter().map(|change| (change.identity.clone(), change.old.clone())).collect()
}

fn check_condition(store: &mut Store, asked: &Asked, revision: u64) -> Result<(), Answer> {
    let failed =
        |said: String| Err(Answer::error(StatusCode::PRECONDITION_FAILED, &said).at(revision));
    if let Some(expected) = asked.condition.revision.filter(|expected| *expected != revision) {
        return failed(format!(
            "the directory is at revision {revision}, not at {expected}: read it again, then \
             change it"
        ));
    }
    if let (Some(expected), Target::One(kind, identity)) = (asked.condition.exists, &asked.target)
        && exists(store, *kind, identity)? != expected
    {
        let is = if expected { "not there" } else { "there already" };
        return failed(format!("{identity} is {is}"));
    }
    Ok(())
}

fn exists(store: &mut Store, kind: Kind, identity: &str) -> Result<bool, Answer> {
    let directory = store.directory().map_err(refusal)?;
    Ok(match kind {
        Kind::Site => directory.sites.contains_key(identity),
        Kind::Subscriber => directory.subscribers.contains_key(identity),
    })
}

fn one(value: &impl Serialize) -> Answer {
    Answer::of(StatusCode::OK, value)
}

/// The object in a body.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    // serde would also take an array of the members, without their names.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Answer::error(StatusCode::BAD_REQUEST, "the body: it is no object"));
    }
    serde_json::from_slice(body)
        .map_err(|error| Answer::error(StatusCode::BAD_REQUEST, &format!("the body: {error}")))
}

/// Some entries in the order of their identities.
fn page<T: Serialize>(
    all: &BTreeMap<String, T>,
    asked: &Asked,
    revision: u64,
    is_about: impl Fn(&T, &str) -> bool,
) -> Answer {
    use std::ops::Bound::{Excluded, Unbounded};
    let query = &asked.query;
    let word = query.search.as_deref().unwrap_or_default().to_lowercase();
    let from = query.after.as_deref().map_or(Unbounded, Excluded);
    let found = all.range::<str, _>((from, Unbounded)).filter(|(identity, value)| {
        word.is_empty() || contains(identity, &word) || is_about(value, &word)
    });
    let mut items = BTreeMap::new();
    let mut last = None;
    let mut next = None;
    for (identity, value) in found {
        if items.len() == query.limit {
            next = last;
            break;
        }
        items.insert(identity.as_str(), value);
        last = Some(identity.as_str());
    }
    Answer::of(StatusCode::OK, &Page { revision, next, items }).at(revision)
}

/// Whether a subscriber is what somebody searches with `word`, which is lower case.
fn is_about(subscriber: &Subscriber, word: &str) -> bool {
    let texts = [Some(&subscriber.name), subscriber.site.as_ref(), subscriber.plan.name.as_ref()];
    texts.into_iter().flatten().chain(subscriber.labels.values()).any(|text| contains(text, word))
        || subscriber.addresses.iter().any(|address| address.to_string().contains(word))
}

fn contains(text: &str, word: &str) -> bool {
    text.to_lowercase().contains(word)
}

/// The answer to what the store refuses.
fn refusal(error: StoreError) -> Answer {
    let status = match &error {
        StoreError::Unsound(_) => StatusCode::UNPROCESSABLE_ENTITY,
        StoreError::Conflict(_) | StoreError::Removes { .. } => StatusCode::CONFLICT,
        StoreError::Moved { .. } => StatusCode::PRECONDITION_FAILED,
        StoreError::Open { .. }
        | StoreError::Newer { .. }
        | StoreError::Damaged(_)
        | StoreError::Database(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Answer::error(status, &error.to_string())
}
