//! What `init` says in the end: what it has written, and what belongs where.

use super::files::{AUTHORITIES, SERVER_CONF};
use super::{BOX, CLIENT_PORT, Plan, ROUTE_PORT};
use crate::name::Name;
use std::fmt;
use std::path::PathBuf;

/// What was written, and what to do with it.
#[derive(Debug)]
pub struct Report {
    plan: Plan,
    folder: PathBuf,
    public_keys: Vec<(Name, String)>,
}

impl Report {
    pub(super) fn new(plan: Plan, folder: PathBuf, public_keys: Vec<(Name, String)>) -> Self {
        Self { plan, folder, public_keys }
    }

    fn write_own_servers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        writeln!(
            f,
            "{folder} has a folder for each box, with keys that only it may have, and \
             {AUTHORITIES}, which belongs to no\nbox: keep it where you keep secrets. To add a \
             box later, run this again for all boxes, with --keep.\n"
        )?;
        writeln!(
            f,
            "Each box needs the packages narrows-fleet and nats-server, and lets the others reach \
             its TCP ports {CLIENT_PORT}\n(agents) and {ROUTE_PORT} (servers). Copy its folder to \
             its /etc, and start both:\n"
        )?;
        let at = &self.plan.at;
        if at.contains(BOX) {
            return writeln!(f, "The folders are where they belong: {at}.");
        }
        self.write_loop(
            f,
            &format!("{SERVER_CONF} narrows"),
            &[
                &format!("tar -C {at} --no-same-owner -x"),
                &format!("chown -R nats: {at}/narrows/fleet/engine"),
                &format!("chown -R narrows: {at}/narrows/fleet/agent"),
                "systemctl enable nats-server narrows-fleet",
                "systemctl restart nats-server narrows-fleet",
            ],
        )
    }

    /// Commands of a shell that send `what` of each box's folder to it, and run `there` on it.
    fn write_loop(&self, f: &mut fmt::Formatter<'_>, what: &str, there: &[&str]) -> fmt::Result {
        let boxes = self.plan.boxes.iter().map(|(name, host)| format!("{name}={host}"));
        let boxes = boxes.collect::<Vec<_>>().join(" ");
        let folder = self.folder.display();
        let there = there.join(" &&\n      ");
        writeln!(
            f,
            "  for box in {boxes}; do\n    tar -C {folder}/${{box%%=*}} -c {what} | \
             ssh root@${{box#*=}} '\n      {there}'\n  done"
        )
    }

    fn write_existing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        writeln!(
            f,
            "{folder} has a folder for each box, with a key that only it may have. Let the servers \
             know the boxes by their\npublic keys, with the permissions in {folder}/users.conf:\n"
        )?;
        for (name, key) in &self.public_keys {
            writeln!(f, "  {name:<12} {key}")?;
        }
        writeln!(
            f,
            "\nEach box needs the package narrows-fleet. Copy its folder to its /etc, and start \
             it:\n"
        )?;
        self.write_loop(
            f,
            "narrows",
            &[
                "tar -C /etc --no-same-owner -x",
                "chown -R narrows: /etc/narrows/fleet/agent",
                "systemctl enable narrows-fleet",
                "systemctl restart narrows-fleet",
            ],
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.plan.existing.is_empty() {
            self.write_own_servers(f)
        } else {
            self.write_existing(f)
        }
    }
}
