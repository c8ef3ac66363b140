//! The sets of an instance: commands, times, and the programs that look them up.

use super::Instance;
use crate::clock;
use crate::error::InstanceError;
use crate::front::{FrontError, Fronts, Terms, Uses, resolve};
use narrows_bpf::{SetTables, SetsError};
use narrows_classify::SetName;
use narrows_forwarding::PerPort;
use narrows_policy::{FrontTerm, Plan, Policy};
use narrows_sets::{Reply, Restore, Sets};

/// A text of so many bytes leaves memory behind that is worth giving back.
const TRIMMED_FROM: usize = 1 << 20;

impl Instance {
    /// Runs one command on its sets, the words behind `narrows set`. It is in force when this
    /// returns.
    pub(crate) fn run_set(&mut self, words: &[String]) -> Reply {
        self.expire_sets();
        let Self { sets, policy, tables, .. } = self;
        let host = Uses { policy, tables: tables.as_ref() };
        let reply = sets.run(words, clock::now(), &host);
        self.after(reply)
    }

    /// Does one line of `restore`. False if there is nothing more to do.
    pub(crate) fn restore_set(&mut self, restore: &mut Restore) -> bool {
        let Self { sets, policy, tables, .. } = self;
        let host = Uses { policy, tables: tables.as_ref() };
        restore.step(sets, clock::now(), &host)
    }

    /// Puts restored sets in force.
    pub(crate) fn restored_sets(&mut self, restore: &Restore) -> Reply {
        if restore.size() >= TRIMMED_FROM {
            narrows_cpu::trim_heap();
        }
        let reply = restore.end();
        self.after(reply)
    }

    fn after(&mut self, mut reply: Reply) -> Reply {
        if let Err(error) = self.follow_sets() {
            reply.stderr.push_str(&format!("narrows set: {error}; it is tried again\n"));
            reply.code = reply.code.max(1);
        }
        reply
    }

    /// Removes expired members.
    pub(crate) fn expire_sets(&mut self) {
        if self.sets.expire(clock::now())
            && let Err(error) = self.follow_sets()
        {
            self.events.warn(error.to_string());
        }
    }

    /// Starts with `sets`, from another process or a file.
    pub(crate) fn adopt_sets(&mut self, sets: Sets) -> Result<(), SetsError> {
        self.sets = sets;
        self.follow_sets()
    }

    /// All its sets, as commands that make them again.
    pub(crate) fn save_sets(&self) -> String {
        let host = Uses { policy: &self.policy, tables: self.tables.as_ref() };
        self.sets.save(clock::now(), &host)
    }

    /// Its sets.
    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }

    /// Applies the present sets to packets.
    fn follow_sets(&mut self) -> Result<(), SetsError> {
        self.member_rates.show(&self.sets);
        if self.sets.is_empty() && self.tables.is_none() {
            return Ok(());
        }
        let tables = match self.tables.take() {
            Some(tables) => tables,
            None => SetTables::new()?,
        };
        self.tables.insert(tables).follow(&mut self.sets)
    }

    /// Checks that sets exist and have rates where actions of `policy` ask for rates of members.
    pub(super) fn check_rates(&self, policy: &Policy) -> Result<(), InstanceError> {
        for name in policy.rate_sets().map(SetName::as_str) {
            let failed = match self.sets.get(name) {
                Some(named) if named.set.kind().rates => continue,
                Some(_) => FrontError::NoRates(name.to_owned()),
                None => FrontError::NoSet(name.to_owned()),
            };
            return Err(InstanceError::Rates(failed));
        }
        Ok(())
    }

    /// The part of `front` that runs at the port `name`.
    pub(super) fn resolve(&self, name: &str, front: &[FrontTerm]) -> Result<Terms, InstanceError> {
        let failed = |source| InstanceError::Front { port: name.to_owned(), source };
        resolve(front, &self.sets).map_err(failed)
    }

    /// The filters in front of `plans`.
    pub(super) fn fronts(&self, plans: &PerPort<Plan>) -> Result<Fronts<'_>, InstanceError> {
        let names = self.options.forwarding.names().iter();
        let terms = names.zip(plans).map(|(name, plan)| self.resolve(name, &plan.front));
        Ok(Fronts {
            terms: terms.collect::<Result<_, _>>()?,
            tables: self.tables.as_ref(),
            users: self.user_front.as_ref(),
            rates: &self.member_rates,
        })
    }
}

/// The sets that the commands in `text` make.
///
/// # Errors
/// The first that fails, with its line.
pub(crate) fn read_sets(text: String) -> Result<Sets, String> {
    let policy = Policy::default();
    let host = Uses { policy: &policy, tables: None };
    let mut sets = Sets::default();
    let mut restore = Restore::new(text, 1, false);
    while restore.step(&mut sets, clock::now(), &host) {}
    match restore.end() {
        Reply { code: 0, .. } => Ok(sets),
        Reply { stderr, .. } => Err(stderr.trim_end().to_owned()),
    }
}
