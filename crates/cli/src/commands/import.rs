//! `narrows import`.

use crate::output;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use narrows_import::libreqos::{self, Options};
use narrows_import::tc::Printed;
use narrows_import::{Imported, Ports, sqm};
use narrows_tc::{OfflineHost, load, number, replace};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Turn another shaper's configuration into a policy.
///
/// Prints tc commands, with a comment for each setting that has no equivalent, and a report of
/// these on standard error. It checks the policy before it prints it, and changes nothing that
/// runs. The exit status is 0 if the policy is all of the configuration, 3 if something was left
/// out or changed, and 1 if nothing is printed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows import libreqos /opt/libreqos/src --ports eth1,eth2 --down 10gbit > provider.tc
  narrows import sqm /etc/config/sqm --ports eth1,eth2 > home.tc
  narrows import tc --rename eth0=eth2 > host.tc
  narrows run --ports eth1,eth2 --batch home.tc")]
pub struct Import {
    #[command(subcommand)]
    from: From,
}

/// The exit status if something was left out or changed.
const INCOMPLETE: u8 = 3;

#[derive(Subcommand)]
enum From {
    Libreqos(Libreqos),
    Sqm(Sqm),
    Tc(FromTc),
}

/// LibreQoS: ShapedDevices.csv and network.json in a directory.
#[derive(Args)]
struct Libreqos {
    /// The directory with the two files; network.json may be missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The port towards the Internet and the one towards the subscribers.
    #[arg(long, value_name = "A,B", value_parser = super::joined::parse_ports)]
    ports: [String; 2],

    /// The capacity of the uplink, downstream. Default: the sum of the top nodes.
    #[arg(long, value_name = "RATE", value_parser = kbit)]
    down: Option<u64>,

    /// The capacity of the uplink, upstream. Default: the sum of the top nodes.
    #[arg(long, value_name = "RATE", value_parser = kbit)]
    up: Option<u64>,

    /// Also write the names of nodes and circuits to this file, as `tc -nm` and the views of
    /// Narrows read them: `1:10 NAME`, usually in /etc/iproute2/tc_cls. It must not exist.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// Keep the numbers of classes in this file from one import to the next. Without it, a class
    /// changes its number only if a new circuit and it have the same hash.
    #[arg(long, value_name = "FILE")]
    numbers: Option<PathBuf>,
}

/// OpenWrt's sqm-scripts: /etc/config/sqm.
#[derive(Args)]
struct Sqm {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The port towards the Internet and the one towards the home.
    #[arg(long, value_name = "A,B", value_parser = super::joined::parse_ports)]
    ports: [String; 2],

    /// The queue of this interface, if several are enabled, or none is.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

/// The qdiscs, classes and filters of this host, or the output of `tc -j`.
#[derive(Args)]
struct FromTc {
    /// Files with the output of `tc -d -j qdisc show`, `tc -d -j class show dev NAME` (JSON or
    /// text, as the version of tc prints it) and `tc -j filter show dev NAME`. Default: query this
    /// host.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Only this device; also the device of classes and filters in files.
    #[arg(long, value_name = "NAME")]
    dev: Option<String>,

