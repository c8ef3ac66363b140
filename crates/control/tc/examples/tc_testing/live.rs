//! Running instances.
//!
//! The ports are pairs of veths with the names that the cases want, so what creates and deletes
//! devices in a case does nothing. The device of netdevsim has the number of queues that the case
//! asks for: for each number there is a [`World`], which starts when a case wants it first.

use crate::world::World;
use crate::{Bench, DEVICES, queues};
use narrows_tc::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// More queues than these are not simulated.
const QUEUES_MAX: u16 = 16;

pub struct Live {
    narrows: PathBuf,
    /// By the number of queues.
    worlds: BTreeMap<u16, World>,
    /// Where commands run.
    queues: u16,
}

impl Live {
    /// Starts instances of the program `narrows`.
    pub fn new(narrows: &str) -> Result<Self, String> {
        let narrows = fs::canonicalize(narrows).map_err(|error| format!("{narrows}: {error}"))?;
        let worlds = BTreeMap::from([(1, World::new(&narrows, 1)?)]);
        Ok(Self { narrows, worlds, queues: 1 })
    }

    fn enter(&mut self, queues: u16) -> Result<(), String> {
        if !self.worlds.contains_key(&queues) {
            self.worlds.insert(queues, World::new(&self.narrows, queues)?);
        }
        self.queues = queues;
        Ok(())
    }
}

impl Bench for Live {
    fn start_over(&mut self) -> Result<(), String> {
        self.queues = 1;
        self.worlds.values_mut().try_for_each(World::start_over)
    }

    fn run(&mut self, line: &str) -> Option<Outcome> {
        let wrong = |stderr| Outcome { code: Outcome::WRONG, stderr, ..Outcome::default() };
        if line.is_empty()
            || line.starts_with("$IP link add")
            || line.starts_with("$IP link del")
            || line.contains("/netdevsim/del_device")
        {
            return Some(Outcome::default());
        }
        if let Some(queues) = queues(line) {
            if queues > QUEUES_MAX {
                return None;
            }
            let entered = self.enter(queues);
            return Some(entered.map_or_else(wrong, |()| Outcome::default()));
        }
        // Linux's own programs beside the cases are not there, nor hardware that shapes.
        let absent = ["./tdc_", "./scripts/", "python", "$ETHTOOL"];
        if absent.iter().any(|program| line.contains(program)) {
            return None;
        }
        let mut line =
            DEVICES.iter().fold(line.to_owned(), |line, (is, name)| line.replace(is, name));
        let is_own = line.starts_with("$TC ");
        for (name, value) in [
            ("$TC", "tc"),
            ("$IP", "ip"),
            ("$BATCH_FILE", "./batch.txt"),
            ("$BATCH_DIR", "tmp"),
            ("$EBPFDIR", "."),
        ] {
            line = line.replace(name, value);
        }
        if !is_own {
            line = format!("timeout 30 bash -c {}", shlex::try_quote(&line).ok()?);
        }
        Some(self.worlds.get_mut(&self.queues)?.run(&line).unwrap_or_else(wrong))
    }
}
