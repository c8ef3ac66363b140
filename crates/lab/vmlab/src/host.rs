//! The host: prepares the guests' images, runs one cell after the other, and sums up.

use crate::architecture::Architecture;
use crate::cake::{Row, Rows, judge};
use crate::foreign::Foreign;
use crate::matrix::{self, Cell, SHORT, Task};
use crate::qemu::{Machine, Processor};
use crate::verdict::{Check, Message, Outcome, Record};
use crate::{apt, guest, kernel, report, root, tools};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a cell, against one that hangs. A complete one takes about four minutes on an
/// idle host, and more than ten beside a build that the host itself slows down.
const LIMIT: Duration = Duration::from_secs(1200);
/// The time limit of the cell that measures, which takes about fifteen minutes.
const LIMIT_TO_MEASURE: Duration = Duration::from_secs(3600);

/// In the lab's folder: since which boot of this host a guest is known not to boot with KVM.
const WITHOUT_KVM: &str = "without-kvm";

/// Run Narrows on other kernels, between real drivers, and report what works where.
///
/// Boots Debian's own kernels under qemu, one machine at a time, with an emulated card under each
/// port, and runs a list of checks in each; in one, measures CAKE beside the kernel's. Installs the
/// Debian packages that it needs (qemu from the release's backports if the release's own is too
/// old) and keeps kernels and results under target/vm. If qemu cannot be installed, it says so and
/// skips all cells.
#[derive(Parser)]
#[command(name = "vmlab", max_term_width = 100)]
pub struct Options {
    /// Cells to run: 7.x-igb, or all of a kernel (6.12) or of a driver (igb); cake, for the
    /// comparison with the kernel's CAKE. Default: all.
    #[arg(value_name = "CELL")]
    cells: Vec<String>,

    /// Only the few cells with the best coverage, which `make test` runs, and each check beside
    /// another program in as few of them as show all that it can find. Keeps no results.
    #[arg(long, conflicts_with_all = ["cells", "resume", "write"])]
    short: bool,

    /// Skip cells that this program has already completed, and count their results.
    #[arg(long)]
    resume: bool,

    /// Write the tables of docs/kernels.md and docs/cake.md from the latest result of each cell.
    /// Parts without a selected cell stay as they are.
    #[arg(long)]
    write: bool,

    /// Measure only this row of the comparison with the kernel's CAKE, without keeping the result:
    /// tcp-ecn-20, or tcp-ecn for both limits. Can be repeated.
    #[arg(long = "row", value_name = "ROW", conflicts_with_all = ["short", "resume", "write"])]
    rows: Vec<Row>,

    /// Run only the checks whose names begin with this, without keeping the result: stick. Can be
    /// repeated.
    #[arg(long = "check", value_name = "NAME", conflicts_with_all = ["short", "resume", "write"])]
    checks: Vec<String>,

    /// Run this command of Narrows in each cell instead of its checks, and print what it says. With
    /// one processor and 2 GiB; without KVM an instruction takes 1 ns: "bench balance --ipvs".
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["short", "resume", "write", "rows", "checks"])]
    run: Option<String>,

    /// The program to test, built for the cells' processor.
    #[arg(long, value_name = "FILE", default_value = "target/debug/narrows")]
    narrows: PathBuf,

    /// This program, built for the cells' processor: the guest's first process. Default: this one.
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,

    /// Load these modules in the guest first, to see what that changes.
    #[arg(long, value_name = "MODULES", default_value = "")]
    load: String,

    /// The folder for packages, kernels and results.
    #[arg(long, value_name = "FOLDER", default_value = "target/vm")]
    folder: PathBuf,
}

/// Runs the lab.
pub fn execute(options: &Options) -> Result<ExitCode> {
    let words = match options.short {
        true => SHORT.map(str::to_owned).to_vec(),
        false => options.cells.clone(),
    };
    let mut cells = matrix::select(&words)?;
    if !options.checks.is_empty() || options.run.is_some() {
        cells.retain(|cell| cell.task != Task::Cake);
    }
    fs::create_dir_all(&options.folder)?;
    let folder = fs::canonicalize(&options.folder)?;
    let mut counts = Counts::default();
    match Lab::prepare(&folder, options, &cells)? {
        Ok(lab) => lab.run(&cells, options.resume)?.into_iter().for_each(|end| counts.add(end)),
        Err(reason) => {
            println!("SKIPPED: no virtual machine was started: {reason:#}");
            counts.skipped = cells.len();
        }
    }
    if options.write {
        write(&folder, &cells)?;
    }
    println!("{}", counts.line());
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the documents about `cells`, each from the latest results of all its cells.
fn write(folder: &Path, cells: &[Cell]) -> Result<()> {
    let is_cake = |cell: &Cell| cell.task == Task::Cake;
    let (cake, drivers): (Vec<Cell>, Vec<Cell>) = matrix::all().into_iter().partition(is_cake);
    let records = |of: Vec<Cell>| -> Vec<Record> {
        of.into_iter().filter_map(|cell| stored(folder, cell)).collect()
    };
    if !cells.iter().all(is_cake) {
        report::write_kernels(&records(drivers))?;
    }
    if cells.iter().any(is_cake) {
        let mut records = records(cake);
        records.retain(|record| record.complete);
        report::write_cake(&records)?;
    }
    Ok(())
}

/// How many cells had each result.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }

    fn line(&self) -> String {
        let Self { passed, failed, skipped } = self;
        format!("test-vm: {passed} cells passed, {failed} failed, {skipped} skipped")
    }
}

