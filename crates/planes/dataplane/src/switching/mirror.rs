//! The maps of a switch as an image of the bridge.

use super::{Standing, SwitchingError};
use narrows_bpf::{Location, Member, STATIONS_MAX, Station, Switch, VlanMembers};
use narrows_forwarding::PortId;
use narrows_link::switching::{Entry, EntryKind, SwitchEvent, SwitchFacts, SwitchMonitor, refresh};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The numbers of VLANs, and 0.
const VIDS: usize = 4095;
/// How soon everything is read again after an error.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two looks at who was heard.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(75)];

/// What was read, and what was written into the maps.
pub(super) struct Mirror {
    switch: Arc<Switch>,
    monitor: SwitchMonitor,
    /// Its ports, by the indices of their devices.
    ports: Vec<(u32, PortId)>,
    facts: SwitchFacts,
    vlans: Vec<VlanMembers>,
    /// The entries in the map.
    table: HashMap<Station, Entry>,
    /// Those that have no room there.
    left_out: HashSet<Station>,
    error: Option<String>,
}

impl Mirror {
    /// One that knows nothing, of `ports`, by the indices of their devices.
    pub(super) fn open(
        switch: Arc<Switch>,
        ports: Vec<(u32, PortId)>,
    ) -> Result<Self, SwitchingError> {
        Ok(Self {
            switch,
            // Before everything is read, so that no change is missed.
            monitor: SwitchMonitor::open()?,
            ports,
            facts: SwitchFacts::default(),
            vlans: vec![VlanMembers::default(); VIDS],
            table: HashMap::new(),
            left_out: HashSet::new(),
            error: None,
        })
    }

    pub(super) fn standing(&self) -> Standing {
        Standing { error: self.error.clone(), left_out: self.left_out.len() }
    }

    /// Follows the bridge until `end` is readable, and says in `shared` how that goes.
    pub(super) fn follow(mut self, end: &OwnedFd, shared: &Mutex<Standing>) {
        let mut looked = Instant::now();
        loop {
            let period = match &self.error {
                Some(_) => Some(RETRY),
                None => self.period(),
            };
            let left = match period {
                _ if self.monitor.has_kept() => Some(Duration::ZERO),
                Some(period) => Some(period.saturating_sub(looked.elapsed())),
                None => None,
            };
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut sources =
                [PollFd::new(end, PollFlags::IN), PollFd::new(&self.monitor, PollFlags::IN)];
            // An interruption is as good as an event.
            let _ = poll(&mut sources, left.as_ref());
            if !sources[0].revents().is_empty() {
                return;
            }
            let is_due = period.is_some_and(|period| looked.elapsed() >= period);
            let followed = self.catch_up().and_then(|()| match (is_due, &self.error) {
                (true, Some(_)) => self.read_all(),
                (true, None) => self.look_around(),
                (false, _) => Ok(()),
            });
            if is_due {
                looked = Instant::now();
            }
            if let Err(error) = followed {
                self.give_up(&error);
                looked = Instant::now();
            }
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = self.standing();
        }
    }

    /// Reads and writes everything.
    pub(super) fn read_all(&mut self) -> Result<(), SwitchingError> {
        self.read_ports()?;
        self.read_table()?;
        self.error = None;
        Ok(())
    }

    /// Takes in what the bridge has announced.
    fn catch_up(&mut self) -> Result<(), SwitchingError> {
        let bridge = self.facts.bridge.map(|bridge| bridge.ifindex);
        let events = self.monitor.events(bridge);
        if events.contains(&SwitchEvent::Overrun) {
            return self.read_all();
        }
        let before = self.facts.bridge.map(|bridge| (bridge.ifindex, bridge.tag_type));
        // First: where a port is blocked, that counts more than who is behind it.
        if events.contains(&SwitchEvent::Ports) {
            self.read_ports()?;
        }
        if self.facts.bridge.map(|bridge| (bridge.ifindex, bridge.tag_type)) != before {
            return self.read_table();
        }
        for event in events {
            match event {
                SwitchEvent::Put(entry) => self.put(entry)?,
                SwitchEvent::Gone(entry) => self.forget(station(&entry))?,
                SwitchEvent::Ports | SwitchEvent::Overrun => {}
            }
        }
        Ok(())
    }

