//! Debian's packages: kernels of other releases, and programs that the host lacks.
//!
//! apt does the work, with a configuration of its own. It fetches from the mirror that the host is
//! configured for, verifies with Debian's keys, and leaves the host's lists and preferences
//! unchanged.

use crate::architecture::Architecture;
use anyhow::{Context, Result, bail, ensure};
use narrows_testbed::process;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's keys, from its package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The packages that the host needs beside an emulator, each with a program that shows that it is
/// installed.
const PACKAGES: [(&str, &str); 5] = [
    ("kmod", "depmod"),
    ("binutils", "strip"),
    ("ethtool", "ethtool"),
    ("tcpdump", "tcpdump"),
    ("nftables", "nft"),
];
/// qemu only recommends it, but network cards with boot ROMs need it.
const FIRMWARE: &str = "ipxe-qemu";

/// The host's apt configuration.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    mirror: String,
    codename: String,
}

/// Finds Debian's own archive in the host's configuration.
fn host() -> Result<Host> {
    let format = "$(REPO_URI) $(CODENAME) $(LABEL)";
    let targets = process::run(Command::new("apt-get").args([
        "indextargets",
        "--format",
        format,
        "Created-By: Packages",
    ]))
    .context("this is no Debian: there is no apt")?;
    main_archive(&targets).context("apt is not configured for Debian's own archive")
}

/// From lines with an address, a suite and a label, the release itself: the shortest suite, because
/// those of updates and backports are one word longer.
fn main_archive(targets: &str) -> Option<Host> {
    let debian = targets.lines().filter_map(|line| {
        let (mirror, rest) = line.split_once(' ')?;
        let (codename, label) = rest.split_once(' ')?;
        (label == "Debian").then_some((mirror, codename))
    });
    let (mirror, codename) = debian.min_by_key(|(_, codename)| codename.len())?;
    Some(Host { mirror: mirror.to_owned(), codename: codename.to_owned() })
}

/// apt with lists and a cache of its own.
#[derive(Debug)]
pub struct Apt {
    configuration: PathBuf,
    packages: PathBuf,
}

impl Apt {
    /// An apt that knows `suites` for `architecture` and no installed packages, with everything in
    /// `folder`.
    pub fn of(folder: &Path, suites: &BTreeSet<&str>, architecture: Architecture) -> Result<Self> {
        let host = host()?;
        let name = architecture.debian();
        let sources: String = suites
            .iter()
            .map(|suite| {
                format!("deb [arch={name} signed-by={KEYRING}] {} {suite} main\n", host.mirror)
            })
            .collect();
        let private = format!(
            "Dir::State::status \"{0}/status\";\n\
             Dir::Etc::sourceparts \"{0}/none\";\n\
             Dir::Etc::preferences \"{0}/none/preferences\";\n\
             Dir::Etc::preferencesparts \"{0}/none\";\n\
             APT::Architecture \"{name}\";\nAPT::Architectures {{ \"{name}\"; }};\n",
            folder.display()
        );
        fs::create_dir_all(folder.join("none"))?;
        fs::write(folder.join("status"), "")?;
        Self::with(folder, &sources, &private)
    }

