//! Which ports' qdiscs need the addresses before translation (`nat` of `cake` and `fq_codel`), and
//! whether the kernel offers them.
//!
//! On a stock kernel the lookup is in a module that is loaded on demand, which may be long after
//! the start, or never. So a port that needs it and cannot have it keeps forwarding and identifies
//! hosts by the addresses in the frames, says so once, and uses the lookup as soon as the module is
//! loaded.

use crate::events::Events;
use narrows_bpf::SteerError;
use narrows_forwarding::{Forwarding, PerPort, PortId};
use std::path::Path;

/// The file whose presence shows connection tracking, as a module or built in.
const MODULE: &str = "/sys/module/nf_conntrack";

/// Which ports need the kernel's connection tracking, and whether it is there.
#[derive(Default)]
pub(crate) struct LookUps {
    wanted: PerPort<bool>,
    lacking: PerPort<bool>,
    /// Whether the module was present at the last check.
    was_there: bool,
}

/// A switch for the look-ups of a port's departing packets.
pub(crate) trait LooksUp {
    fn look_up(&mut self, egress: PortId, wanted: bool) -> Result<(), SteerError>;
}

impl LookUps {
    /// Enables look-ups for the ports in `wanted`, and for no others.
    pub(crate) fn set(
        &mut self,
        wanted: PerPort<bool>,
        who: &mut (impl LooksUp + ?Sized),
        ports: &Forwarding,
        events: &mut Events,
    ) {
        self.lacking.resize(wanted.len(), false);
        self.wanted = wanted;
        self.was_there = is_there();
        for port in ports.ids() {
            self.ask(port, who, ports.name(port), events);
        }
    }

    /// Tries missing look-ups again, if the kernel may support them now.
    pub(crate) fn retry(
        &mut self,
        who: &mut (impl LooksUp + ?Sized),
        ports: &Forwarding,
        events: &mut Events,
    ) {
        if !self.lacking.contains(&true) || is_there() == self.was_there {
            return;
        }
        self.was_there = !self.was_there;
        for port in ports.ids() {
            if self.lacking[port] {
                self.ask(port, who, ports.name(port), events);
            }
        }
    }

    fn ask(
        &mut self,
        port: PortId,
        who: &mut (impl LooksUp + ?Sized),
        name: &str,
        events: &mut Events,
    ) {
        let wanted = self.wanted[port];
        match who.look_up(port, wanted) {
            Ok(()) if self.lacking[port] && wanted => {
                self.lacking[port] = false;
                events.say(format!("{name}: nat: the kernel offers the conntrack look-up now"));
            }
            Ok(()) => self.lacking[port] = false,
            Err(error @ SteerError::NoLookUp(_)) => {
                self.lacking[port] = true;
                let remedy = if self.was_there {
                    "functions of a module need CAP_SYS_ADMIN, or root"
                } else {
                    "modprobe nf_conntrack brings it, without a restart"
                };
                events.warn(format!(
                    "{name}: nat: {error}; the addresses in the frames identify \
                     hosts ({remedy})"
                ));
            }
            Err(error) => events.warn(format!("{name}: nat: {error}")),
        }
    }
}

fn is_there() -> bool {
    Path::new(MODULE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_bpf::LoadError;

    /// A kernel that offers the look-up, or does not yet.
    #[derive(Default)]
    struct Kernel {
        offers: bool,
        looks_up: [bool; 2],
    }

    impl LooksUp for Kernel {
        fn look_up(&mut self, egress: PortId, wanted: bool) -> Result<(), SteerError> {
            if wanted && !self.offers {
                let function = "bpf_xdp_ct_lookup".to_owned();
                return Err(SteerError::NoLookUp(LoadError::Missing { function }));
            }
            self.looks_up[egress.index()] = wanted;
            Ok(())
        }
    }

    fn ports() -> Forwarding {
        Forwarding::wire("eth1", "eth2").unwrap()
    }

    #[test]
    fn later_findings_are_reported_once_without_a_restart() {
        let (mut kernel, mut look_ups, mut events) =
            (Kernel::default(), LookUps::default(), Events::default());
        look_ups.set(vec![false, true].into(), &mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
        let said = events.list();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("eth2: nat: ") && said[0].contains("bpf_xdp_ct_lookup"));

        kernel.offers = true;
        // As if the module had not been there: whether it is on this machine does not matter.
        look_ups.was_there = !is_there();
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, true]);
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(events.list().len(), 2, "{:?}", events.list());
    }

    #[test]
    fn unchanged_look_ups_are_not_repeated() {
        let (mut kernel, mut look_ups, mut events) =
            (Kernel::default(), LookUps::default(), Events::default());
        look_ups.set(vec![true, true].into(), &mut kernel, &ports(), &mut events);
        kernel.offers = true;
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
    }

    #[test]
    fn unneeded_look_ups_are_no_longer_missing() {
        let (mut kernel, mut look_ups, mut events) =
            (Kernel::default(), LookUps::default(), Events::default());
        look_ups.set(vec![true, false].into(), &mut kernel, &ports(), &mut events);
        look_ups.set(vec![false, false].into(), &mut kernel, &ports(), &mut events);
        kernel.offers = true;
        look_ups.was_there = !is_there();
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
        assert_eq!(events.list().len(), 1);
    }
}