    /// Lets no port forward in the driver until everything could be read.
    fn give_up(&mut self, error: &SwitchingError) {
        self.error = Some(error.to_string());
        self.facts = SwitchFacts::default();
        for (_, port) in &self.ports {
            // If that fails, too, programs go on with what they know.
            if let Err(error) = self.switch.set_member(*port, Member::default()) {
                log::error!("{error}");
            }
        }
    }

    fn read_ports(&mut self) -> Result<(), SwitchingError> {
        let devices: Vec<u32> = self.ports.iter().map(|(ifindex, _)| *ifindex).collect();
        let facts = SwitchFacts::read(&devices)?;
        if facts == self.facts {
            return Ok(());
        }
        for (vid, ports) in (0..).zip(vlans(&facts)) {
            let written = &mut self.vlans[usize::from(vid)];
            if *written != ports {
                self.switch.set_vlan(vid, ports).map_err(unwritten)?;
                *written = ports;
            }
        }
        for (number, (_, port)) in self.ports.iter().enumerate() {
            self.switch.set_member(*port, member(&facts, number)).map_err(unwritten)?;
        }
        self.facts = facts;
        Ok(())
    }

    fn read_table(&mut self) -> Result<(), SwitchingError> {
        let listed = match self.facts.bridge {
            Some(bridge) => self.monitor.table(bridge.ifindex)?,
            None => Vec::new(),
        };
        let listed: HashMap<Station, Entry> =
            listed.into_iter().map(|entry| (station(&entry), entry)).collect();
        let known = self.table.keys().chain(&self.left_out);
        // First, so that there is room for new ones.
        let gone: Vec<Station> = known.filter(|it| !listed.contains_key(it)).copied().collect();
        gone.into_iter().try_for_each(|station| self.forget(station))?;
        listed.into_values().try_for_each(|entry| self.put(entry))
    }

    fn put(&mut self, entry: Entry) -> Result<(), SwitchingError> {
        let station = station(&entry);
        let looks_at_tags = self.facts.bridge.is_some_and(|bridge| bridge.tag_type.is_some());
        // Others have no meaning now.
        let location = self.location(&entry).filter(|_| looks_at_tags == (entry.vid != 0));
        let Some(location) = location else { return self.forget(station) };
        if self.table.get(&station) == Some(&entry) {
            return Ok(());
        }
        if self.switch.put(station, location).map_err(unwritten)? {
            self.table.insert(station, entry);
            self.left_out.remove(&station);
        } else {
            self.left_out.insert(station);
        }
        Ok(())
    }

    fn forget(&mut self, station: Station) -> Result<(), SwitchingError> {
        self.left_out.remove(&station);
        if self.table.remove(&station).is_some() {
            self.switch.forget(station).map_err(unwritten)?;
        }
        Ok(())
    }

    /// Where the station of `entry` is; none if nobody may know.
    fn location(&self, entry: &Entry) -> Option<Location> {
        let port = self.ports.iter().find(|(ifindex, _)| *ifindex == entry.ifindex);
        match (entry.kind, port) {
            (EntryKind::Locked, _) => None,
            (EntryKind::Own, _) => Some(Location::Box),
            (EntryKind::Fixed | EntryKind::Learned, Some((_, port))) => Some(Location::Port(*port)),
            (EntryKind::Fixed | EntryKind::Learned, None) => Some(Location::Elsewhere),
        }
    }

    /// How often the bridge is told who was heard; none if it forgets nobody.
    fn period(&self) -> Option<Duration> {
        let bridge = self.facts.bridge.filter(|bridge| !bridge.ageing.is_zero())?;
        let ageing = bridge.ageing_in_change.map_or(bridge.ageing, |it| it.min(bridge.ageing));
        let [least, most] = LOOKS;
        Some((ageing / 4).clamp(least, most))
    }

    /// Does what is to be done from time to time.
    fn look_around(&mut self) -> Result<(), SwitchingError> {
        // Others may have gone meanwhile.
        if !self.left_out.is_empty() && self.table.len() < STATIONS_MAX as usize {
            self.read_table()?;
        }
        self.pass_on_heard()
    }

