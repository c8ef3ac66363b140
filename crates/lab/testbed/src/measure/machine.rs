//! A description of the machine on which a measurement was taken.

use crate::cpu;
use serde::Serialize;
use std::fmt;
use std::fs;

/// A machine, as its kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// The processor's name and the number of cores in use.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let name = narrows_cpu::model().unwrap_or_else(|| "unknown".to_owned());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            machine: format!("{name}, {} cores", cpu::cores()),
            kernel: release.trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Linux {}", self.machine, self.kernel)
    }
}