    /// Write the configuration of one device for another. Can be repeated.
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    rename: Vec<(String, String)>,
}

/// A rate, in kbit/s.
fn kbit(text: &str) -> Result<u64, String> {
    let rate = number::rate(text).ok_or(number::RATE_HINT)?;
    match rate.bits_per_sec() / 1000 {
        0 => Err("less than 1kbit".to_owned()),
        kbit => Ok(kbit),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("write OLD=NEW, as eth0=eth2")?;
    Ok((old.to_owned(), new.to_owned()))
}

impl Import {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (names, numbers) = match &self.from {
            From::Libreqos(from) => (from.names.clone(), from.numbers.clone()),
            From::Sqm(_) | From::Tc(_) => (None, None),
        };
        let imported = match self.from {
            From::Libreqos(from) => from.import()?,
            From::Sqm(from) => from.import()?,
            From::Tc(from) => from.import()?,
        };
        if let Err(complaints) = load(&imported.policy, "imported", &OfflineHost::default()) {
            bail!("the imported policy is not sound, so it is not printed:\n{}", complaints.trim());
        }
        if let Some(file) = names {
            write_new(&file, &imported.names)?;
        }
        if let Some(file) = numbers {
            replace(&file, &imported.numbers)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        output::data(&imported.policy);
        output::report(imported.report());
        Ok(if imported.faults.is_empty() { ExitCode::SUCCESS } else { INCOMPLETE.into() })
    }
}

fn ports([internet, subscribers]: [String; 2]) -> Ports {
    Ports { internet, subscribers }
}

impl Libreqos {
    fn import(self) -> anyhow::Result<Imported> {
        let devices = read(&self.directory.join("ShapedDevices.csv"))?;
        let network = self.directory.join("network.json");
        let network = if network.exists() { Some(read(&network)?) } else { None };
        let numbers = match self.numbers.as_ref().filter(|file| file.exists()) {
            Some(file) => String::from_utf8_lossy(&read(file)?).into_owned(),
            None => String::new(),
        };
        let uplink_kbit = [self.down, self.up];
        let options = Options { ports: ports(self.ports), uplink_kbit, numbers };
        Ok(libreqos::import(&devices, network.as_deref(), &options)?)
    }
}

impl Sqm {
    fn import(self) -> anyhow::Result<Imported> {
        let text = read(&self.file)?;
        let text = String::from_utf8_lossy(&text);
        Ok(sqm::import(&text, self.interface.as_deref(), &ports(self.ports))?)
    }
}

impl FromTc {
    fn import(self) -> anyhow::Result<Imported> {
        let mut printed = Printed::default();
        if self.files.is_empty() {
            self.ask(&mut printed)?;
        }
        for file in &self.files {
            let json = read(file)?;
            let name = || file.display().to_string();
            printed.add(&json, self.dev.as_deref(), None).with_context(name)?;
        }
        if let Some(dev) = &self.dev {
            printed.keep(dev);
        }
        let renamed: HashMap<String, String> = self.rename.into_iter().collect();
        Ok(printed.import(&renamed)?)
    }

    /// Queries the running kernel.
    fn ask(&self, printed: &mut Printed) -> anyhow::Result<()> {
        let of = self.dev.iter().flat_map(|dev| ["dev", dev]);
        // With details, which have size tables and what a tbf adds to each packet.
        let qdiscs = tc(["-d", "-j", "qdisc", "show"].into_iter().chain(of))?;
        printed.add(&qdiscs, self.dev.as_deref(), None)?;
        for (dev, handles) in printed.handles() {
            // With details, which have the quantum.
            let words = ["-d", "-j", "class", "show", "dev", &dev];
            if printed.add(&tc(words)?, Some(&dev), None).is_err() {
                // Some versions of tc mix text into their JSON.
                printed.add(&tc(["-d", "class", "show", "dev", &dev])?, Some(&dev), None)?;
            }
            for handle in handles {
                let words = ["-j", "filter", "show", "dev", &dev, "parent", &handle];
                if printed.add(&tc(words)?, Some(&dev), Some(&handle)).is_err() {
                    let what = format!("the filters of {handle}, which tc cannot print as JSON,");
                    printed.lacks(&dev, &what);
                }
            }
        }
        Ok(())
    }
}

/// The output of `tc WORDS`.
fn tc<'a>(words: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Vec<u8>> {
    let words: Vec<&str> = words.into_iter().collect();
    let output = Command::new("tc").args(words.iter().map(OsStr::new)).output();
    let output =
        output.context("cannot run tc: install iproute2, or give files with its output")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let words: Vec<_> = words.iter().map(|word| narrows_escape::shell(word)).collect();
        bail!("tc {} failed: {}", words.join(" "), said.trim());
    }
    Ok(output.stdout)
}

/// Writes `text` to `file`, which must not exist: it may belong to another tree.
fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let made = fs::File::options().write(true).create_new(true).open(file);
    let mut made = made.with_context(|| format!("cannot make {}", file.display()))?;
    made.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