    /// Tells the bridge which stations were heard by programs.
    fn pass_on_heard(&mut self) -> Result<(), SwitchingError> {
        let learns = |entry: &&Entry| {
            let mut ports = self.facts.ports.iter();
            entry.kind == EntryKind::Learned
                && ports.any(|port| port.ifindex == entry.ifindex && port.learns)
        };
        let heard = self.switch.heard().map_err(unwritten)?;
        let heard = heard.iter().filter_map(|station| self.table.get(station)).filter(learns);
        let heard: Vec<Entry> = heard.copied().collect();
        for entry in &heard {
            // As not heard.
            if let Some(location) = self.location(entry) {
                self.switch.put(station(entry), location).map_err(unwritten)?;
            }
        }
        // A device may have gone, or a port no longer learn: then its entries go, too.
        if let Err(error) = refresh(&heard) {
            log::debug!("{error}");
        }
        Ok(())
    }
}

fn unwritten(error: impl std::fmt::Display) -> SwitchingError {
    SwitchingError::Maps(error.to_string())
}

fn station(entry: &Entry) -> Station {
    Station { mac: entry.mac, vid: entry.vid }
}

/// What programs know of the port with this number.
fn member(facts: &SwitchFacts, number: usize) -> Member {
    let (Some(bridge), Some(port)) = (facts.bridge, facts.ports.get(number)) else {
        return Member::default();
    };
    Member {
        forwards: port.forwards,
        isolated: port.isolated,
        special: port.special,
        mtu: port.mtu,
        pvid: port.vlans.iter().find(|vlans| vlans.is_pvid).map_or(0, |vlans| vlans.first),
        tag_type: bridge.tag_type,
    }
}

/// The ports that forward frames of each VLAN.
fn vlans(facts: &SwitchFacts) -> Vec<VlanMembers> {
    let mut vlans = vec![VlanMembers::default(); VIDS];
    let looks_at_tags = facts.bridge.is_some_and(|bridge| bridge.tag_type.is_some());
    for (number, port) in facts.ports.iter().enumerate().filter(|(_, port)| port.forwards) {
        let bit = 1 << number;
        if !looks_at_tags {
            vlans[0].members |= bit;
        }
        for its in port.vlans.iter().filter(|its| its.forwards && looks_at_tags) {
            for vlan in vlans.iter_mut().take(usize::from(its.last) + 1).skip(its.first.into()) {
                vlan.members |= bit;
                vlan.untagged |= if its.untagged { bit } else { 0 };
            }
        }
    }
    vlans
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_link::switching::{Bridge, PortVlans, SwitchPort};

    fn port(vlans: &[PortVlans]) -> SwitchPort {
        SwitchPort { forwards: true, mtu: 1500, vlans: vlans.to_vec(), ..SwitchPort::default() }
    }

    fn facts(tag_type: Option<u16>, ports: Vec<SwitchPort>) -> SwitchFacts {
        SwitchFacts { bridge: Some(Bridge { tag_type, ..Bridge::default() }), ports }
    }

    #[test]
    fn a_bridge_that_does_not_look_at_tags_has_one_vlan_with_all_ports_that_forward() {
        let blocked = SwitchPort { forwards: false, ..port(&[]) };
        let facts = facts(None, vec![port(&[]), blocked, port(&[])]);
        let vlans = vlans(&facts);
        assert_eq!(vlans[0], VlanMembers { members: 0b101, untagged: 0 });
        assert!(vlans[1..].iter().all(|vlan| *vlan == VlanMembers::default()));
        assert!(!member(&facts, 1).forwards && member(&facts, 2).forwards);
        assert_eq!(member(&facts, 3), Member::default());
    }

    #[test]
    fn each_port_is_in_its_vlans_where_spanning_tree_lets_it() {
        let range = |first, last, untagged, forwards| PortVlans {
            first,
            last,
            untagged,
            forwards,
            is_pvid: untagged,
        };
        let trunk = port(&[range(10, 12, false, true), range(20, 20, false, false)]);
        let access = port(&[range(11, 11, true, true)]);
        let facts = facts(Some(0x8100), vec![trunk, access]);
        let vlans = vlans(&facts);
        assert_eq!(vlans[0], VlanMembers::default());
        assert_eq!(vlans[11], VlanMembers { members: 0b11, untagged: 0b10 });
        for vid in [10, 12] {
            assert_eq!(vlans[vid], VlanMembers { members: 1, untagged: 0 });
        }
        assert_eq!(vlans[20], VlanMembers::default());
        assert_eq!((member(&facts, 0).pvid, member(&facts, 1).pvid), (0, 11));
    }
}
