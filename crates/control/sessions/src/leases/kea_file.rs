//! Kea's lease file.
//!
//! *Idea.* Kea appends a line whenever a lease changes; the last line of an address counts. A
//! [`Log`] takes the bytes as the file grows, and [`Follower`] brings them: the file itself, and
//! those that Kea's cleanup (LFC) leaves beside it.
//!
//! *Source.* Kea Administrator Reference Manual, "Memfile" and "The LFC Process". The first line
//! names the columns. Commas in values are `&#x2c`. A valid lifetime of 0 is a lease that is gone;
//! state 0 is one in force, and so is 4, an address that its client registered.

use super::growing_file::{GrowingFile, read_to_end};
use super::news::{News, Recorded};
use super::{Field, Lease, Table, kea_socket, usable};
use crate::{hardware, prefix};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The longest line that is read; a user context of ours has less than a kilobyte.
const LINE_MAX: usize = 65_536;
/// The lifetime that means for ever.
const FOREVER: &str = "4294967295";
/// How often the files are read again if a cleanup comes in between.
const ATTEMPTS: usize = 5;

/// The lines of a lease file so far.
#[derive(Debug, Default)]
pub struct Log {
    columns: Vec<String>,
    /// A line without its end.
    partial: Vec<u8>,
    /// The rest of this line is not read: it is too long.
    skips: bool,
    leases: Recorded,
}

impl Log {
    /// The leases in force.
    pub fn table(&self) -> &Table {
        self.leases.table()
    }

    /// More bytes. A line counts when its end is there.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if std::mem::take(&mut self.skips) {
                continue;
            }
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(line);
            if whole.len() <= LINE_MAX {
                self.line(&String::from_utf8_lossy(&whole));
            }
        }
        if !self.skips {
            self.partial.extend_from_slice(bytes);
            if self.partial.len() > LINE_MAX {
                self.partial = Vec::new();
                self.skips = true;
            }
        }
    }

    /// Another file begins.
    fn next_file(&mut self) {
        self.columns.clear();
        self.partial.clear();
        self.skips = false;
    }

    fn line(&mut self, line: &str) {
        let line = line.trim_end_matches('\r');
        if line.starts_with("address,") {
            self.columns = line.split(',').map(str::to_owned).collect();
            return;
        }
        let row = Row { columns: &self.columns, values: line.split(',').collect() };
        let Some(address) = row.address() else { return };
        match row.lease(address) {
            Some(lease) => self.leases.insert(lease),
            None => self.leases.remove(address),
        }
    }
}

/// A line, by column.
struct Row<'a> {
    columns: &'a [String],
    values: Vec<&'a str>,
}

impl Row<'_> {
    fn value(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at).copied().filter(|value| !value.is_empty())
    }

    fn address(&self) -> Option<narrows_directory::Prefix> {
        let ip: std::net::IpAddr = self.value("address")?.parse().ok()?;
        // Prefixes are leased, too (IA_PD is type 2).
        let is_prefix = self.value("lease_type") == Some("2");
        let bits = self.value("prefix_len").filter(|_| is_prefix).map(str::parse);
        usable(match bits {
            Some(bits) => prefix::network(ip, bits.ok()?),
            None => Some(prefix::host(ip)),
        })
    }

    /// The lease, if it is in force.
    fn lease(&self, address: narrows_directory::Prefix) -> Option<Lease> {
        let lifetime = self.value("valid_lifetime")?;
        if lifetime == "0" || !matches!(self.value("state"), None | Some("0" | "4")) {
            return None;
        }
        let expires = self.value("expire")?.parse::<u64>().ok()?;
        let mut fields = BTreeMap::new();
        let mut insert = |field, value: Option<String>| {
            fields.extend(value.map(|value| (field, value)));
        };
        insert(Field::HwAddress, self.value("hwaddr").and_then(hardware::address));
        insert(Field::ClientId, self.value("client_id").map(unescaped));
        insert(Field::Duid, self.value("duid").map(unescaped));
        insert(Field::Hostname, self.value("hostname").map(unescaped));
        let context = self.value("user_context").map(unescaped).unwrap_or_default();
        let context = kea_socket::context(&context, &mut fields);
        let expires = (lifetime != FOREVER).then_some(expires);
        Some(Lease { address, expires, fields, context })
    }
}

/// `&#x2c` is a comma, and so on with two hexadecimal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split("&#x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                plain.push_str(&part[2..]);
            }
            _ => {
                plain.push_str("&#x");
                plain.push_str(part);
            }
        }
    }
    plain
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

    /// What has changed since the last time; all leases the first time, and when the files were
    /// read from their beginning.
    pub fn news(&mut self) -> News {
        self.log.leases.news()
    }

    /// Reads what is new. Says whether there was anything.
    ///
    /// # Errors
    /// If the file is not there, or cannot be read.
    pub fn poll(&mut self) -> io::Result<bool> {
        let metadata = std::fs::metadata(&self.path)?;
        if let Some(file) = self.file.as_mut().filter(|file| file.is_still(&metadata)) {
            return file.read_new(&metadata, |bytes| self.log.feed(bytes));
        }
        self.reload()?;
        Ok(true)
    }

    /// Reads all files, the oldest leases first.
    fn reload(&mut self) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let before = self.generation();
            let mut log = Log::default();
            // What a cleanup finished is instead of what it began with.
            let first = if self.beside("completed").exists() {
                vec![self.beside("completed")]
            } else {
                vec![self.beside("2"), self.beside("1")]
            };
            for path in first {
                match File::open(&path) {
                    Ok(mut file) => drop(read_to_end(&mut file, |bytes| log.feed(bytes))?),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                log.next_file();
            }
            let mut file = GrowingFile::open(&self.path)?;
            file.read_on(|bytes| log.feed(bytes))?;
            if before == self.generation() {
                self.log = log;
                self.file = Some(file);
                return Ok(());
            }
        }
        Err(io::Error::other("its cleanup did not end while it was read"))
    }

    /// Which files there are.
    fn generation(&self) -> Vec<Option<u64>> {
        let inode = |path: PathBuf| std::fs::metadata(path).as_ref().map(Metadata::ino).ok();
        let beside = ["completed", "2", "1"].map(|end| inode(self.beside(end)));
        beside.into_iter().chain([inode(self.path.clone())]).collect()
    }

    fn beside(&self, end: &str) -> PathBuf {
        beside(&self.path, end)
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(end);
    name.into()
}
