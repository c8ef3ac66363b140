//! The lease file of ISC's dhcpd, for IPv4 and IPv6.
//!
//! *Idea.* The server appends a declaration whenever a lease changes; the last one of an address
//! counts. Now and then it writes a whole new file and renames it. A [`Log`] takes the bytes as the
//! file grows, and [`Follower`] brings them, from the beginning where it is another file.
//!
//! *Source.* dhcpd.leases(5), and dhcp-eval(5) for `set`. Only a lease in the binding state
//! `active` is in force. Times are UTC, `epoch` and seconds, or `never`. A string has octal
//! escapes; data without any letters may be hexadecimal, with colons between. The string of an
//! `ia-na` or `ia-pd` is the IAID, four bytes, and the DUID of the client.
//!
//! *Principles.* A declaration counts when its end is there. One that has none, because the server
//! was interrupted, ends where the next one of a lease begins. What is not known is passed over.
//!
//! *Non-goals.* Failover states, hosts and classes that are in the file, too.

use super::growing_file::GrowingFile;
use super::isc_text::{Statement, Word, date, statements};
use super::news::{News, Recorded};
use super::{Field, Lease, Table, usable};
use crate::radius::attribute;
use crate::{hardware, prefix};
use narrows_directory::Prefix;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The longest declaration that is read; one of a lease has less than a kilobyte.
const DECLARATION_MAX: usize = 65_536;
/// How declarations begin that make a lease. All have this length.
const BEGINS: [&[u8]; 4] = [b"lease ", b"ia-na ", b"ia-ta ", b"ia-pd "];
const BEGIN_LENGTH: usize = 6;
/// The bytes of an IAID.
const IAID: usize = 4;

/// What a file says so far.
#[derive(Debug, Default)]
pub struct Log {
    /// A declaration without its end.
    pending: Vec<u8>,
    /// Where its last line begins.
    line: usize,
    /// How many braces are open.
    depth: usize,
    /// Whether the next byte is in a string, behind a backslash in it, or in a comment.
    is_string: bool,
    is_escaped: bool,
    is_comment: bool,
    /// A part of the declaration was dropped: it is too long.
    is_cut: bool,
    leases: Recorded,
}

impl Log {
    /// The leases in force.
    pub fn table(&self) -> &Table {
        self.leases.table()
    }

    /// More bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take(*byte));
    }

    fn take(&mut self, byte: u8) {
        if byte == b'\n' {
            // The server writes a line end in a string as an escape, so this one is damage.
            (self.is_comment, self.is_string, self.is_escaped) = (false, false, false);
            self.push(byte);
            self.line = self.pending.len();
            return;
        }
        if self.is_comment {
            return;
        }
        if self.is_string {
            self.is_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return self.push(byte);
        }
        match byte {
            b'#' => self.is_comment = true,
            b'"' => {
                self.is_string = true;
                self.push(byte);
            }
            b'{' => {
                self.depth += 1;
                self.push(byte);
            }
            b'}' => {
                self.push(byte);
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.finish();
                }
            }
            b';' if self.depth == 0 => self.forget(),
            _ => {
                self.push(byte);
                self.look_for_begin();
            }
        }
    }

    /// A lease that begins within another declaration: that one has no end.
    fn look_for_begin(&mut self) {
        let line = &self.pending[self.line..];
        if self.depth > 0 && line.len() == BEGIN_LENGTH && BEGINS.contains(&line) {
            self.pending.drain(..self.line);
            (self.line, self.depth, self.is_cut) = (0, 0, false);
        }
    }

    fn push(&mut self, byte: u8) {
        if self.pending.len() >= DECLARATION_MAX {
            self.is_cut = true;
            self.pending.clear();
            self.line = 0;
        }
        self.pending.push(byte);
    }

    fn forget(&mut self) {
        self.pending.clear();
        (self.line, self.is_cut) = (0, false);
    }

    fn finish(&mut self) {
        if !self.is_cut {
            let text = std::mem::take(&mut self.pending);
            for declaration in statements(&text) {
                self.declare(&declaration);
            }
        }
        self.forget();
    }

    fn declare(&mut self, declaration: &Statement) {
        let Some(body) = &declaration.block else { return };
        let [kind, name] = &declaration.words[..] else { return };
        match kind.text() {
            "lease" => {
                let address = name.text().parse().ok().map(prefix::host);
                self.lease(usable(address), body, |fields| v4(body, fields));
            }
            "ia-na" | "ia-ta" | "ia-pd" => {
                let duid = name.bytes().get(IAID..).map(colons);
                for inner in body {
                    let Some(body) = &inner.block else { continue };
                    let address = match &inner.words[..] {
                        [kind, at] if kind.text() == "iaaddr" => {
                            at.text().parse().ok().map(prefix::host)
                        }
                        [kind, at] if kind.text() == "iaprefix" => prefix::parse(at.text()),
                        _ => None,
                    };
                    self.lease(usable(address), body, |fields| {
                        fields.extend(duid.clone().map(|duid| (Field::Duid, duid)));
                    });
                }
            }
            _ => {}
        }
    }

    fn lease(
        &mut self,
        address: Option<Prefix>,
        body: &[Statement],
        add: impl FnOnce(&mut BTreeMap<Field, String>),
    ) {
        let Some(address) = address else { return };
        if !is_active(body) {
            self.leases.remove(address);
            return;
        }
        let Some(expires) = body.iter().find_map(end) else {
            // Without an end it cannot be said whether it is over.
            self.leases.remove(address);
            return;
        };
        let mut fields = BTreeMap::new();
        add(&mut fields);
        relayed(body, &mut fields);
        let context = body.iter().filter_map(variable).collect();
        self.leases.insert(Lease { address, expires, fields, context });
    }
}

