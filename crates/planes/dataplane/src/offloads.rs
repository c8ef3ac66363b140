//! Offloads that would corrupt forwarded frames: off before the first frame, kept off, and restored
//! at the end.
//!
//! They are checked on kernel notifications of changed settings, and every second, since changes in
//! another namespace cause no notification. The original settings are written under `/run/narrows`
//! before they change: a killed instance restores nothing, but the next one on the same ports knows
//! what to restore at its own end. An offload that cannot be turned off is reported with the
//! command to try, also in `narrows show`.

use crate::control;
use crate::events::Events;
use crate::record;
use narrows_bpf::{Hook, XdpMode};
use narrows_forwarding::{Forwarding, PerDevice};
use narrows_link::{Features, Harm, Link, Offload, Offloads, PeerId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An interface whose offloads can be switched.
pub(crate) trait Switches {
    fn name(&self) -> &str;
    fn offloads(&self) -> Option<Offloads>;
    fn switch(&self, offload: Offload, on: bool) -> Result<(), String>;
    fn command(&self, offload: Offload, on: bool) -> String;
}

impl Switches for Features {
    fn name(&self) -> &str {
        self.name()
    }

    fn offloads(&self) -> Option<Offloads> {
        self.offloads()
    }

    fn switch(&self, offload: Offload, on: bool) -> Result<(), String> {
        self.set(offload, on).map_err(|error| error.to_string())
    }

    fn command(&self, offload: Offload, on: bool) -> String {
        self.command(offload, on)
    }
}

/// Something that was on before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct WasOn {
    /// Our port.
    port: String,
    /// Whether it is the port's peer.
    peer: bool,
    offload: Offload,
}

/// An interface that is watched.
struct Watched<D> {
    port: String,
    /// Whether it is not the port itself, but its peer.
    peer: Option<PeerId>,
    device: D,
    spoils: &'static [Offload],
}

/// Keeps harmful offloads of the ports off, and restores them at the end.
pub(crate) struct Repairs<D = Features> {
    record: PathBuf,
    watched: Vec<Watched<D>>,
    was_on: Vec<WasOn>,
    /// Offloads that cannot be switched off, in words.
    stubborn: Vec<String>,
    /// Interfaces that cannot be read, in words.
    unreached: Vec<String>,
    /// What an offload does to frames.
    harm: &'static Harm,
}

impl Repairs {
    /// For the devices of `ports`. Opens the peers of veths, which the process may no longer do
    /// once it has dropped its privileges.
    pub(crate) fn reach(ports: &Forwarding) -> Self {
        let mut repairs = Self::new(control::record(ports, control::OFFLOADS));
        let native = ports.devices().iter().map(|_| Hook::Xdp(XdpMode::Native)).collect();
        repairs.watch(ports, &native);
        repairs
    }

    /// Records the devices of `ports` and their peers as they are now. `hooks` tells where programs
    /// run, or will run.
    pub(crate) fn watch(&mut self, ports: &Forwarding, hooks: &PerDevice<Hook>) {
        self.harm = Harm::to(ports);
        let mut before = std::mem::take(&mut self.watched);
        self.unreached.clear();
        for (port, hook) in ports.devices().iter().zip(hooks) {
            // There a packet keeps what is still to be done to it.
            let Some(mode) = hook.xdp_mode() else {
                self.add(port, None, Features::here(port).ok(), Offload::AT_TCX);
                continue;
            };
            let generic = mode == XdpMode::Generic;
            let Ok(link) = Link::by_name(port) else { continue };
            let Some(end) = link.status.peer.filter(|_| link.status.is_veth()) else {
                self.add(port, None, Features::here(port).ok(), Offload::of_port(generic));
                continue;
            };
            let same = |old: &Watched<Features>| old.port == *port && old.peer == Some(end);
            let kept = before.iter().position(same).map(|at| before.swap_remove(at).device);
            let device = kept.or_else(|| Features::peer_of(&link));
            if device.is_none() {
                self.unreached.push(format!(
                    "{port}: its other end is in a network namespace that cannot be entered now; if \
                     it leaves checksums or tags to the device, what it sends is spoilt; try: ethtool -K \
                     PEER {} (there)",
                    Offload::PEER_WORDS
                ));
            }
            self.add(port, Some(end), device, self.harm.of_peer);
            // Only the stack splits or merges packets that a veth receives.
            if generic {
                self.add(port, None, Features::here(port).ok(), &[Offload::Gro]);
            }
        }
    }

