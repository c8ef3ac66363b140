//! `narrows-fleet init`: what each box of a fleet needs, as files.
//!
//! *Idea.* One NATS server on each box, and a route from each to each, so that no box is the
//! centre. A box's agent talks to its own server, and to another one while that is gone. For each
//! box there is a folder that has what belongs below its `/etc`.
//!
//! *Principles.* A box may speak in its own name only: each has a key, and each server knows which
//! subjects belong to it. Two authorities, one that attests servers and one that attests agents,
//! so that who has an agent's key cannot pose as a server. The authorities' keys stay in a folder
//! of their own, which no box needs. Keys that are there are kept if that is asked for, and never
//! overwritten otherwise.
//!
//! *Non-goals.* Copying to other machines; revocation, for which a fleet gets new authorities: run
//! it again in another folder. A server speaks for all boxes to other servers: who has root on a
//! box can forge what it passes on. Against that, use servers of which no box is one
//! (`--existing`).

mod authority;
mod files;
mod host;
mod report;
mod server;

use crate::config::{CONFIG, MEMBERS_MAX};
use crate::name::Name;
use crate::subjects::Subjects;
use authority::{Authority, Role};
use files::{Files, Secrecy};
use nkeys::KeyPair;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

pub use host::{Host, HostError};
pub use report::Report;

/// Where clients reach a server, and other servers.
pub const CLIENT_PORT: u16 = 4222;
/// See [`CLIENT_PORT`].
pub const ROUTE_PORT: u16 = 6222;
/// Where a box's folder belongs, and what stands for its name in a path.
pub const AT: &str = "/etc";
const BOX: &str = "{box}";

/// What to write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The fleet's name.
    pub fleet: Name,
    /// Its boxes.
    pub boxes: Vec<(Name, Host)>,
    /// The servers of a cluster that exists, instead of one on each box.
    pub existing: Vec<String>,
    /// Where the folder of a box will be on it, with `{box}` for its name.
    pub at: String,
    /// Whether authorities and keys that are in the folder are used.
    pub keep: bool,
}

