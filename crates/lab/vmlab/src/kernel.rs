//! A kernel from Debian's packages: its image, and the modules that a guest may load.

use crate::apt::Apt;
use crate::archive::Archive;
use crate::matrix::{DRIVERS, Kernel};
use anyhow::{Context, Result, ensure};
use narrows_testbed::process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules that a guest may load, apart from the [`DRIVERS`] and the dependencies of both.
/// Others do not exist for the guest, so this is a superset of what any check uses: bridges, VLANs,
/// connection tracking, NAT with a flowtable, tunnels, the kernel's qdiscs, filters, its
/// balancer, and TCP diagnostics.
const MODULES: &[&str] = &[
    "virtio_pci",
    "dummy",
    "bridge",
    "stp",
    "llc",
    "8021q",
    "af_packet",
    "xsk_diag",
    "unix",
    "ipv6",
    "nf_conntrack",
    "nf_nat",
    "nf_conntrack_netlink",
    "nf_tables",
    "nf_flow_table_inet",
    "nft_chain_nat",
    "nft_ct",
    "nft_flow_offload",
    "nft_masq",
    "nfnetlink_hook",
    "xfrm_user",
    "ipip",
    "fou",
    "sch_fq",
    "sch_fq_codel",
    "sch_cake",
    "sch_htb",
    "sch_tbf",
    "sch_ingress",
    "sch_netem",
    "cls_bpf",
    "cls_u32",
    "act_mirred",
    "act_skbedit",
    "ifb",
    "ip_vs",
    "ip_vs_mh",
    "ip_vs_rr",
    "tcp_diag",
    "tcp_bbr",
    "crc32c_generic",
    "crc32c-intel",
    "libcrc32c",
];

/// Folders of modules that no guest needs: half of all. To decompress them for the table of what
/// depends on what takes longer than the rest.
const UNUSED: [&str; 10] = [
    "sound",
    "fs",
    "drivers/gpu",
    "drivers/infiniband",
    "drivers/iio",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/scsi",
    "drivers/staging",
    "drivers/usb",
];

/// A kernel, unpacked.
#[derive(Debug)]
pub struct Unpacked {
    /// Its release, as printed by `uname -r`.
    pub release: String,
    /// The image that boots.
    pub image: PathBuf,
    /// Where `lib/modules` is.
    root: PathBuf,
}

/// Downloads and unpacks `kernel` below `folder`, unless that was done before.
pub fn unpack(apt: &Apt, kernel: Kernel, folder: &Path) -> Result<Unpacked> {
    let newest = format!("linux-image-{}", kernel.architecture.debian());
    let meta = apt.show(&newest, kernel.suite)?;
    let release = release_of(&meta)
        .with_context(|| format!("{newest} of {} names no kernel", kernel.suite))?;
    let root = folder.join("kernels").join(&release);
    let image = root.join(format!("boot/vmlinuz-{release}"));
    let modules = root.join("lib/modules").join(&release);
    let done = root.join("unpacked");
    if !done.exists() {
        println!("unpacking Linux {release}");
        let temporary = folder.join("kernels/unpacking");
        let _ = fs::remove_dir_all(&temporary); // what an earlier run left
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&temporary)?;
        fs::create_dir_all(root.join("boot"))?;
        fs::create_dir_all(root.join("lib/modules"))?;
        apt.unpack(&packages_of(apt, kernel, &release)?, &temporary)?;
        let found = ["lib/modules", "usr/lib/modules"]
            .map(|place| temporary.join(place).join(&release))
            .into_iter()
            .find(|place| place.join("kernel").exists())
            .with_context(|| format!("Linux {release} brings no modules"))?;
        fs::rename(&found, &modules)?;
        let vmlinuz = [temporary.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")]
            .into_iter()
            .find(|place| place.exists())
            .with_context(|| format!("Linux {release} brings no image"))?;
        fs::rename(vmlinuz, &image)?;
        fs::remove_dir_all(&temporary)?;
        for folder in UNUSED {
            let _ = fs::remove_dir_all(modules.join("kernel").join(folder));
        }
        process::run(Command::new("depmod").arg("-b").arg(&root).arg(&release))?;
        fs::write(done, "")?;
    }
    Ok(Unpacked { release, image, root })
}

