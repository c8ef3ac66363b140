//! From page to page.

use super::client::Answer;
use crate::mapping::{Pages, Request, Step};
use serde_json::Value;
use std::collections::HashSet;

/// Where a list is being read.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pages: Option<&'a Pages>,
    /// What the next request says of the page.
    pub(super) at: At,
    /// Addresses and cursors that were there, so that no list goes round in circles.
    seen: HashSet<String>,
}

/// What a request says of the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// Nothing.
    Whole,
    /// A parameter: a page, an offset or a cursor.
    Parameter(String, Value),
    /// An address.
    Address(String),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let pages = request.pages.as_ref();
        let number = |pages: &Pages| match pages.by {
            Step::Page => Some(pages.first.unwrap_or(1)),
            Step::Offset => Some(0),
            Step::Next | Step::Link | Step::Cursor => None,
        };
        let start = pages.and_then(|pages| Some((pages.name.clone()?, number(pages)?)));
        let at = start.map_or(At::Whole, |(name, number)| At::Parameter(name, number.into()));
        Self { pages, at, seen: HashSet::new() }
    }

    /// What the answer says of the next page: an address or a cursor, if it has one.
    pub(super) fn step(&self, answer: &Answer) -> Result<Option<String>, String> {
        let Some(pages) = self.pages else { return Ok(None) };
        if pages.by == Step::Link {
            return Ok(answer.link.clone());
        }
        let Some(path) = &pages.next else { return Ok(None) };
        match path.values(&answer.document).as_slice() {
            [] | [Value::Null | Value::Bool(false)] => Ok(None),
            [Value::String(text)] if text.is_empty() => Ok(None),
            [Value::String(text)] => Ok(Some(text.clone())),
            [Value::Number(number)] if pages.by == Step::Cursor => Ok(Some(number.to_string())),
            _ => Err(format!("the answer has no text at {}, the next page", path.as_str())),
        }
    }

    /// Goes on after a page of `count` records; false if it was the last.
    pub(super) fn advance(&mut self, step: Option<String>, count: usize) -> Result<bool, String> {
        let Some(pages) = self.pages else { return Ok(false) };
        let count = count as u64;
        match pages.by {
            Step::Page | Step::Offset => {
                // A page that is not full is the last; without a size, an empty one.
                if count < pages.size.unwrap_or(1) {
                    return Ok(false);
                }
                let At::Parameter(_, number) = &mut self.at else { return Ok(false) };
                let by = if pages.by == Step::Page { 1 } else { count };
                *number = number.as_u64().unwrap_or_default().saturating_add(by).into();
                Ok(true)
            }
            Step::Next | Step::Link | Step::Cursor => {
                let Some(next) = step else { return Ok(false) };
                if !self.seen.insert(next.clone()) {
                    return Err("the answer names a next page that was there before".to_owned());
                }
                self.at = match &pages.name {
                    Some(name) => At::Parameter(name.clone(), next.into()),
                    None => At::Address(next),
                };
                Ok(true)
            }
        }
    }
}

/// The address of `rel="next"` in a `Link` header (RFC 8288).
pub(super) fn next_link(header: &str) -> Option<String> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (address, after) = after.split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let is_next = after[..end].split([';', ',']).any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else { return false };
            let words = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && words.split_whitespace().any(|word| word.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(address.to_owned());
        }
        rest = &after[end..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_link_is_found_among_others() {
        let header = "<https://a/?page=1>; rel=\"prev\", </x?page=3>; title=\"a, b\"; rel=next";
        assert_eq!(next_link(header).as_deref(), Some("/x?page=3"));
        for none in ["", "<", "<a>", "<a>; rel=last", "a; rel=next"] {
            assert_eq!(next_link(none), None, "{none}");
        }
    }
}