/// Why nothing was written, or not all.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// There are too few boxes, too many, or one twice.
    #[error("{0}")]
    Boxes(String),
    /// The path would break the server's configuration.
    #[error(
        "{0:?} cannot stand in the configuration of a server: give an absolute path without quotes"
    )]
    At(String),
    /// The folder has something in it.
    #[error(
        "{} is not empty: give another folder, or --keep to use the keys that are there and \
         write everything else anew", .0.display()
    )]
    NotEmpty(PathBuf),
    /// A key that is kept is none.
    #[error("{} has no key: {why}; remove it, and a new one is made", path.display())]
    Key {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A key or a certificate cannot be made.
    #[error("no certificate can be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Plan {
    /// Writes everything to `folder`, and says what belongs where.
    ///
    /// # Errors
    /// If the plan cannot be, or if something cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Report, InitError> {
        self.check()?;
        let files = Files::begin(folder, self.keep)?;
        if self.existing.is_empty() {
            self.write_all(&files)?
        } else {
            self.write_agents(&files)?
        }
        Ok(Report::new(self.clone(), folder.to_owned(), files.public_keys()))
    }

    fn check(&self) -> Result<(), InitError> {
        let count = self.boxes.len();
        if !(2..=MEMBERS_MAX).contains(&count) {
            let why = format!("a fleet has 2 to {MEMBERS_MAX} boxes, and here are {count}");
            return Err(InitError::Boxes(why));
        }
        let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        for (name, host) in &self.boxes {
            if !names.insert(name) {
                return Err(InitError::Boxes(format!("the box {name} is there twice")));
            }
            if name.as_str() == files::AUTHORITIES {
                return Err(InitError::Boxes(format!("no box can be called {name}")));
            }
            if !hosts.insert(host) {
                return Err(InitError::Boxes(format!("two boxes are at {host}")));
            }
        }
        let is_bad = |letter: char| letter.is_control() || matches!(letter, '"' | '\\' | '$');
        if !self.at.starts_with('/') || self.at.contains(is_bad) {
            return Err(InitError::At(self.at.clone()));
        }
        Ok(())
    }

    /// Servers, agents, and what they need to know each other.
    fn write_all(&self, files: &Files) -> Result<(), InitError> {
        let servers = Authority::of(Role::Server, &self.fleet, files)?;
        let agents = Authority::of(Role::Agent, &self.fleet, files)?;
        let users: Vec<(Subjects, String)> = self.users(files)?;
        for (name, host) in &self.boxes {
            let engine = PathBuf::from(name.as_str()).join(files::ENGINE);
            files.put(&engine.join("authority.pem"), servers.pem(), Secrecy::Public)?;
            files.put(&engine.join("agents.pem"), agents.pem(), Secrecy::Public)?;
            servers.attest(name, Some(host), &engine, files)?;
            let agent = PathBuf::from(name.as_str()).join(files::AGENT);
            files.put(&agent.join("authority.pem"), servers.pem(), Secrecy::Public)?;
            agents.attest(name, None, &agent, files)?;
            let conf = server::configuration(self, name, host, &users);
            let path = Path::new(name.as_str()).join(files::SERVER_CONF);
            files.put(&path, &conf, Secrecy::Public)?;
            self.write_agent(name, files)?;
        }
        Ok(())
    }

    /// Only agents.
    fn write_agents(&self, files: &Files) -> Result<(), InitError> {
        let users = self.users(files)?;
        files.put(Path::new("users.conf"), &server::users(&users), Secrecy::Public)?;
        self.boxes.iter().try_for_each(|(name, _)| self.write_agent(name, files))
    }

    /// The subjects of each box, and its public key.
    fn users(&self, files: &Files) -> Result<Vec<(Subjects, String)>, InitError> {
        let user = |(name, _): &(Name, Host)| {
            let path = PathBuf::from(name.as_str()).join(files::AGENT).join("agent.nkey");
            let pair = match files.kept(&path)? {
                Some(seed) => KeyPair::from_seed(seed.trim())
                    .map_err(|error| files.no_key(&path, error.to_string()))?,
                None => KeyPair::new_user(),
            };
            let seed = pair.seed().map_err(|error| files.no_key(&path, error.to_string()))?;
            files.put(&path, &format!("{seed}\n"), Secrecy::Secret)?;
            files.note_public_key(name, pair.public_key());
            Ok((Subjects::new(self.fleet.clone(), name.clone()), pair.public_key()))
        };
        self.boxes.iter().map(user).collect()
    }

    fn write_agent(&self, me: &Name, files: &Files) -> Result<(), InitError> {
        let mut text = format!(
            "# A box of the fleet {0}, for narrows-fleet. Every box has the same members.\n\
             fleet = \"{0}\"\nme = \"{me}\"\n\
             # Ports of the instance, where several run:\n# ports = [\"eth1\", \"eth2\"]\n\n",
            self.fleet
        );
        for (name, _) in &self.boxes {
            let _ = writeln!(text, "[[member]]\nname = \"{name}\"\n");
        }
        let servers: Vec<String> = if self.existing.is_empty() {
            self.servers_for(me)
        } else {
            self.existing.iter().map(|url| format!("{url:?}")).collect()
        };
        let _ = writeln!(text, "[engine]\nservers = [{}]", servers.join(", "));
        text += "nkey = \"fleet/agent/agent.nkey\"\n";
        if self.existing.is_empty() {
            text += "authority = \"fleet/agent/authority.pem\"\n\
                     certificate = \"fleet/agent/agent.pem\"\nkey = \"fleet/agent/agent.key\"\n";
        }
        let name = Path::new(CONFIG).file_name().unwrap_or_default();
        let path = Path::new(me.as_str()).join("narrows").join(name);
        files.put(&path, &text, Secrecy::Public)
    }

    /// The addresses of the servers, quoted: the box's own first, then the others from there on.
    fn servers_for(&self, me: &Name) -> Vec<String> {
        let own = self.boxes.iter().position(|(name, _)| name == me).unwrap_or_default();
        let (before, from) = self.boxes.split_at(own);
        let all = from.iter().chain(before);
        all.take(SERVERS_EACH)
            .map(|(_, host)| format!("\"tls://{}:{CLIENT_PORT}\"", host.in_url()))
            .collect()
    }

    /// Where `path` of a box's folder will be on it.
    fn on_box(&self, name: &Name, path: &str) -> String {
        format!("{}/{path}", self.at.replace(BOX, name.as_str()))
    }
}

/// So many servers an agent knows: its own, and others while that one is gone.
const SERVERS_EACH: usize = 5;