    fn add(
        &mut self,
        port: &str,
        peer: Option<PeerId>,
        device: Option<Features>,
        spoils: &'static [Offload],
    ) {
        let watched = device.map(|device| Watched { port: port.to_owned(), peer, device, spoils });
        self.watched.extend(watched);
    }
}

impl<D: Switches> Repairs<D> {
    /// With the offloads that an earlier instance recorded in `record` and did not restore.
    pub(crate) fn new(record: PathBuf) -> Self {
        let was_on = record::read(&record);
        Self {
            record,
            watched: Vec::new(),
            was_on,
            stubborn: Vec::new(),
            unreached: Vec::new(),
            harm: &Harm::WIRE,
        }
    }

    /// Switches off harmful offloads.
    pub(crate) fn repair(&mut self, events: &mut Events) {
        let mut stubborn = Vec::new();
        for watched in &self.watched {
            let Watched { port, peer, device, spoils } = watched;
            let Some(now) = device.offloads() else { continue };
            let whose = if peer.is_some() {
                format!("{port}: its peer {} had", device.name())
            } else {
                format!("{port} had")
            };
            let (mut words, mut harms) = (Vec::new(), Vec::new());
            for &offload in spoils.iter().filter(|offload| offload.is_on(&now)) {
                let entry = WasOn { port: port.clone(), peer: peer.is_some(), offload };
                if !self.was_on.contains(&entry) {
                    self.was_on.push(entry.clone());
                    if let Err(error) = record::write(&self.record, &self.was_on) {
                        log::warn!(
                            "cannot record the offloads that were on in {:?}: {error}",
                            self.record
                        );
                    }
                }
                match device.switch(offload, false) {
                    Ok(()) => {
                        words.push(offload.word());
                        harms.push((self.harm.of)(offload));
                    }
                    Err(error) => {
                        self.was_on.retain(|other| *other != entry);
                        let remedy = device.command(offload, false);
                        stubborn.push(format!(
                            "{whose} {} on: {}, and stays: {error}; try: {remedy}",
                            offload.word(),
                            (self.harm.of)(offload)
                        ));
                    }
                }
            }
            // One event for all of them, so that events are left for what happens later.
            if !words.is_empty() {
                let (words, harms) = (words.join(", "), harms.join("; "));
                events
                    .warn(format!("{whose} {words} on: {harms}; switched off until Narrows ends"));
            }
        }
        for news in stubborn.iter().filter(|one| !self.stubborn.contains(one)) {
            events.warn(news.clone());
        }
        self.stubborn = stubborn;
    }

    /// Harmful offloads that cannot be switched off.
    pub(crate) fn stubborn(&self) -> &[String] {
        &self.stubborn
    }

    /// Interfaces that cannot be read.
    pub(crate) fn unreached(&self) -> &[String] {
        &self.unreached
    }

