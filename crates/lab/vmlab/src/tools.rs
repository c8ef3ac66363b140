//! What is beside Narrows as a Debian release has it, for the guests with its kernel: libxdp and
//! its programs, and ipvsadm.
//!
//! They need the C library of their release. The host's programs run with it as well if it is newer
//! than theirs. Other libraries are the host's.

use crate::apt::Apt;
use crate::architecture::Architecture;
use crate::archive::Archive;
use anyhow::{Context, Result, ensure};
use narrows_testbed::process;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages with the programs and their libraries.
const PACKAGES: [&str; 7] =
    ["libxdp1", "xdp-tools", "libbpf1", "ipvsadm", "libnl-3-200", "libnl-genl-3-200", "libpopt0"];
const C_LIBRARY: &str = "libc6";
/// The programs that the checks and benchmarks call.
const PROGRAMS: [&str; 3] = ["xdp-filter", "xdp-loader", "ipvsadm"];
/// Where programs are: in the second, where a release has both.
const SBIN: [&str; 2] = ["usr/sbin", "sbin"];
/// Where libraries are: the same.
const LIBRARIES: [&str; 2] = ["usr/lib", "lib"];
/// BPF programs of libxdp and of its programs, there.
const BPF: &str = "bpf";

/// An archive of the tools in `suite`, to follow that of the host's programs. `folder` is where
/// packages are unpacked.
pub fn archive(apt: &Apt, suite: &str, folder: &Path) -> Result<Vec<u8>> {
    let own = Architecture::OWN;
    let root = folder.join("tools").join(suite);
    if root.exists() {
        fs::remove_dir_all(&root)?; // of an earlier run, perhaps of an older version
    }
    fs::create_dir_all(&root)?;
    let newer = is_newer(&version(&apt.show(C_LIBRARY, suite)?)?, &installed()?)?;
    let packages = PACKAGES.into_iter().chain(newer.then_some(C_LIBRARY));
    let packages: Vec<String> = packages.map(|package| format!("{package}/{suite}")).collect();
    apt.unpack(&packages, &root)?;
    let mut archive = Archive::default();
    for name in PROGRAMS {
        let path =
            SBIN.map(|folder| root.join(folder).join(name)).into_iter().find(|it| it.exists());
        let path = path.with_context(|| format!("the packages of {suite} have no {name}"))?;
        archive.file(&format!("usr/bin/{name}"), &fs::read(path)?);
    }
    let [place, older] = LIBRARIES.map(|folder| format!("{folder}/{}", own.triple()));
    let mut libraries = files(&root.join(&place))?;
    ensure!(!libraries.is_empty(), "the packages of {suite} have no libraries in {place}");
    if root.join(&older).exists() {
        libraries.extend(files(&root.join(&older))?);
    }
    for path in libraries {
        let name = path.file_name().and_then(OsStr::to_str).context("a name is no text")?;
        archive.file(&format!("{place}/{name}"), &fs::read(&path)?);
    }
    for path in files(&root.join(&place).join(BPF))? {
        let inside = path.strip_prefix(&root)?.to_str().context("a program's path is no text")?;
        archive.file(inside, &fs::read(&path)?);
    }
    if newer {
        let loader = format!("usr/{}", own.loader());
        archive.file(&loader, &fs::read(root.join(&loader))?);
    }
    Ok(archive.finish())
}

/// The files in `folder`, links followed, without those below it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

/// The version of the host's C library.
fn installed() -> Result<String> {
    let format = "-f=${Version}\n";
    let versions = process::run(Command::new("dpkg-query").args(["-W", format, C_LIBRARY]))?;
    Ok(versions.lines().next().context("dpkg knows no C library")?.to_owned())
}

/// The version in what `apt-cache show` says of a package.
fn version(shown: &str) -> Result<String> {
    let version = shown.lines().find_map(|line| line.strip_prefix("Version: "));
    Ok(version.context("apt names no version")?.to_owned())
}

fn is_newer(version: &str, than: &str) -> Result<bool> {
    let compare = Command::new("dpkg")
        .args(["--compare-versions", version, "gt", than])
        .status()
        .context("cannot run dpkg")?;
    Ok(compare.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_first_paragraph() {
        let shown = "Package: libc6\nVersion: 2.43-7\n\nPackage: libc6\nVersion: 2.41-12\n";
        assert_eq!(version(shown).unwrap(), "2.43-7");
        version("Package: libc6\n").unwrap_err();
    }

    #[test]
    fn versions_are_compared_as_dpkg_does() {
        assert!(is_newer("2.41-12+deb13u5", "2.36-9+deb12u13").unwrap());
        assert!(!is_newer("2.36-9+deb12u13", "2.36-9+deb12u13").unwrap());
        assert!(!is_newer("2.4-1", "2.36-1").unwrap());
    }
}
