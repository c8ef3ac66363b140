//! The interfaces of this host, as choices.

use std::fs;
use std::path::Path;

/// The kernel's list for this network namespace.
const LIST: &str = "/sys/class/net";

/// An interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Interface {
    pub name: String,
    /// A short description: its state and its driver.
    pub what: String,
}

/// The possible ports: all but the loopback interface, by name.
pub fn list() -> Vec<Interface> {
    let entries = fs::read_dir(LIST).into_iter().flatten().flatten();
    let mut all: Vec<Interface> = entries.filter_map(|entry| of(&entry.path())).collect();
    all.sort();
    all
}

fn of(folder: &Path) -> Option<Interface> {
    /// The type of the loopback interface: ARPHRD_LOOPBACK of `if_arp.h`.
    const LOOPBACK: &str = "772";
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    if read("type")?.trim() == LOOPBACK {
        return None;
    }
    // Only an interface that is up reports its carrier.
    let state = match read("carrier").as_deref().map(str::trim) {
        Some("1") => "has a link",
        Some(_) => "no link: is the cable in?",
        None => "down",
    };
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let what = match driver {
        Some(driver) => format!("{state}, driver {driver}"),
        None => state.to_owned(),
    };
    Some(Interface { name: folder.file_name()?.to_string_lossy().into_owned(), what })
}
