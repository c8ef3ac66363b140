//! The standby bridge is damaged: Narrows repairs it, and the traffic that Narrows itself forwards
//! is not affected.

use super::{Fault, NOISE, PROMISED, Trace, millis};
use crate::bed::{PORT_A, PORT_B};
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::thread;
use std::time::{Duration, Instant};

/// How long the bridge may be unfit: Narrows checks it at least every second.
const MENDED_WITHIN: Duration = PROMISED.saturating_add(NOISE);
/// How often the kernel is asked.
const POLL: Duration = Duration::from_millis(10);

/// The fault of the bridge.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Deleted,
    Down,
    Without(&'static str),
}

const DAMAGES: [Damage; 4] =
    [Damage::Deleted, Damage::Down, Damage::Without(PORT_A), Damage::Without(PORT_B)];

#[derive(Debug)]
pub(super) struct Spoilt {
    damage: Damage,
}

impl Spoilt {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { damage: rng.pick(&DAMAGES) }
    }
}

impl Fault for Spoilt {
    fn describe(&self) -> String {
        match self.damage {
            Damage::Deleted => "the standby bridge is deleted".to_owned(),
            Damage::Down => "the standby bridge is set down".to_owned(),
            Damage::Without(port) => format!("{port} is taken out of the standby bridge"),
        }
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let bridge = world.show()?.standby().context("no bridge stands by")?.to_owned();
        world.ip(&match self.damage {
            Damage::Deleted => format!("link del {bridge}"),
            Damage::Down => format!("link set dev {bridge} down"),
            Damage::Without(port) => format!("link set dev {port} nomaster"),
        })?;
        let spoilt = Instant::now();
        // Narrows' own statement is no proof, so the kernel is asked.
        while !stands_by(&bridge, &world.ip("-j link show")?)? {
            if spoilt.elapsed() > MENDED_WITHIN {
                let broken = format!("the bridge is not mended within {}", millis(MENDED_WITHIN));
                return Ok(Trace { broken: Some(broken), ..Trace::default() });
            }
            thread::sleep(POLL);
        }
        Ok(Trace::default())
    }
}

/// A device, as `ip -j link show` says it is.
#[derive(Deserialize)]
struct Link {
    ifname: String,
    flags: Vec<String>,
    #[serde(default)]
    master: String,
}

/// Whether `bridge` is up and has both ports, by what `ip -j link show` printed.
fn stands_by(bridge: &str, links: &str) -> Result<bool> {
    let links: Vec<Link> = serde_json::from_str(links).context("ip does not list the links")?;
    let is_up = |link: &Link| link.ifname == bridge && link.flags.iter().any(|flag| flag == "UP");
    let has = |port: &str| links.iter().any(|link| link.ifname == port && link.master == bridge);
    Ok(links.iter().any(is_up) && has(PORT_A) && has(PORT_B))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"[
        {"ifname":"lo","flags":["LOOPBACK","UP"]},
        {"ifname":"port-a","flags":["UP"],"master":"nrwbr2"},
        {"ifname":"port-b","flags":["UP"],"master":"nrwbr2"},
        {"ifname":"nrwbr2","flags":["BROADCAST","UP"]}]"#;

    #[test]
    fn a_bridge_that_is_up_and_has_both_ports_stands_by() {
        assert!(stands_by("nrwbr2", WHOLE).unwrap());
    }

    #[test]
    fn a_bridge_that_is_gone_down_or_incomplete_does_not_forward() {
        assert!(!stands_by("nrwbr3", WHOLE).unwrap());
        for (was, is) in [
            (r#""BROADCAST","UP""#, r#""BROADCAST""#),
            (r#""port-a","flags":["UP"],"master":"nrwbr2""#, r#""port-a","flags":["UP"]"#),
            (r#""port-b","flags":["UP"],"master":"nrwbr2""#, r#""port-b","flags":["UP"]"#),
        ] {
            let spoilt = WHOLE.replace(was, is);
            assert_ne!(spoilt, WHOLE);
            assert!(!stands_by("nrwbr2", &spoilt).unwrap(), "{spoilt}");
        }
    }
}