/// What a guest has from the Debian release of its kernel.
struct Release {
    kernel: kernel::Unpacked,
    /// xdp-tools, as an archive; empty where no check needs them.
    tools: Vec<u8>,
}

/// The parts of a guest.
struct Lab {
    folder: PathBuf,
    architecture: Architecture,
    processor: Processor,
    /// By suite.
    releases: BTreeMap<&'static str, Release>,
    /// Everything but the releases' parts, as an archive.
    root: Vec<u8>,
    program: u64,
    rows: Rows,
    checks: Vec<String>,
    /// An archive with the command that cells run instead of checks.
    command: Option<Vec<u8>>,
    load: String,
    short: bool,
}

impl Lab {
    /// Installs, downloads and builds what `cells` need. The inner error says why this host cannot
    /// run any.
    fn prepare(folder: &Path, options: &Options, cells: &[Cell]) -> Result<Result<Self>> {
        let narrows = &options.narrows;
        ensure!(narrows.exists(), "{} does not exist: build it first", narrows.display());
        let begin = Instant::now();
        let architecture = cells.first().context("no cell was chosen")?.kernel.architecture;
        let own = std::env::current_exe()?;
        ensure!(
            architecture == Architecture::OWN || options.init.is_some(),
            "these cells have another processor: make test-vm-{} builds what they run",
            architecture.debian()
        );
        let (releases, foreign) = match Self::fetch(folder, cells, architecture) {
            Ok(fetched) => fetched,
            Err(reason) => return Ok(Err(reason)),
        };
        let built = root::Built { narrows, init: options.init.as_deref().unwrap_or(&own) };
        let root = root::archive(built, foreign.as_ref(), folder)?;
        let mut hasher = DefaultHasher::new();
        root.hash(&mut hasher);
        let processor = Processor::Tcg;
        let mut lab = Self {
            folder: folder.to_owned(),
            architecture,
            processor,
            releases,
            root,
            program: hasher.finish(),
            rows: Rows(options.rows.clone()),
            checks: guest::asked(&options.checks)?,
            command: options.run.as_deref().map(root::command),
            load: options.load.clone(),
            short: options.short,
        };
        let may_have_kvm = architecture == Architecture::OWN && Path::new("/dev/kvm").exists();
        if may_have_kvm && lab.boots_with_kvm()? {
            lab.processor = Processor::Kvm;
        }
        println!(
            "prepared in {:.0} s; processors by {}",
            begin.elapsed().as_secs_f64(),
            lab.processor.name()
        );
        Ok(Ok(lab))
    }

    /// The releases, and the programs for another processor.
    fn fetch(
        folder: &Path,
        cells: &[Cell],
        architecture: Architecture,
    ) -> Result<(BTreeMap<&'static str, Release>, Option<Foreign>)> {
        ensure!(Architecture::OWN == Architecture::Amd64, "the emulated cards need an x86-64 host");
        apt::ensure_installed(folder, architecture)?;
        let is_foreign = architecture != Architecture::OWN;
        let suites: BTreeSet<&str> = matrix::all()
            .into_iter()
            .map(|cell| cell.kernel)
            .filter(|kernel| kernel.architecture == architecture)
            .flat_map(|kernel| [Some(kernel.suite), kernel.tools])
            .flatten()
            .collect();
        let place =
            if is_foreign { format!("apt-{}", architecture.debian()) } else { "apt".into() };
        let apt = apt::Apt::of(&folder.join(place), &suites, architecture)?;
        let mut releases = BTreeMap::new();
        for Cell { kernel, .. } in cells {
            if let Entry::Vacant(vacant) = releases.entry(kernel.suite) {
                let tools = kernel.tools.map(|suite| tools::archive(&apt, suite, folder));
                vacant.insert(Release {
                    tools: tools.transpose()?.unwrap_or_default(),
                    kernel: kernel::unpack(&apt, *kernel, folder)?,
                });
            }
        }
        let unpack = || Foreign::unpack(&apt, &root::packages(), architecture, folder);
        let foreign = is_foreign.then(unpack).transpose()?;
        Ok((releases, foreign))
    }

