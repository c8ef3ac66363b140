//! Ports in memory.

use crate::{Bench, DEVICES, queues};
use narrows_policy::{Policy, PortFacts};
use narrows_tc::{Host, Outcome, execute};

#[derive(Default)]
pub struct Paper {
    policy: Policy,
    queues: u16,
}

impl Host for Paper {
    fn devices(&self) -> Vec<String> {
        DEVICES.map(|(_, name)| name.to_owned()).to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let is_known = DEVICES.iter().any(|(_, name)| *name == dev);
        is_known.then_some(PortFacts { queues: Some(self.queues), ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

impl Bench for Paper {
    fn start_over(&mut self) -> Result<(), String> {
        *self = Self { policy: Policy::default(), queues: 1 };
        Ok(())
    }

    fn run(&mut self, line: &str) -> Option<Outcome> {
        if line.starts_with("$IP ") {
            return Some(Outcome::default());
        }
        if let Some(queues) = queues(line) {
            self.queues = queues;
            return Some(Outcome::default());
        }
        let words = line.strip_prefix("$TC ")?;
        let words =
            DEVICES.iter().fold(words.to_owned(), |line, (is, name)| line.replace(is, name));
        if words.contains('$') {
            return None;
        }
        Some(execute(&shlex::split(&words)?, self))
    }
}
