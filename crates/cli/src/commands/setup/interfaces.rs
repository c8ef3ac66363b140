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

/// The possible ports, by name: all but the loopback interface, and what is made of other
/// interfaces: bridges, among them the one that Narrows leaves behind, and ifbs.
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
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let is_made = folder.join("bridge").exists() || narrows_policy::is_intermediate(&name);
    if is_made || read("type")?.trim() == LOOPBACK {
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
    Some(Interface { name, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env::temp_dir;

    #[test]
    fn bridges_ifbs_and_the_loopback_device_are_not_offered() {
        let root = temp_dir().join(format!("narrows-interfaces-{}", std::process::id()));
        for (name, kind) in [("lo", "772"), ("eth1", "1"), ("nrwbr2", "1"), ("ifb4ppp0", "1")] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("type"), format!("{kind}\n")).unwrap();
        }
        fs::create_dir(root.join("nrwbr2/bridge")).unwrap();
        let offered = |name: &str| of(&root.join(name)).map(|one| one.what);
        assert_eq!(offered("eth1").as_deref(), Some("down"));
        assert_eq!(["lo", "nrwbr2", "ifb4ppp0"].map(offered), [None, None, None]);
        fs::remove_dir_all(root).unwrap();
    }
}