    fn with(folder: &Path, sources: &str, configuration: &str) -> Result<Self> {
        ensure!(Path::new(KEYRING).exists(), "Debian's keys are missing: {KEYRING}");
        let packages = folder.join("packages");
        for directory in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(folder.join(directory))?;
        }
        fs::write(folder.join("sources.list"), sources)?;
        let text = format!(
            "{configuration}\
             Dir::State \"{0}\";\nDir::State::lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n\
             Dir::Etc::sourcelist \"{0}/sources.list\";\n\
             Acquire::Languages \"none\";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled \
             \"false\";\nAPT::Sandbox::User \"root\";\n",
            folder.display()
        );
        let file = folder.join("apt.conf");
        fs::write(&file, text)?;
        let apt = Self { configuration: file, packages };
        process::run(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration).env("LC_ALL", "C");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        // An image for containers keeps none of these, and each command would parse all lists.
        for name in ["pkgcache", "srcpkgcache"] {
            command.arg("-o").arg(format!("Dir::Cache::{name}={name}.bin"));
        }
        command
    }

    /// The newest version of `package` in `suite`, and its dependencies.
    pub fn show(&self, package: &str, suite: &str) -> Result<String> {
        process::run(self.command("apt-cache").args(["show", &format!("{package}/{suite}")]))
            .or_else(|_| {
                // Older versions of apt accept no suite here; a version works, too.
                let versions = process::run(self.command("apt-cache").args(["madison", package]))?;
                let version = version_in(&versions, suite)
                    .with_context(|| format!("{suite} has no {package}"))?;
                process::run(
                    self.command("apt-cache").args(["show", &format!("{package}={version}")]),
                )
            })
    }

    /// `packages` and all that they depend on.
    pub fn closure(&self, packages: &[&str]) -> Result<Vec<String>> {
        let install = ["install", "--simulate", "--no-install-recommends"];
        let said = process::run(self.command("apt-get").args(install).args(packages))?;
        Ok(installed_by(&said).map(str::to_owned).collect())
    }

    /// Downloads those of `packages`, each a name or `name/suite`, that are not there already, and
    /// returns the paths of all.
    fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        // One question for all: apt takes long to begin.
        let ask = ["download", "--print-uris", "-qq"];
        let uris = process::run(self.command("apt-get").args(ask).args(packages))?;
        let mut files = Vec::new();
        for uri in uris.lines() {
            let name = uri.split_whitespace().nth(1).context("apt names no file")?;
            let file = self.packages.join(name);
            if !file.exists() {
                let package =
                    named(name, packages).context("apt names a file of another package")?;
                println!("fetching {package}");
                let mut fetch = self.command("apt-get");
                fetch.args(["download", "-qq", package]).current_dir(&self.packages);
                process::run(&mut fetch)?;
            }
            ensure!(file.exists(), "apt did not fetch {}", file.display());
            files.push(file);
        }
        ensure!(files.len() == packages.len(), "apt names {} files of {packages:?}", files.len());
        Ok(files)
    }

    /// Downloads `packages`, as [`Self::download`], and unpacks them into `folder`.
    pub fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        for file in self.download(packages)? {
            process::run(Command::new("dpkg-deb").arg("-x").arg(file).arg(folder))?;
        }
        Ok(())
    }
}

/// The version that a line of `apt-cache madison` gives for `suite`.
fn version_in(madison: &str, suite: &str) -> Option<String> {
    madison.lines().find_map(|line| {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, version, source] = columns[..] else { return None };
        source
            .split_whitespace()
            .any(|word| word.strip_suffix("/main") == Some(suite))
            .then(|| version.to_owned())
    })
}

/// The one of `packages` whose file has this name: `NAME_VERSION_ARCHITECTURE.deb`.
fn named<'a>(file: &str, packages: &'a [String]) -> Option<&'a str> {
    let (name, _) = file.split_once('_')?;
    let is_it = |package: &&String| package.split('/').next() == Some(name);
    packages.iter().find(is_it).map(String::as_str)
}

/// The packages in what apt says that it would install.
fn installed_by(simulated: &str) -> impl Iterator<Item = &str> {
    simulated.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next())
}