    /// Restores the original offloads.
    pub(crate) fn undo(&mut self) {
        for WasOn { port, peer, offload } in self.was_on.drain(..) {
            let its =
                |watched: &&Watched<D>| watched.port == port && watched.peer.is_some() == peer;
            let Some(watched) = self.watched.iter().find(its) else { continue };
            match watched.device.switch(offload, true) {
                Ok(()) => log::debug!("{}: {} is on again", watched.device.name(), offload.word()),
                Err(error) => log::warn!("{}: {error}", watched.device.name()),
            }
        }
        // There is no file if nothing was switched off.
        let _ = std::fs::remove_file(&self.record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// An interface whose driver can change all offloads except `fixed`.
    #[derive(Clone)]
    struct Fake {
        name: &'static str,
        now: Rc<RefCell<Offloads>>,
        fixed: Option<Offload>,
    }

    impl Switches for Fake {
        fn name(&self) -> &str {
            self.name
        }

        fn offloads(&self) -> Option<Offloads> {
            Some(*self.now.borrow())
        }

        fn switch(&self, offload: Offload, on: bool) -> Result<(), String> {
            if self.fixed == Some(offload) {
                return Err("not supported".into());
            }
            let mut now = self.now.borrow_mut();
            match offload {
                Offload::RxVlan => now.rx_vlan = on,
                Offload::TxVlan => now.tx_vlan = on,
                Offload::RxServiceTag => now.rx_service_tag = on,
                Offload::TxServiceTag => now.tx_service_tag = on,
                Offload::Lro => now.lro = on,
                Offload::GroHw => now.gro_hw = on,
                Offload::Gro => now.gro = on,
                Offload::TxChecksum => now.tx_checksum = on,
            }
            Ok(())
        }

        fn command(&self, offload: Offload, _: bool) -> String {
            format!("ethtool -K {} {} off", self.name, offload.word())
        }
    }

    /// A folder of this test's own, removed when this is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("nrw-offloads-{}-{name}", std::process::id())))
        }

        fn record(&self) -> PathBuf {
            self.0.join("eth1,eth2.offloads")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn nic(fixed: Option<Offload>) -> Fake {
        let on = Offloads { rx_vlan: true, lro: true, gro: true, ..Offloads::default() };
        Fake { name: "eth1", now: Rc::new(RefCell::new(on)), fixed }
    }

    fn watching(folder: &Folder, device: &Fake, generic: bool) -> Repairs<Fake> {
        let mut repairs = Repairs::new(folder.record());
        let spoils = Offload::of_port(generic);
        let watched = Watched { port: "eth1".into(), peer: None, device: device.clone(), spoils };
        repairs.watched.push(watched);
        repairs
    }

    #[test]
    fn harmful_offloads_are_off_while_narrows_runs_and_restored_afterwards() {
        let folder = Folder::new("round");
        let (nic, mut events) = (nic(None), Events::default());
        let mut repairs = watching(&folder, &nic, false);
        repairs.repair(&mut events);
        let now = *nic.now.borrow();
        // The stack merges behind native XDP, where it does no harm.
        assert!(!now.rx_vlan && !now.lro && now.gro, "{now:?}");
        assert_eq!(events.list().len(), 1);
        let said = "eth1 had rxvlan, lro on: tagged frames pass without their tag; ";
        assert!(events.list()[0].starts_with(said), "{:?}", events.list());
        repairs.undo();
        let now = *nic.now.borrow();
        assert!(now.rx_vlan && now.lro && now.gro, "{now:?}");
        assert!(!folder.record().exists());
    }

    #[test]
    fn generic_xdp_has_the_stack_merge_nothing() {
        let folder = Folder::new("generic");
        let (nic, mut events) = (nic(None), Events::default());
        watching(&folder, &nic, true).repair(&mut events);
        assert!(!nic.now.borrow().gro);
    }

    #[test]
    fn offloads_switched_on_later_are_switched_off_and_reported() {
        let folder = Folder::new("later");
        let (nic, mut events) = (nic(None), Events::default());
        let mut repairs = watching(&folder, &nic, false);
        repairs.repair(&mut events);
        nic.now.borrow_mut().rx_vlan = true;
        repairs.repair(&mut events);
        repairs.repair(&mut events);
        assert!(!nic.now.borrow().rx_vlan);
        assert_eq!(events.list().len(), 2, "{:?}", events.list());
    }

    #[test]
    fn the_instance_after_a_killed_one_knows_the_original_offloads() {
        let folder = Folder::new("killed");
        let (nic, mut events) = (nic(None), Events::default());
        watching(&folder, &nic, false).repair(&mut events);
        assert!(!nic.now.borrow().rx_vlan, "killed, so off it stays");
        let mut next = watching(&folder, &nic, false);
        next.repair(&mut events);
        next.undo();
        let now = *nic.now.borrow();
        assert!(now.rx_vlan && now.lro, "{now:?}");
    }

    #[test]
    fn fixed_offloads_are_reported_once_with_the_command() {
        let folder = Folder::new("fixed");
        let (nic, mut events) = (nic(Some(Offload::RxVlan)), Events::default());
        let mut repairs = watching(&folder, &nic, false);
        repairs.repair(&mut events);
        repairs.repair(&mut events);
        let said = events.list();
        assert_eq!(said.iter().filter(|event| event.contains("rxvlan")).count(), 1, "{said:?}");
        assert_eq!(repairs.stubborn().len(), 1);
        assert!(repairs.stubborn()[0].ends_with("try: ethtool -K eth1 rxvlan off"));
        repairs.undo();
        assert!(nic.now.borrow().rx_vlan && nic.now.borrow().lro);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_no_record() {
        let folder = Folder::new("nonsense");
        std::fs::create_dir_all(&folder.0).unwrap();
        for text in ["", "{", "[1]", "[{\"port\":\"eth1\"}]", "\0\0"] {
            std::fs::write(folder.record(), text).unwrap();
            assert_eq!(Repairs::<Fake>::new(folder.record()).was_on, [], "{text:?}");
        }
    }
}
