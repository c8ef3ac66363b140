//! Frames must fit into a buffer, and through both ports.

use super::drivers::support;
use super::{Finding, KernelVersion, Wanted, WantedPlane};
use crate::{Buffer, Link, Receiver};
use narrows_escape::shell;

/// The first version in which AF_XDP receives frames of several buffers.
const MULTI_BUFFER: KernelVersion = KernelVersion::new(6, 6);
/// The first version in which XDP programs see such frames.
const FRAGMENTS: KernelVersion = KernelVersion::new(5, 18);

pub(super) fn fits(link: &Link, wanted: &Wanted, kernel: &KernelVersion) -> Finding {
    let name = link.name();
    let mtu = link.status.mtu;
    let large = Receiver::Kernel.single_buffer_mtu();
    let Buffer { size, several: false } = Receiver::Kernel.buffer_for(mtu) else {
        return needs_several(link, wanted, kernel, large);
    };
    let zero_copy = Receiver::Device.single_buffer_mtu();
    if wanted.plane != WantedPlane::Xsk {
        return Finding::ok(name, format!("MTU {mtu} fits into one buffer"));
    }
    if mtu > zero_copy {
        let what = format!(
            "MTU {mtu} fits into buffers of {size} bytes, but in zero copy takes several above \
             {zero_copy}"
        );
        return Finding::note(name, what);
    }
    Finding::ok(name, format!("MTU {mtu} fits into buffers of {size} bytes (4096 in zero copy)"))
}

/// Judges an MTU above `large`, for which one buffer is too small.
fn needs_several(link: &Link, wanted: &Wanted, kernel: &KernelVersion, large: u32) -> Finding {
    let name = link.name();
    let mtu = link.status.mtu;
    let shrink = format!("ip link set dev {} mtu {large}", shell(name));
    let refuse = |why: &str| {
        let what = format!("MTU {mtu}: frames above {large} bytes need several buffers, {why}");
        Finding::blocker(name, what).remedy(shrink.clone())
    };
    if !wanted.multi_buffer {
        return refuse("which this mode does not do");
    }
    let (what, since) = match wanted.plane {
        WantedPlane::Xsk => ("AF_XDP", MULTI_BUFFER),
        WantedPlane::Xdp | WantedPlane::Host => ("XDP", FRAGMENTS),
    };
    if *kernel < since {
        return refuse(&format!("for which {what} needs Linux {since}"));
    }
    let driver = &link.driver;
    if support(&driver.name).multi_buffer {
        return Finding::note(name, format!("MTU {mtu}: large frames travel in several buffers"));
    }
    let what = format!(
        "MTU {mtu}: {driver} is not known to hand XDP frames above {large} bytes, which need \
         several buffers"
    );
    Finding::warning(name, what).remedy(shrink)
}

pub(super) fn unequal(a: &Link, b: &Link) -> Option<Finding> {
    let (less, more) = if a.status.mtu < b.status.mtu { (a, b) } else { (b, a) };
    let (small, large) = (less.status.mtu, more.status.mtu);
    (small != large).then(|| {
        let name = more.name();
        let what = format!(
            "MTU {large}, but {} has {small}: larger packets are dropped silently",
            less.name()
        );
        Finding::blocker(name, what).remedy(format!("ip link set dev {} mtu {small}", shell(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;

    fn link(mtu: u32, driver: &str) -> Link {
        let mut link = fit().ports[0].link.clone().unwrap();
        link.status.mtu = mtu;
        link.driver.name = driver.into();
        link
    }

    #[test]
    fn an_mtu_is_judged_by_mode_kernel_and_driver() {
        use Severity::{Blocker, Note, Ok, Warning};
        let (old, new) = (KernelVersion::new(6, 5), KernelVersion::new(6, 6));
        for (mtu, driver, multi_buffer, kernel, severity) in [
            (1500, "ice", false, old, Ok),
            (3046, "ice", false, old, Ok),
            (3498, "ice", false, old, Note),
            (3499, "ice", false, new, Blocker),
            (9000, "ice", true, old, Blocker),
            (9000, "ice", true, new, Note),
            (9000, "igc", true, new, Warning),
        ] {
            let wanted = Wanted { multi_buffer, ..Wanted::default() };
            let finding = fits(&link(mtu, driver), &wanted, &kernel);
            assert_eq!(finding.severity, severity, "{}", finding.what);
            assert_eq!(finding.remedy.is_some(), severity >= Warning);
        }
    }

    #[test]
    fn the_larger_of_two_mtus_is_to_shrink() {
        let mut b = link(9000, "ice");
        b.status.name = "b".into();
        let finding = unequal(&link(1500, "ice"), &b).unwrap();
        assert_eq!(finding.remedy.as_deref(), Some("ip link set dev b mtu 1500"));
        assert_eq!(finding.severity, Severity::Blocker);
        assert_eq!(unequal(&b, &b), None);
    }
}
