//! Wires between namespaces that exist: a switch, and a cable from each to it. A wire can be cut.
//! A switch of Narrows can [take over](Wires::carry) from the kernel's, so that `netem` may delay
//! and lose what the namespaces send to each other, on kernels without it, too.

use crate::bed::{OFFLOADS, batch, ip};
use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::narrows::Instance;
use crate::requirements::{self, ETHTOOL, IP};
use crate::stale;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The device in each namespace.
pub const DEVICE: &str = "fleet0";

/// Numbers the switches of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The address of the namespace `number`, from 0 on.
pub fn address(number: usize) -> Ipv4Addr {
    let [high, low] = (number as u16 + 1).to_be_bytes();
    Ipv4Addr::new(10, 9, high, low)
}

/// The port of the switch that leads to the namespace `number`.
pub(crate) fn port(number: usize) -> String {
    format!("to{number}")
}

/// The switch. Removed when dropped, or when this process ends in any other way; its cables go with
/// it.
#[derive(Debug)]
pub struct Wires {
    switch: Namespace,
    // Last, so that it is dropped after everything above.
    _guard: Guard,
}

impl Wires {
    /// Connects `namespaces`, each with [`DEVICE`] at its [`address`].
    pub fn between(namespaces: &[Namespace]) -> Result<Self> {
        requirements::check(&[IP])?;
        stale::sweep()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", stale::OF_SWITCH, std::process::id());
        let guard = Guard::over(&[&name])?;
        let switch = Namespace::create(&name)?;
        let wires = Self { switch, _guard: guard };
        ip(&wires.switch, "link add name switch type bridge")?;
        ip(&wires.switch, "link set dev switch up")?;
        for (number, namespace) in namespaces.iter().enumerate() {
            let (inside, address, port) = (namespace.name(), address(number), port(number));
            let lines = format!(
                "link add name {port} type veth peer name {DEVICE} netns {inside}\n\
                 link set dev {port} master switch\nlink set dev {port} up\n"
            );
            batch(&["-netns", wires.switch.name()], &lines)?;
            let lines = format!(
                "address add {address}/16 dev {DEVICE}\nlink set dev {DEVICE} up\n\
                 link set dev lo up\n"
            );
            batch(&["-netns", inside], &lines)?;
        }
        Ok(wires)
    }

    /// Has `program`, Narrows, switch between `namespaces`, those that are connected. What stays
    /// with the kernel's switch is what it floods.
    pub fn carry(&self, program: &Path, namespaces: &[Namespace]) -> Result<Instance> {
        requirements::check(&[ETHTOOL])?;
        for namespace in namespaces {
            // Frames reach the switch as they are on a wire: with checksums, and not joined.
            namespace.run("ethtool", &[&["-K", DEVICE], &OFFLOADS[..]].concat())?;
        }
        let ports: Vec<String> = (0..namespaces.len()).map(port).collect();
        Instance::start_in(&self.switch, program, &["run", "--switch", &ports.join(",")])
    }

    /// Cuts the wire to the namespace `number`, or mends it.
    pub fn set(&self, number: usize, is_whole: bool) -> Result<()> {
        let state = if is_whole { "up" } else { "down" };
        ip(&self.switch, &format!("link set dev {} {state}", port(number))).map(drop)
    }
}
