//! A host for tests: two ports, with queues and statistics as the test sets them.

use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_tc::{Host, Outcome, execute};

pub struct TwoPorts {
    pub policy: Policy,
    pub facts: PortFacts,
    pub stats: Vec<NodeStats>,
    /// If set, `apply` returns this instead of applying.
    pub refusal: Option<String>,
    /// Whether the kernel can be asked for addresses before translation.
    pub looks_up: bool,
}

impl TwoPorts {
    pub fn with_queues(queues: u16) -> Self {
        let facts = PortFacts { queues: Some(queues), ..PortFacts::ETHERNET };
        Self { policy: Policy::default(), facts, stats: Vec::new(), refusal: None, looks_up: false }
    }

    pub fn tc(&mut self, line: &str) -> Outcome {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        execute(&args, self)
    }

    /// Runs a line that must succeed, and returns what it printed.
    #[track_caller]
    pub fn ok(&mut self, line: &str) -> String {
        let outcome = self.tc(line);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "tc {line}");
        outcome.stdout
    }

    /// Runs a line that must fail and change nothing, and returns the complaint.
    #[track_caller]
    pub fn fails(&mut self, line: &str, code: i32) -> String {
        let before = self.policy.clone();
        let outcome = self.tc(line);
        assert_eq!(outcome.code, code, "tc {line}\n{}", outcome.stderr);
        assert_eq!(self.policy, before, "tc {line}");
        assert_eq!(outcome.stdout, "", "tc {line}");
        outcome.stderr
    }
}

impl Host for TwoPorts {
    fn devices(&self) -> Vec<String> {
        vec!["left".to_owned(), "right".to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.devices().contains(&dev.to_owned()).then_some(self.facts)
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        match &self.refusal {
            Some(why) => Err(why.clone()),
            None => {
                self.policy = policy;
                Ok(())
            }
        }
    }

    fn looks_up_translations(&self) -> bool {
        self.looks_up
    }

    fn stats(&self, _dev: &str) -> Vec<NodeStats> {
        self.stats.clone()
    }
}