/// Installs what the host lacks for guests of `architecture`. The error says why the lab cannot run
/// here.
pub fn ensure_installed(folder: &Path, architecture: Architecture) -> Result<()> {
    let (program, emulator) = architecture.emulator();
    let oldest = architecture.oldest_emulator();
    let absent = PACKAGES.iter().filter(|(_, program)| find(program).is_none());
    let mut missing: Vec<&str> = absent.map(|(package, _)| *package).collect();
    if version_of(program).is_none_or(|version| version < oldest) {
        missing.extend([emulator, FIRMWARE]);
    }
    if missing.is_empty() {
        return Ok(());
    }
    ensure!(
        narrows_testbed::requirements::is_root(),
        "not installed: {}; run it as root, which installs them",
        missing.join(" ")
    );
    println!("installing Debian packages: {}", missing.join(" "));
    let host = host()?;
    // The host's own sources, and the backports of its release for a sufficiently new qemu.
    let backports = format!("{}-backports", host.codename);
    let own = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    let line = format!("deb [signed-by={KEYRING}] {} {backports} main\n", host.mirror);
    let apt = Apt::with(&folder.join("host"), &format!("{own}\n{line}"), "")
        .or_else(|_| Apt::with(&folder.join("host"), &own, ""))?;
    let mut install = apt.command("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]);
    let offered = process::run(apt.command("apt-cache").args(["policy", emulator]))?;
    if offered_major(&offered).is_some_and(|major| major < oldest) {
        println!("taking qemu from {backports}: its cards need version {oldest}");
        install.args(["-t", &backports]);
    }
    process::run(install.args(&missing))?;
    match version_of(program) {
        Some(version) if version >= oldest => Ok(()),
        Some(version) => bail!("qemu is of version {version}, its cards need {oldest}"),
        None => bail!("{program} is not there after installing it"),
    }
}

/// The path of a program; also searches root's directories.
pub fn find(program: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists())
}

fn version_of(emulator: &str) -> Option<u32> {
    let said = process::run(Command::new(emulator).arg("--version")).ok()?;
    major(said.split_once("version ")?.1)
}

/// The major version of the candidate that `apt-cache policy` names.
fn offered_major(policy: &str) -> Option<u32> {
    let candidate = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    major(candidate.split_once(':').map_or(candidate, |(_epoch, version)| version))
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
http://mirror.example/debian/ bookworm-backports Debian Backports
http://mirror.example/debian-security/ bookworm-security Debian-Security
http://mirror.example/debian/ bookworm-updates Debian
http://mirror.example/debian/ bookworm Debian
http://other.example/ stable Somebody
";

    #[test]
    fn the_releases_own_archive_is_found_among_others() {
        let host = main_archive(TARGETS).unwrap();
        assert_eq!(host.mirror, "http://mirror.example/debian/");
        assert_eq!(host.codename, "bookworm");
        assert_eq!(main_archive("http://other.example/ stable Somebody\n"), None);
    }

    #[test]
    fn a_version_is_that_of_the_suite() {
        let madison = "\
linux-image-amd64 | 7.3.4-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
linux-image-amd64 |  6.12.107-1 | http://mirror.example/debian trixie/main amd64 Packages
";
        assert_eq!(version_in(madison, "trixie").as_deref(), Some("6.12.107-1"));
        assert_eq!(version_in(madison, "trixie-backports").as_deref(), Some("7.3.4-1~bpo13+1"));
        assert_eq!(version_in(madison, "bookworm"), None);
    }

    #[test]
    fn the_package_of_a_file_is_found_with_its_suite() {
        let packages = ["libc6/trixie", "libc6-dev/trixie"].map(str::to_owned);
        assert_eq!(named("libc6_2.41-12_amd64.deb", &packages), Some("libc6/trixie"));
        assert_eq!(named("libelf1t64_0.192-4_arm64.deb", &packages), None);
    }

    #[test]
    fn what_apt_would_install_is_in_its_lines() {
        let said = "Reading package lists...\nThe following NEW packages will be installed:\n  dash\n\
                    Inst gcc-14-base (14.2.0-19 Debian:13.6/stable [arm64])\n\
                    Inst dash (0.5.12-12 Debian:13.6/stable [arm64])\nConf gcc-14-base (14.2.0-19)\n";
        assert_eq!(installed_by(said).collect::<Vec<_>>(), ["gcc-14-base", "dash"]);
    }

    #[test]
    fn the_epoch_of_a_candidate_is_no_version() {
        let policy = "qemu-system-x86:\n  Installed: (none)\n  Candidate: 1:7.2+dfsg-7\n";
        assert_eq!(offered_major(policy), Some(7));
        assert_eq!(offered_major("  Candidate: (none)\n"), None);
    }
}
