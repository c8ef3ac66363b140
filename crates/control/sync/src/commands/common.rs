//! What all sources have in common: where the directory is kept, how it is applied, how often.

use anyhow::{Context as _, bail};
use clap::Args;
use narrows_directory::{Ports, Report};
use narrows_program::output;
use narrows_store::{Guard, Store};
use narrows_sync::{Applied, Applier, Settings, Source};
use narrows_tc::number;
use narrows_units::{Rate, counted};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Where the directory is kept, if nothing else is said.
pub const STORE: &str = "/var/lib/narrows/directory.sqlite";

/// The exit status if something was left out.
const INCOMPLETE: u8 = 3;

/// The longest name of a source in bytes.
const SOURCE_MAX: usize = 60;

/// The shortest interval between two syncs.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// Where the directory is kept.
#[derive(Args)]
pub struct StoreArgs {
    /// The file with the directory. It is made if it is not there.
    #[arg(long, value_name = "FILE", default_value = STORE)]
    pub store: PathBuf,
}

/// How it is applied.
#[derive(Args)]
pub struct ApplyArgs {
    /// The port towards the Internet and the one towards the subscribers. Default: those of the
    /// last time.
    #[arg(long, value_name = "INTERNET,SUBSCRIBERS", value_parser = ports)]
    ports: Option<Ports>,

    /// The capacity of the uplink: one rate, or downstream and upstream. Default: that of the last
    /// time; without one, the sum at the top of the tree.
    #[arg(long, value_name = "RATE[,RATE]", value_parser = uplink)]
    uplink: Option<[Rate; 2]>,

    /// Write the policy to this file, from which the instance starts (`narrows run --batch FILE`).
    /// Default: that of the last time.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Write the names of subscribers and sites to this file, as `tc -nm` and the views of Narrows
    /// read them; usually /etc/iproute2/tc_cls. Default: that of the last time.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
}

/// What each source takes.
#[derive(Args)]
pub struct SyncArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    apply: ApplyArgs,

    /// Print what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,

    /// Stop if more than this share of the source's subscribers, or of its sites, would be removed.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = share)]
    max_removed: f64,

    /// Do it again and again, with this time between. Default: once.
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: Option<Duration>,

    /// The name of the source in the store. Default: that of the command. Two that read different
    /// files need two names.
    #[arg(long, value_name = "NAME", value_parser = source_name)]
    source: Option<String>,
}

fn ports(text: &str) -> Result<Ports, String> {
    match text.split(',').collect::<Vec<_>>()[..] {
        [internet, subscribers] if !internet.is_empty() && !subscribers.is_empty() => {
            if internet == subscribers {
                return Err(format!("{internet} was given twice; name two interfaces"));
            }
            for name in [internet, subscribers] {
                narrows_tc::check_device_name(name)
                    .map_err(|why| format!("{why}; `ip -brief link` lists those there are"))?;
            }
            Ok(Ports { internet: internet.to_owned(), subscribers: subscribers.to_owned() })
        }
        _ => Err("two interface names separated by a comma, such as eth1,eth2".to_owned()),
    }
}

/// A name of a source.
fn source_name(text: &str) -> Result<String, String> {
    let is_name = (1..=SOURCE_MAX).contains(&text.len())
        && text.trim() == text
        && !text.contains(narrows_escape::is_hidden);
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        format!("a name of 1 to {SOURCE_MAX} bytes, without spaces around it, as billing")
    })
}

fn uplink(text: &str) -> Result<[Rate; 2], String> {
    let rate = |word: &str| {
        number::rate(word).filter(|rate| !rate.is_zero()).ok_or(number::RATE_HINT.to_owned())
    };
    match text.split_once(',') {
        Some((down, up)) => Ok([rate(down)?, rate(up)?]),
        None => Ok([rate(text)?; 2]),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or("a share from 0% to 100%, as 10%".to_owned())
}

fn every(text: &str) -> Result<Duration, String> {
    let hint = "a time such as 60s, 5m or 1h, of at least 1s";
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) => (digits, text.as_bytes().last().copied()),
        None => (text, None),
    };
    let seconds = match unit {
        Some(b'm') => 60,
        Some(b'h') => 3600,
        _ => 1,
    };
    let number = digits.parse::<u32>().map_err(|_| hint.to_owned())?;
    let time = Duration::from_secs(u64::from(number) * seconds);
    if time < EVERY_MIN { Err(hint.to_owned()) } else { Ok(time) }
}

impl StoreArgs {
    /// Opens it.
    pub fn open(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.store)?)
    }

    /// Opens one that is there: to look at it makes none.
    pub fn open_existing(&self) -> anyhow::Result<Store> {
        if !self.store.exists() {
            bail!(
                "there is no store at {}: `narrows sync SOURCE` makes one, or name another with \
                 --store FILE",
                self.store.display()
            );
        }
        self.open()
    }
}

