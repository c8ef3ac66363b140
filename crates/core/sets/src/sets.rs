//! All sets by name, and what commands do to them.

use crate::command::{self, Action, Command, Details, Listing, ParseError};
use crate::entry;
use crate::key::Key;
use crate::kind::{Family, Kind, Shape};
use crate::set::{Addition, Element, Match, Set};
use crate::text;
use narrows_escape::shell;
use narrows_packet::PaceId;
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// The most sets: each has a number in the programs.
pub const SETS_MAX: usize = 64;

const HELP: &str = "Usage: narrows set [ OPTIONS ] COMMAND
COMMAND := create NAME TYPE [ TYPE-OPTIONS ]
         | add NAME ENTRY [ timeout S ] [ nomatch ] [ packets N ] [ bytes N ] [ comment TEXT ]
             [ rate RATE ]
         | del NAME ENTRY | test NAME ENTRY
         | destroy [ NAME ] | flush [ NAME ] | list [ NAME ] | save [ NAME ]
         | rename FROM TO | swap ONE OTHER | restore [ -file FILE ] | help | version
TYPE    := hash:ip | hash:net | hash:net,port | hash:mac
TYPE-OPTIONS := [ family inet|inet6 ] [ maxelem N ] [ timeout S ] [ counters ] [ comment ] [ rate ]
           [ netmask N ] (hash:ip) [ hashsize N ] [ bucketsize N ] [ initval N ] (without effect)
OPTIONS := -exist | -quiet | -name | -terse | -output plain|save | -file FILE
";

/// The owner of the sets, which knows their use elsewhere.
pub trait Host {
    /// How many filters look something up in the set `name`.
    fn references(&self, name: &str) -> usize;

    /// Packets and bytes that the member `key` of `set` has counted.
    fn counted(&self, set: &Named, key: &Key) -> (u64, u64);
}

/// The output of a command, and its exit code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit code: 0, 1 where it failed or the answer is no, 2 where it was no command.
    pub code: i32,
}

/// A set by its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// By which programs know the name: below [`SETS_MAX`], and no other set's.
    pub slot: u32,
    /// The unique number of its contents, never reused; `swap` exchanges it.
    pub contents: u64,
    /// Its members.
    pub set: Set,
}

/// All sets by name.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    named: BTreeMap<String, Named>,
    /// The number of the next contents.
    next: u64,
    /// How often commands changed something,
    edits: u64,
    /// and time did.
    expirations: u64,
}

/// Why a command failed.
pub(crate) enum Failure {
    /// It is none.
    Syntax(String),
    /// It cannot be done.
    Refused(String),
    /// The answer is no.
    No(String),
}

impl From<ParseError> for Failure {
    fn from(ParseError(why): ParseError) -> Self {
        Self::Syntax(why)
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Refused(why.into()))
}

fn missing(name: &str) -> Failure {
    Failure::Refused(format!(
        "The set with the given name does not exist: narrows set create {} hash:net",
        shell(name)
    ))
}

impl Sets {
    /// The set `name`.
    pub fn get(&self, name: &str) -> Option<&Named> {
        self.named.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Named)> {
        self.named.iter().map(|(name, named)| (name.as_str(), named))
    }