    /// Whether a guest boots with KVM: the presence of its device does not prove it. Where none
    /// does, none will before this host boots again, so that is noted, and costs its time once.
    fn boots_with_kvm(&self) -> Result<bool> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let noted = self.folder.join(WITHOUT_KVM);
        if fs::read_to_string(&noted).is_ok_and(|without| without == boot) {
            return Ok(false);
        }
        let (suite, _) = self.releases.first_key_value().context("no cell was chosen")?;
        let record = self.machine(suite, None, Processor::Kvm, "kvm", |_| {})?.0;
        if !record.complete {
            fs::write(&noted, boot)?;
        }
        Ok(record.complete)
    }

    /// Runs a machine, and returns its messages and the end of its output.
    fn machine(
        &self,
        suite: &str,
        cell: Option<Cell>,
        processor: Processor,
        name: &str,
        said: impl FnMut(&Message),
    ) -> Result<(Record, String)> {
        let Release { kernel, tools } = &self.releases[suite];
        let folder = self.folder.join("runs").join(name);
        fs::create_dir_all(&folder)?;
        let root = folder.join("initrd");
        let command = self.command.as_deref().unwrap_or_default();
        fs::write(&root, [&self.root[..], tools, &kernel.modules()?, command].concat())?;
        let machine = Machine {
            architecture: self.architecture,
            processor,
            image: &kernel.image,
            root: &root,
            task: cell.map(|cell| cell.task),
            rows: &self.rows,
            checks: &self.checks,
            runs_command: self.command.is_some(),
            load: &self.load,
            short: self.short,
            folder: &folder,
            limit: match cell {
                Some(Cell { task: Task::Cake, .. }) => LIMIT_TO_MEASURE,
                _ if self.command.is_some() => LIMIT_TO_MEASURE,
                _ => LIMIT,
            },
        };
        let record = machine.run(said)?;
        // No longer needed, and large.
        fs::remove_file(&root)?;
        Ok((record, machine.last_words()))
    }

    /// Runs `cells` one after the other. If machines have emulated time, the one that measures runs
    /// beside the others, because it takes as long as most of them together.
    fn run(&self, cells: &[Cell], resume: bool) -> Result<Vec<Outcome>> {
        let run = |cells: Vec<Cell>| -> Result<Vec<Outcome>> {
            cells.into_iter().map(|cell| Ok(self.cell(cell, resume)?.outcome())).collect()
        };
        if self.processor == Processor::Kvm {
            return run(cells.to_vec());
        }
        let (measuring, checking) = cells.iter().partition(|cell| cell.task == Task::Cake);
        let outcomes = thread::scope(|scope| {
            let beside = scope.spawn(|| run(measuring));
            let checked = run(checking);
            let measured = beside.join().unwrap_or_else(|panic| resume_unwind(panic));
            [checked, measured]
        });
        Ok(outcomes.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Runs a cell, unless its result exists and `resume` is set.
    fn cell(&self, cell: Cell, resume: bool) -> Result<Record> {
        let name = cell.name();
        if resume
            && let Some(record) = stored(&self.folder, cell)
            && record.program == self.program
            && record.complete
        {
            println!("{name}: {:?}, by an earlier run", record.outcome());
            return Ok(record);
        }
        let begin = Instant::now();
        let said = |message: &Message| match message {
            Message::Hello(release) => {
                println!("{name}: Linux {release}, up after {:.0} s", begin.elapsed().as_secs_f64())
            }
            Message::Mode(mode) => println!("  {mode}"),
            Message::Check(check) => println!("  {}", line(check)),
            Message::Sample(sample) => println!("{name}: {sample}"),
            Message::Said(line) => println!("{line}"),
            Message::End => {}
        };
        let suite = cell.kernel.suite;
        let (mut record, words) = self.machine(suite, Some(cell), self.processor, &name, said)?;
        if cell.task == Task::Cake {
            self.processor.name().clone_into(&mut record.mode);
        }
        for check in judge::checks(&record.samples) {
            println!("{name}: {}", line(&check));
            record.add(Message::Check(check));
        }
        record.cell.clone_from(&name);
        record.program = self.program;
        if record.outcome() != Outcome::Passed {
            println!("the end of what the guest's console said:\n{words}");
        }
        println!("{name}: {:?} in {:.0} s", record.outcome(), begin.elapsed().as_secs_f64());
        let is_partial = !self.rows.0.is_empty() || !self.checks.is_empty();
        if self.short || is_partial || self.command.is_some() {
            return Ok(record);
        }
        let file = result_file(&self.folder, cell);
        fs::create_dir_all(file.parent().context("a result has a folder")?)?;
        fs::write(file, serde_json::to_string_pretty(&record)?)?;
        Ok(record)
    }
}

fn line(check: &Check) -> String {
    let outcome = match check.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    let Check { name, note, seconds, .. } = check;
    format!("{outcome:<8} {name:<10} {seconds:>5.1} s  {note}").trim_end().to_owned()
}

fn result_file(folder: &Path, cell: Cell) -> PathBuf {
    folder.join("results").join(format!("{}.json", cell.name()))
}

/// The latest result of a cell, if there is one.
fn stored(folder: &Path, cell: Cell) -> Option<Record> {
    let text = fs::read_to_string(result_file(folder, cell)).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_sums_up() {
        let mut counts = Counts::default();
        for outcome in [Outcome::Passed, Outcome::Failed, Outcome::Passed, Outcome::Skipped] {
            counts.add(outcome);
        }
        assert_eq!(counts.line(), "test-vm: 2 cells passed, 1 failed, 1 skipped");
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Options as clap::CommandFactory>::command().debug_assert();
    }
}