/// Whether a lease is in force. Servers before 3.0 wrote no states, only what it was not.
fn is_active(body: &[Statement]) -> bool {
    let state = body.iter().find_map(|statement| match &statement.words[..] {
        [binding, state, name] if binding.text() == "binding" && state.text() == "state" => {
            Some(name.text())
        }
        _ => None,
    });
    let is_gone = |statement: &Statement| matches!(&statement.words[..], [word] if ["abandoned", "deleted"].contains(&word.text()));
    state.is_none_or(|state| state == "active") && !body.iter().any(is_gone)
}

/// When a lease ends: none if this is another statement, and none within for never.
fn end(statement: &Statement) -> Option<Option<u64>> {
    match &statement.words[..] {
        [ends, rest @ ..] if ends.text() == "ends" => {
            let rest: Vec<&str> = rest.iter().map(Word::text).collect();
            match rest[..] {
                ["never"] => Some(None),
                ["epoch", seconds] => seconds.parse().ok().map(Some),
                [_, day, time] => date(day, time).map(Some),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What only a lease of DHCPv4 has.
fn v4(body: &[Statement], fields: &mut BTreeMap<Field, String>) {
    for statement in body {
        let found = match &statement.words[..] {
            [hardware, _, address] if hardware.text() == "hardware" => {
                hardware::address(address.text()).map(|it| (Field::HwAddress, it))
            }
            [uid, value] if uid.text() == "uid" => {
                data(value).map(|it| (Field::ClientId, colons(&it)))
            }
            [word, name] if word.text() == "client-hostname" => {
                attribute::text(name.bytes()).map(|it| (Field::Hostname, it))
            }
            _ => None,
        };
        fields.extend(found);
    }
}

/// What a relay said of the line.
fn relayed(body: &[Statement], fields: &mut BTreeMap<Field, String>) {
    for statement in body {
        let [option, name, value] = &statement.words[..] else { continue };
        let field = match name.text() {
            _ if option.text() != "option" => continue,
            "agent.circuit-id" => Field::CircuitId,
            "agent.remote-id" => Field::RemoteId,
            "agent.subscriber-id" => Field::SubscriberId,
            _ => continue,
        };
        fields.extend(data(value).and_then(|it| attribute::text(&it)).map(|text| (field, text)));
    }
}

/// A variable that the server's configuration set in the lease.
fn variable(statement: &Statement) -> Option<(String, String)> {
    match &statement.words[..] {
        [set, name, is, value] if set.text() == "set" && is.text() == "=" => {
            Some((name.text().to_owned(), attribute::text(value.bytes())?))
        }
        _ => None,
    }
}

/// The bytes of a string, or of hexadecimal data.
fn data(word: &Word) -> Option<Vec<u8>> {
    match word {
        Word::String(bytes) => Some(bytes.clone()),
        Word::Bare(text) => {
            let byte = |digits: &str| match digits.len() {
                1 | 2 => u8::from_str_radix(digits, 16).ok(),
                _ => None,
            };
            text.split(':').map(byte).collect()
        }
    }
}

/// As Kea writes identifiers: `01:00:0c`.
fn colons(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// A lease file that is read as it grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    log: Log,
    file: Option<GrowingFile>,
}

impl Follower {
    /// Of the file at `path`. Nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, log: Log::default(), file: None }
    }

    /// The leases in force.
    pub fn table(&self) -> &Table {
        self.log.table()
    }

    /// What has changed since the last time; all leases the first time, and when the file was read
    /// from its beginning.
    pub fn news(&mut self) -> News {
        self.log.leases.news()
    }

    /// Reads what is new. Says whether there was anything.
    ///
    /// # Errors
    /// If the file is not there, or cannot be read.
    pub fn poll(&mut self) -> io::Result<bool> {
        let metadata = std::fs::metadata(&self.path)?;
        let (file, is_other) = match &mut self.file {
            Some(file) if file.is_still(&metadata) => (file, false),
            file => {
                let file = file.insert(GrowingFile::open(&self.path)?);
                self.log = Log::default();
                (file, true)
            }
        };
        let has_read = file.read_new(&metadata, |bytes| self.log.feed(bytes))?;
        Ok(has_read || is_other)
    }
}