    /// All of them by name, to change. Reports the changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Named)> {
        self.named.iter_mut().map(|(name, named)| (name.as_str(), named))
    }

    /// A number that is another one after each command that changed something.
    pub fn edits(&self) -> u64 {
        self.edits
    }

    /// A number that is another one after each change, by commands or by time.
    pub fn version(&self) -> u64 {
        self.edits + self.expirations
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// When the first member of any set goes.
    pub fn next_end(&self) -> Option<Nanos> {
        self.named.values().filter_map(|named| named.set.next_end()).min()
    }

    /// Takes out all members whose time is over at `now`. Whether there were any.
    pub fn expire(&mut self, now: Nanos) -> bool {
        let is_due = self.next_end().is_some_and(|end| end <= now);
        if is_due {
            self.expirations += 1;
            self.named.values_mut().for_each(|named| named.set.expire(now));
        }
        is_due
    }

    /// Runs one command, the words behind `narrows set`. One that fails changes nothing.
    pub fn run(&mut self, words: &[String], now: Nanos, host: &dyn Host) -> Reply {
        let command = match command::parse(words.iter().map(String::as_str)) {
            Ok(command) => command,
            Err(ParseError(why)) => {
                let stderr = format!("narrows set: {why}. Try `narrows set help`.\n");
                return Reply { stderr, code: 2, ..Reply::default() };
            }
        };
        let is_quiet = command.is_quiet;
        let reply = match self.execute(command, now, host) {
            Ok(stdout) => Reply { stdout, ..Reply::default() },
            Err(Failure::No(why)) => Reply { stderr: why + "\n", code: 1, ..Reply::default() },
            Err(Failure::Refused(why)) => {
                Reply { stderr: format!("narrows set: {why}\n"), code: 1, ..Reply::default() }
            }
            Err(Failure::Syntax(why)) => {
                Reply { stderr: format!("narrows set: {why}\n"), code: 2, ..Reply::default() }
            }
        };
        let stderr = if is_quiet { String::new() } else { reply.stderr };
        Reply { stderr, ..reply }
    }

    /// All sets as the lines that re-create them, including members with a time-out.
    pub fn save(&self, now: Nanos, host: &dyn Host) -> String {
        let listing = Listing { as_save: true, ..Listing::default() };
        let mut text = String::new();
        for (name, named) in self.iter() {
            show(&mut text, name, named, listing, now, host);
        }
        text
    }

    pub(crate) fn execute(
        &mut self,
        command: Command<'_>,
        now: Nanos,
        host: &dyn Host,
    ) -> Result<String, Failure> {
        let Command { action, may_exist, .. } = command;
        match action {
            Action::Create { set, kind } => self.create(set, kind, may_exist)?,
            Action::Add { set, entry, details } => self.add(set, entry, details, may_exist, now)?,
            Action::Del { set, entry } => self.del(set, entry, may_exist)?,
            Action::Test { set, entry } => return self.test(set, entry),
            Action::Destroy { set: Some(set) } => {
                if self.get(set).is_none() && may_exist {
                    return Ok(String::new());
                }
                self.may_go(set, host)?;
                self.named.remove(set);
            }
            Action::Destroy { set: None } => {
                self.named.keys().try_for_each(|name| self.may_go(name, host))?;
                self.named.clear();
            }
            Action::Flush { set: Some(set) } => self.find(set)?.flush(),
            Action::Flush { set: None } => {
                self.named.values_mut().for_each(|named| named.set.flush());
            }
            Action::List { set, listing } => return self.list(set, listing, now, host),
            Action::Rename { from, to } => self.rename(from, to, host)?,
            Action::Swap { one, other } => self.swap(one, other)?,
            Action::Commit => return Ok(String::new()),
            Action::Help => return Ok(HELP.to_owned()),
            Action::Version => {
                return Ok(concat!(
                    "narrows set v",
                    env!("CARGO_PKG_VERSION"),
                    ", words of ipset v7.17\n"
                )
                .to_owned());
            }
        }
        self.edits += 1;
        Ok(String::new())
    }

    /// Packs the sets to which many members have come.
    pub(crate) fn pack(&mut self) {
        self.named.values_mut().for_each(|named| named.set.pack());
    }

    fn find(&mut self, name: &str) -> Result<&mut Set, Failure> {
        self.named.get_mut(name).map(|named| &mut named.set).ok_or_else(|| missing(name))
    }

    fn create(&mut self, name: &str, kind: Kind, may_exist: bool) -> Result<(), Failure> {
        if let Some(present) = self.get(name) {
            let (is, wanted) = (present.set.kind(), kind);
            return match may_exist && is.shape == wanted.shape && is.family == wanted.family {
                true => Ok(()),
                false => refuse("Set cannot be created: set with the same name already exists"),
            };
        }
        let used: Vec<u32> = self.named.values().map(|named| named.slot).collect();
        let Some(slot) = (0..SETS_MAX as u32).find(|slot| !used.contains(slot)) else {
            return refuse(format!(
                "Set cannot be created: there are {SETS_MAX} already; destroy one"
            ));
        };
        let named = Named { slot, contents: self.number(), set: Set::new(kind) };
        self.named.insert(name.to_owned(), named);
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(
        &mut self,
        name: &str,
        entry: &str,
        details: Details<'_>,
        may_exist: bool,
        now: Nanos,
    ) -> Result<(), Failure> {
        let set = self.find(name)?;
        let kind = *set.kind();
        let Details { timeout, packets, bytes, comment, rate, is_exception } = details;
        let lacks = |what: &str| {
            Failure::Refused(format!(
                "Element cannot be added to the set: the set was created without {what}"
            ))
        };
        if timeout.is_some() && kind.timeout.is_none() {
            return Err(lacks("timeout"));
        }
        if (packets.is_some() || bytes.is_some()) && !kind.counters {
            return Err(lacks("counters"));
        }
        if comment.is_some() && !kind.comment {
            return Err(lacks("comment"));
        }
        if rate.is_some() && !kind.rates {
            return Err(lacks("rate"));
        }
        if is_exception && !kind.shape.has_exceptions() {
            return refuse(format!("nomatch is not for {}", kind.shape.name()));
        }
        let room = kind.maxelem as usize;
        let keys =
            entry::parse(entry, &kind, room.min(entry::MEMBERS_MAX)).map_err(Failure::Syntax)?;
        let news = keys.iter().filter(|key| set.get(key).is_none()).count();
        if news < keys.len() && !may_exist {
            return refuse("Element cannot be added to the set: it's already added");
        }
        if set.len() + news > room {
            return refuse(format!(
                "Hash is full, cannot add more elements: create the set with maxelem over {room}"
            ));
        }
        let timeout = timeout.or(kind.timeout).filter(|seconds| *seconds != 0);
        let expires = timeout.map(|seconds| now + Nanos::from_secs(u64::from(seconds)));
        let counters = (packets.is_some() || bytes.is_some())
            .then(|| (packets.unwrap_or_default(), bytes.unwrap_or_default()));
        let pace = rate.and_then(PaceId::of).unwrap_or_default();
        let element = Element { expires, is_exception, pace };
        for key in keys {
            set.put(key, Addition { element, comment, counters });
        }
        Ok(())
    }

    fn del(&mut self, name: &str, entry: &str, may_exist: bool) -> Result<(), Failure> {
        let set = self.find(name)?;
        let kind = *set.kind();
        let most = entry::MEMBERS_MAX.min(kind.maxelem as usize);
        let keys = entry::parse(entry, &kind, most).map_err(Failure::Syntax)?;
        if !may_exist && !keys.iter().all(|key| set.get(key).is_some()) {
            return refuse("Element cannot be deleted from the set: it's not added");
        }
        for key in &keys {
            set.remove(key);
        }
        Ok(())
    }

    fn test(&mut self, name: &str, entry: &str) -> Result<String, Failure> {
        let set = self.find(name)?;
        let kind = *set.kind();
        let key = match entry::parse(entry, &kind, 1).map_err(Failure::Syntax)?[..] {
            [key] => key,
            _ => return Err(Failure::Syntax(format!("\"{entry}\" is more than one member"))),
        };
        match is_in(set, &key) {
            true => Ok(format!("{entry} is in set {name}.\n")),
            false => Err(Failure::No(format!("{entry} is NOT in set {name}."))),
        }
    }

    fn may_go(&self, name: &str, host: &dyn Host) -> Result<(), Failure> {
        self.get(name).ok_or_else(|| missing(name))?;
        match host.references(name) {
            0 => Ok(()),
            filters => refuse(format!(
                "Set cannot be destroyed: it is in use by {filters} filter(s); \
                 `narrows tc filter del` those with ipset({name} ...) first, or `narrows set flush {}`",
                shell(name)
            )),
        }
    }

    fn rename(&mut self, from: &str, to: &str, host: &dyn Host) -> Result<(), Failure> {
        if self.named.contains_key(to) {
            return refuse("Set cannot be renamed: a set with the new name already exists");
        }
        self.get(from).ok_or_else(|| missing(from))?;
        if host.references(from) > 0 {
            return refuse(
                "Set cannot be renamed: it is in use by a filter; use swap to change its contents",
            );
        }
        if let Some(named) = self.named.remove(from) {
            self.named.insert(to.to_owned(), named);
        }
        Ok(())
    }

    fn swap(&mut self, one: &str, other: &str) -> Result<(), Failure> {
        let (Some(a), Some(b)) = (self.get(one), self.get(other)) else {
            let name = if self.get(one).is_none() { one } else { other };
            return refuse(format!("Sets cannot be swapped: the set \"{name}\" does not exist"));
        };
        if !a.set.kind().fits(b.set.kind()) {
            return refuse("The sets cannot be swapped: their type does not match");
        }
        if one == other {
            return Ok(());
        }
        let (Some(mut a), Some(mut b)) = (self.named.remove(one), self.named.remove(other)) else {
            return Ok(());
        };
        std::mem::swap(&mut a.slot, &mut b.slot);
        self.named.insert(one.to_owned(), b);
        self.named.insert(other.to_owned(), a);
        Ok(())
    }

    fn list(
        &self,
        name: Option<&str>,
        listing: Listing,
        now: Nanos,
        host: &dyn Host,
    ) -> Result<String, Failure> {
        let mut text = String::new();
        if let Some(name) = name {
            let named = self.get(name).ok_or_else(|| missing(name))?;
            show(&mut text, name, named, listing, now, host);
            return Ok(text);
        }
        for (name, named) in self.iter() {
            if !text.is_empty() && !listing.as_save && !listing.names {
                text.push('\n');
            }
            show(&mut text, name, named, listing, now, host);
        }
        Ok(text)
    }
}

/// Whether `key` is in `set`: a single address if a prefix covers it, a prefix if it is a member
/// itself.
fn is_in(set: &Set, key: &Key) -> bool {
    let kind = set.kind();
    let is_address = match kind.shape {
        Shape::Ip { .. } | Shape::Mac => false,
        Shape::Net | Shape::NetPort => key.len() == kind.family.bits(),
    };
    if !is_address {
        return set.get(key).is_some_and(|element| !element.is_exception);
    }
    let address = match kind.family {
        Family::Inet => key.v4().into(),
        Family::Inet6 => key.v6().into(),
    };
    set.contains(&Match { address, port: key.port() })
}

fn show(
    text: &mut String,
    name: &str,
    named: &Named,
    listing: Listing,
    now: Nanos,
    host: &dyn Host,
) {
    let Named { set, .. } = named;
    let counted = |key: &Key| host.counted(named, key);
    match listing {
        Listing { names: true, .. } => {
            text.push_str(name);
            text.push('\n');
        }
        Listing { as_save: true, terse, .. } => {
            text.push_str(&text::create(name, set.kind()));
            if !terse {
                text::members(text, set, &format!("add {name} "), now, &counted);
            }
        }
        Listing { terse, .. } => {
            text.push_str(&text::describe(name, set, host.references(name)));
            if !terse {
                text.push_str("Members:\n");
                text::members(text, set, "", now, &counted);
            }
        }
    }
}
