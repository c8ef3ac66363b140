//! The cells.

use crate::architecture::Architecture;
use crate::cake;
use anyhow::{Result, ensure};

/// A kernel in common use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its short name.
    pub name: &'static str,
    /// The Debian suite that it comes from.
    pub suite: &'static str,
    /// The processor that it is built for.
    pub architecture: Architecture,
    /// The Debian suite of the xdp-tools that run on it; none where no check needs them.
    pub tools: Option<&'static str>,
}

const AMD64: Architecture = Architecture::Amd64;

/// The kernels, the newest last: those of two stable releases, and the newest packaged one. The
/// last has the xdp-tools of the coming release, since backports have none.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "6.1", suite: "bookworm", architecture: AMD64, tools: Some("bookworm") },
    Kernel { name: "6.12", suite: "trixie", architecture: AMD64, tools: Some("trixie") },
    Kernel { name: "7.x", suite: "trixie-backports", architecture: AMD64, tools: Some("forky") },
];

/// The kernel of ARM boxes: that of the stable release.
const ARM64: Kernel =
    Kernel { name: "6.12-arm64", suite: "trixie", architecture: Architecture::Arm64, tools: None };

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
    VIRTIO,
    Driver { name: "veth", card: None },
];
const VIRTIO: Driver = Driver { name: "virtio_net", card: Some("virtio-net-pci") };

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
/// has everything for the comparison. The one for ARM is the last: it needs other programs.
pub fn all() -> Vec<Cell> {
    let of = |&kernel: &'static Kernel| {
        DRIVERS.iter().map(move |&driver| Cell { kernel, task: Task::Checks(driver) })
    };
    let drivers = KERNELS.iter().rev().flat_map(of);
    let newest = KERNELS.last();
    let cake = newest.map(|&kernel| Cell { kernel, task: Task::Cake });
    drivers.chain(cake).chain([Cell { kernel: ARM64, task: Task::Checks(VIRTIO) }]).collect()
}

/// The cells that `words` select: each word is a cell, a kernel, a driver or `cake`; all without
/// words. One of another processor has its own programs, so only its name and its kernel's do.
pub fn select(words: &[String]) -> Result<Vec<Cell>> {
    let is_usual = |cell: &Cell| cell.kernel.architecture == Architecture::Amd64;
    let fits = |cell: &Cell, word: &str| {
        let is_task = is_usual(cell) && cell.task.name() == word;
        cell.name() == word || cell.kernel.name == word || is_task
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
    let chosen = |cell: &Cell| match words {
        [] => is_usual(cell),
        words => words.iter().any(|word| fits(cell, word)),
    };
    let cells: Vec<Cell> = all().into_iter().filter(chosen).collect();
    let is_alike = |two: &[Cell]| two[0].kernel.architecture == two[1].kernel.architecture;
    ensure!(
        cells.windows(2).all(is_alike),
        "these cells have different processors, and so programs: run them one after the other"
    );
    Ok(cells)
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
    fn a_cell_of_another_processor_is_chosen_by_its_name_or_kernel_and_alone() {
        assert_eq!(names(&["6.12-arm64-virtio_net"]), ["6.12-arm64-virtio_net"]);
        assert_eq!(names(&["6.12-arm64"]), ["6.12-arm64-virtio_net"]);
        assert!(!names(&["virtio_net"]).contains(&"6.12-arm64-virtio_net".to_owned()));
        let both = ["6.12-arm64".to_owned(), "6.12-igb".to_owned()];
        let error = select(&both).unwrap_err().to_string();
        assert!(error.contains("one after the other"), "{error}");
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = select(&["5.4".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("5.4") && error.contains("7.x-igb"), "{error}");
    }
}
