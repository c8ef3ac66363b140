//! A box of a fleet between a client and a server of its own, with an instance of Narrows.
//!
//! Its policy is in force from the first packet on, as on a box that starts, and a box without an
//! instance forwards nothing.

use crate::accounting::{self, Books};
use crate::bed::{self, SINK_MAC};
use crate::flood::{Flood, Pace, Running};
use crate::folder::Folder;
use crate::narrows::Instance;
use crate::{Testbed, frames};
use anyhow::{Context, Result};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Frames of the load, in bytes, and its flows.
const FRAME_BYTES: usize = 1_000;
const FLOWS: Range<u16> = 1_000..1_016;
/// How folders are named.
const FOLDER: &str = "nrw-site-";

/// The box.
#[derive(Debug)]
pub(crate) struct Site {
    program: PathBuf,
    folder: Folder,
    books: Books,
    /// What was missing when its books were last opened. Its instance may have begun amid traffic.
    missing: i64,
    instance: Option<Instance>,
    // Last, so that it is dropped after everything above.
    pub(crate) bed: Testbed,
}

impl Site {
    /// One with so many queues, in which `program` runs with `policy`, a line of `tc`.
    pub(crate) fn up(program: PathBuf, queues: u32, policy: &str) -> Result<Self> {
        let bed = Testbed::up(queues)?;
        let tag = bed.shaper().name().trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let folder = Folder::make(FOLDER, tag)?;
        fs::write(folder.path().join("policy.tc"), format!("{policy}\n"))?;
        let books = Books::open(&bed)?;
        let mut site = Self { program, folder, books, missing: 0, instance: None, bed };
        site.start()?;
        Ok(site)
    }

    /// Starts its instance.
    pub(crate) fn start(&mut self) -> Result<()> {
        let policy = self.folder.path().join("policy.tc");
        let policy = policy.to_str().context("a temporary directory that is no text")?;
        let words = ["--fail-closed", "--batch", policy];
        // What an instance counts begins with it.
        self.books = Books::open(&self.bed)?;
        self.missing = 0;
        self.instance = Some(Instance::start(&self.bed, &self.program, &words)?);
        Ok(())
    }

    /// Forgets what is missing until now, at rest.
    pub(crate) fn open_books(&mut self) -> Result<()> {
        self.missing += self.unaccounted()?;
        Ok(())
    }

    /// Its instance.
    pub(crate) fn instance(&mut self) -> Result<&mut Instance> {
        self.instance.as_mut().context("narrows does not run there")
    }

    /// Kills its instance.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.instance.take().context("it runs")?.kill().map(drop)
    }

    /// Packets towards the server that are missing since the books were opened, once nothing comes
    /// any more; negative if there are too many.
    pub(crate) fn unaccounted(&mut self) -> Result<i64> {
        let Some(instance) = &self.instance else { return Ok(0) };
        let devices = self.books.settle()?;
        let [forth, _] = accounting::directions(&devices, &instance.show()?)?;
        Ok(forth.unaccounted() - self.missing)
    }

    /// Sends through it, for at most `limit`.
    pub(crate) fn flood(&self, bits: f64, limit: Duration) -> Result<Running> {
        let ports: Vec<u16> = FLOWS.collect();
        let frames = frames::udp_flows(&ports, SINK_MAC, FRAME_BYTES)?;
        Flood { frames, pace: Pace::Bits(bits), limit, core: None }
            .start(self.bed.client(), bed::CLIENT)
    }
}