impl ApplyArgs {
    /// How to apply: as said, else as the last time.
    pub fn settings(&self, store: &Store) -> anyhow::Result<Settings> {
        let last = Settings::last(store)?;
        let ports = self.ports.clone().or_else(|| last.as_ref().map(|last| last.ports.clone()));
        let ports = ports.context(
            "which ports? say --ports INTERNET,SUBSCRIBERS, such as --ports eth1,eth2; later it is \
             kept",
        )?;
        let last = last.unwrap_or_default();
        Ok(Settings {
            ports,
            uplink: self.uplink.map_or(last.uplink, |rates| rates.map(Some)),
            policy: absolute(self.policy.as_deref())?.or(last.policy),
            names: absolute(self.names.as_deref())?.or(last.names),
        })
    }
}

/// The path from the root: another run, in another folder, means the same file.
fn absolute(path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    Ok(path.map(std::path::absolute).transpose()?)
}

impl SyncArgs {
    /// Whether a file can be read as often as asked: standard input ends after the first time.
    pub fn check_repeat(&self, file: Option<&Path>) -> anyhow::Result<()> {
        if self.every.is_some() && file == Some(Path::new("-")) {
            bail!("standard input can be read only once: name a file, or leave out --every");
        }
        Ok(())
    }

    /// Reads `source`, keeps what it says, and applies it; as often as asked.
    pub fn run(&self, source: &mut dyn Source) -> anyhow::Result<ExitCode> {
        let name = self.source.clone().unwrap_or_else(|| source.name().to_owned());
        if self.dry_run {
            // Not even an empty store is made.
            let is_there = self.store.store.exists();
            let mut store = if is_there { self.store.open()? } else { Store::in_memory()? };
            return self.dry(&mut store, &name, source);
        }
        let mut store = self.store.open()?;
        let mut applier = Applier::new(self.apply.settings(&store)?);
        let Some(every) = self.every else {
            return self.once(&mut store, &mut applier, &name, source);
        };
        loop {
            if let Err(error) = self.once(&mut store, &mut applier, &name, source) {
                log::error!("{}", narrows_program::explained(&error));
            }
            thread::sleep(every);
        }
    }

    fn dry(
        &self,
        store: &mut Store,
        name: &str,
        source: &mut dyn Source,
    ) -> anyhow::Result<ExitCode> {
        let gathered = source.read()?;
        let changes = store.plan(name, &gathered.directory)?;
        output::text(&changes);
        output::report(format_args!(
            "{}: {}\n{}",
            gathered.summary,
            changes.summary(),
            gathered.report.lines()
        ));
        // A run that would stop says so here, too.
        store.allows(name, &changes, Guard { max_removed_share: self.max_removed })?;
        Ok(status(&gathered.report))
    }

    fn once(
        &self,
        store: &mut Store,
        applier: &mut Applier,
        name: &str,
        source: &mut dyn Source,
    ) -> anyhow::Result<ExitCode> {
        let gathered = source.read()?;
        let guard = Guard { max_removed_share: self.max_removed };
        let changes = store.replace(name, &gathered.directory, guard)?;
        output::report(format_args!(
            "{}: {}\n{}",
            gathered.summary,
            changes.summary(),
            gathered.report.lines()
        ));
        apply(store, applier)?;
        Ok(status(&gathered.report))
    }
}

fn status(report: &Report) -> ExitCode {
    if report.faults.is_empty() { ExitCode::SUCCESS } else { INCOMPLETE.into() }
}

/// Applies what is in `store`, and says what was done.
pub fn apply(store: &mut Store, applier: &mut Applier) -> anyhow::Result<()> {
    let Applied { commands, took, files, report, warnings } = applier.apply(store)?;
    let ms = took.as_secs_f64() * 1e3;
    match commands {
        Some(0) => output::report("the instance is as it should be\n"),
        Some(commands) => {
            let commands = counted(commands, "command");
            output::report(format_args!("gave the instance {commands}, within {ms:.0} ms\n"));
        }
        None if files.is_empty() && applier.settings().policy.is_none() => bail!(
            "the directory is kept, but no instance has the port {}: start one, or say --policy FILE \
             to write a policy from which one can start",
            applier.settings().ports.subscribers
        ),
        None => output::report(format_args!(
            "no instance has the port {}: only files are written\n",
            applier.settings().ports.subscribers
        )),
    }
    for file in files {
        output::report(format_args!("wrote {}\n", file.display()));
    }
    output::report(format_args!("{}{warnings}", report.lines()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_look_at_a_store_that_is_not_there_makes_none() {
        let store = std::env::temp_dir().join(format!("narrows-no-store-{}", std::process::id()));
        let args = StoreArgs { store: store.join("directory.sqlite") };
        let error = args.open_existing().err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("there is no store at")));
        assert!(!store.exists());
    }

    #[test]
    fn options_are_read_or_refused_with_what_to_write() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("100"), Ok(1.0));
        assert!(share("101%").is_err() && share("-1").is_err() && share("nan").is_err());
        assert_eq!(every("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(every("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(every("90"), Ok(Duration::from_secs(90)));
        assert!(every("0s").is_err() && every("1d").is_err() && every("").is_err());
        let gbit = Rate::from_bits_per_sec(1_000_000_000);
        assert_eq!(uplink("1gbit"), Ok([gbit; 2]));
        assert!(uplink("1gbit,").is_err() && uplink("0bit").is_err());
        assert!(ports("eth1,eth1").unwrap_err().contains("twice"));
    }
}
