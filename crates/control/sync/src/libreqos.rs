//! The files of LibreQoS: `ShapedDevices.csv` and `network.json`.

use crate::source::{Gathered, Source};
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 256 << 20;

/// The two files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libreqos {
    /// `ShapedDevices.csv`.
    pub devices: PathBuf,
    /// `network.json`; none for a network without nodes.
    pub network: Option<PathBuf>,
}

impl Source for Libreqos {
    fn name(&self) -> &'static str {
        "libreqos"
    }

    fn read(&mut self) -> anyhow::Result<Gathered> {
        let devices = read(&self.devices)?;
        let network = self.network.as_deref().map(read).transpose()?;
        let (directory, summary, report) =
            narrows_import::libreqos::read(&devices, network.as_deref())?;
        Ok(Gathered { directory, summary, report })
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_MAX {
            true => Err(io::Error::other(format!("it has more than {} MiB", FILE_MAX >> 20))),
            false => Ok(bytes),
        }
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}
