//! Which ports' qdiscs need the addresses before translation (`cake nat`), and whether the kernel
//! offers them.
//!
//! On a stock kernel the lookup is in a module that is loaded on demand, which may be long after
//! the start, or never. So a port that needs it and cannot have it keeps forwarding and identifies
//! hosts by the addresses in the frames, says so once, and uses the lookup as soon as the module is
//! loaded.

use crate::events::Events;
use narrows_bpf::SteerError;
use narrows_shaper::Side;
use std::path::Path;

/// The file whose presence shows connection tracking, as a module or built in.
const MODULE: &str = "/sys/module/nf_conntrack";

/// Which ports need the kernel's connection tracking, and whether it is there.
#[derive(Default)]
pub(crate) struct LookUps {
    wanted: [bool; 2],
    lacking: [bool; 2],
    /// Whether the module was present at the last check.
    was_there: bool,
}

/// A switch for the look-ups of a port's departing packets.
pub(crate) trait LooksUp {
    fn look_up(&mut self, egress: Side, wanted: bool) -> Result<(), SteerError>;
}

impl LookUps {
    /// Enables look-ups for the ports in `wanted`, and for no others.
    pub(crate) fn set(
        &mut self,
        wanted: [bool; 2],
        who: &mut (impl LooksUp + ?Sized),
        ports: &[String; 2],
        events: &mut Events,
    ) {
        self.wanted = wanted;
        self.was_there = is_there();
        for side in Side::BOTH {
            self.ask(side, who, &ports[side.index()], events);
        }
    }

    /// Tries missing look-ups again, if the kernel may support them now.
    pub(crate) fn retry(
        &mut self,
        who: &mut (impl LooksUp + ?Sized),
        ports: &[String; 2],
        events: &mut Events,
    ) {
        if self.lacking == [false, false] || is_there() == self.was_there {
            return;
        }
        self.was_there = !self.was_there;
        for side in Side::BOTH {
            if self.lacking[side.index()] {
                self.ask(side, who, &ports[side.index()], events);
            }
        }
    }

    fn ask(
        &mut self,
        side: Side,
        who: &mut (impl LooksUp + ?Sized),
        port: &str,
        events: &mut Events,
    ) {
        let index = side.index();
        let wanted = self.wanted[index];
        match who.look_up(side, wanted) {
            Ok(()) if self.lacking[index] && wanted => {
                self.lacking[index] = false;
                events
                    .say(format!("{port}: cake nat: the kernel offers the conntrack look-up now"));
            }
            Ok(()) => self.lacking[index] = false,
            Err(error @ SteerError::NoLookUp(_)) => {
                self.lacking[index] = true;
                let remedy = if self.was_there {
                    "functions of a module need CAP_SYS_ADMIN, or root"
                } else {
                    "modprobe nf_conntrack brings it, without a restart"
                };
                events.warn(format!(
                    "{port}: cake nat: {error}; the addresses in the frames identify \
                     hosts ({remedy})"
                ));
            }
            Err(error) => events.warn(format!("{port}: cake nat: {error}")),
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
        fn look_up(&mut self, egress: Side, wanted: bool) -> Result<(), SteerError> {
            if wanted && !self.offers {
                let function = "bpf_xdp_ct_lookup".to_owned();
                return Err(SteerError::NoLookUp(LoadError::Missing { function }));
            }
            self.looks_up[egress.index()] = wanted;
            Ok(())
        }
    }

    fn ports() -> [String; 2] {
        ["eth1".to_owned(), "eth2".to_owned()]
    }

    #[test]
    fn later_findings_are_reported_once_without_a_restart() {
        let (mut kernel, mut look_ups, mut events) =
            (Kernel::default(), LookUps::default(), Events::default());
        look_ups.set([false, true], &mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
        let said = events.list();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("eth2: cake nat: ") && said[0].contains("bpf_xdp_ct_lookup"));

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
        look_ups.set([true, true], &mut kernel, &ports(), &mut events);
        kernel.offers = true;
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
    }

    #[test]
    fn unneeded_look_ups_are_no_longer_missing() {
        let (mut kernel, mut look_ups, mut events) =
            (Kernel::default(), LookUps::default(), Events::default());
        look_ups.set([true, false], &mut kernel, &ports(), &mut events);
        look_ups.set([false, false], &mut kernel, &ports(), &mut events);
        kernel.offers = true;
        look_ups.was_there = !is_there();
        look_ups.retry(&mut kernel, &ports(), &mut events);
        assert_eq!(kernel.looks_up, [false, false]);
        assert_eq!(events.list().len(), 1);
    }
}