/// The packages of a kernel: one, or for newer kernels an image and separate modules.
fn packages_of(apt: &Apt, kernel: Kernel, release: &str) -> Result<Vec<String>> {
    let whole = format!("linux-image-{release}");
    let depends = apt.show(&whole, kernel.suite)?;
    let parts: Vec<String> = ["binary", "modules"]
        .map(|part| format!("linux-{part}-{release}"))
        .into_iter()
        .filter(|part| depends.contains(part.as_str()))
        .collect();
    Ok(if parts.is_empty() { vec![whole] } else { parts })
}

/// The release of the kernel, from the dependency of the meta package for the newest one.
fn release_of(meta: &str) -> Option<String> {
    let depends = meta.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let image = depends.split(", ").find_map(|package| {
        let name = package.split(' ').next()?.strip_prefix("linux-image-")?;
        name.starts_with(|first: char| first.is_ascii_digit()).then_some(name)
    })?;
    Some(image.to_owned())
}

impl Unpacked {
    /// An archive with the modules, their dependencies, and the module tables.
    pub fn modules(&self) -> Result<Vec<u8>> {
        let base = self.root.join("lib/modules").join(&self.release);
        let inside = format!("usr/lib/modules/{}", self.release);
        let table = fs::read_to_string(base.join("modules.dep"))?;
        let names: Vec<&str> =
            MODULES.iter().copied().chain(DRIVERS.iter().map(|driver| driver.name)).collect();
        let wanted = closure(&dependencies(&table), &names);
        ensure!(!wanted.is_empty(), "Linux {} has none of the modules", self.release);
        let mut archive = Archive::default();
        for path in wanted {
            archive.file(&format!("{inside}/{path}"), &fs::read(base.join(path))?);
        }
        for entry in fs::read_dir(&base)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Some(name) = entry.file_name().to_str()
            {
                archive.file(&format!("{inside}/{name}"), &fs::read(entry.path())?);
            }
        }
        Ok(archive.finish())
    }
}

/// `modules.dep`: the path of each module, and those of all its dependencies, direct or not.
fn dependencies(table: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(path, needs)| (path, needs.split_whitespace().collect())).collect()
}

/// The paths of the modules `names`, and of their dependencies. A module that is built in or absent
/// has no path.
fn closure<'a>(table: &BTreeMap<&'a str, Vec<&'a str>>, names: &[&str]) -> BTreeSet<&'a str> {
    let mut paths = BTreeSet::new();
    for (path, needs) in table {
        if names.contains(&name_of(path)) {
            paths.insert(*path);
            paths.extend(needs);
        }
    }
    paths
}

/// `kernel/net/llc/llc.ko.xz` is `llc`.
fn name_of(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".ko").map_or(file, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_that_of_the_image_depended_on() {
        let split = "Package: linux-image-amd64\nDepends: linux-base-amd64 (= 7.3.4-1), \
                     linux-image-7.3.4+deb13-amd64 (= 7.3.4-1), linux-modules-amd64 (= 7.3.4-1)\n";
        assert_eq!(release_of(split).as_deref(), Some("7.3.4+deb13-amd64"));
        let whole = "Depends: linux-image-6.1.0-50-amd64 (= 6.1.176-1)\n";
        assert_eq!(release_of(whole).as_deref(), Some("6.1.0-50-amd64"));
        assert_eq!(release_of("Depends: linux-base\n"), None);
    }

    #[test]
    fn modules_come_with_what_they_need() {
        let table = "kernel/a/igb.ko.xz: kernel/b/dca.ko.xz kernel/c/i2c-algo-bit.ko.xz\n\
                     kernel/b/dca.ko.xz:\nkernel/c/i2c-algo-bit.ko.xz:\nkernel/d/other.ko:\n";
        let paths = closure(&dependencies(table), &["igb", "absent"]);
        let expected = ["kernel/a/igb.ko.xz", "kernel/b/dca.ko.xz", "kernel/c/i2c-algo-bit.ko.xz"];
        assert_eq!(paths.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(name_of("kernel/net/llc/llc.ko"), "llc");
    }
}
