//! The cells.

use crate::cake;
use anyhow::{Result, ensure};

/// A kernel in common use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its short name.
    pub name: &'static str,
    /// The Debian suite that it comes from.
    pub suite: &'static str,
    /// The Debian suite of the xdp-tools that run on it.
    pub tools: &'static str,
}

/// The kernels, the newest last: those of two stable releases, and the newest packaged one. The
/// last has the xdp-tools of the coming release, since backports have none.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "6.1", suite: "bookworm", tools: "bookworm" },
    Kernel { name: "6.12", suite: "trixie", tools: "trixie" },
    Kernel { name: "7.x", suite: "trixie-backports", tools: "forky" },
];

/// A driver under both ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name, as `ethtool -i` says it.
    pub name: &'static str,
    /// The card that qemu emulates for it; none for one without hardware.
    pub card: Option<&'static str>,
}

/// The drivers.
pub const DRIVERS: &[Driver] = &[
    Driver { name: "igb", card: Some("igb") },
    Driver { name: "vmxnet3", card: Some("vmxnet3") },
    Driver { name: "e1000e", card: Some("e1000e") },
    Driver { name: "virtio_net", card: Some("virtio-net-pci") },
    Driver { name: "veth", card: None },
];

/// The task of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Its checks, with this driver under the ports.
    Checks(Driver),
    /// Linux's CAKE beside Narrows'.
    Cake,
}

impl Task {
    /// The name of the task, or of its driver.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checks(driver) => driver.name,
            Self::Cake => cake::NAME,
        }
    }

    /// The card that its ports have; none for ports without hardware.
    pub const fn card(self) -> Option<&'static str> {
        match self {
            Self::Checks(driver) => driver.card,
            Self::Cake => None,
        }
    }
}

/// The cells with the best coverage in little time: each kernel once; zero copy, generic XDP and a
/// device without hardware.
pub const SHORT: [&str; 3] = ["7.x-igb", "6.12-e1000e", "6.1-veth"];

/// One kernel with one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The kernel that the guest boots.
    pub kernel: Kernel,
    /// Its task.
    pub task: Task,
}

impl Cell {
    /// `KERNEL-DRIVER`, or `KERNEL-cake`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.kernel.name, self.task.name())
    }
}

/// All cells, the newest kernel first, because failures there concern most users. Only the newest
/// has everything for the comparison.
pub fn all() -> Vec<Cell> {
    let of = |&kernel: &'static Kernel| {
        DRIVERS.iter().map(move |&driver| Cell { kernel, task: Task::Checks(driver) })
    };
    let drivers = KERNELS.iter().rev().flat_map(of);
    let newest = KERNELS.last();
    drivers.chain(newest.map(|&kernel| Cell { kernel, task: Task::Cake })).collect()
}

/// The cells that `words` select: each word is a cell, a kernel, a driver or `cake`; all without
/// words.
pub fn select(words: &[String]) -> Result<Vec<Cell>> {
    let fits = |cell: &Cell, word: &str| {
        cell.name() == word || cell.kernel.name == word || cell.task.name() == word
    };
    for word in words {
        let known = all().iter().any(|cell| fits(cell, word));
        let names: Vec<String> = all().iter().map(Cell::name).collect();
        ensure!(
            known,
            "no cell is called {word}; a kernel, a driver, cake, or one of {}",
            names.join(" ")
        );
    }
    let chosen = |cell: &Cell| words.is_empty() || words.iter().any(|word| fits(cell, word));
    Ok(all().into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        select(&words).unwrap().iter().map(Cell::name).collect()
    }

    #[test]
    fn a_word_is_a_cell_a_kernel_a_driver_or_cake() {
        assert_eq!(names(&["6.1-veth"]), ["6.1-veth"]);
        assert_eq!(names(&["igb"]).len(), KERNELS.len());
        assert_eq!(names(&["igb"])[0], "7.x-igb", "the newest kernel is first");
        assert_eq!(names(&["6.12"]).len(), DRIVERS.len());
        assert_eq!(names(&["cake"]), ["7.x-cake"]);
        assert_eq!(names(&[]).len(), KERNELS.len() * DRIVERS.len() + 1);
        assert_eq!(names(&SHORT).len(), SHORT.len());
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = select(&["5.4".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("5.4") && error.contains("7.x-igb"), "{error}");
    }
}
