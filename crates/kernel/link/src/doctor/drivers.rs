//! What is known about drivers: which run XDP natively, which support zero copy, which transmit
//! frames that programs redirect to them.
//!
//! Facts of the mainline kernel, by the driver's name in ethtool. A driver that is not in the table
//! may support more than this says: the data plane tries, and falls back. The table only sets
//! expectations.

use super::KernelVersion;

/// What to expect of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Support {
    /// Whether it runs XDP programs itself.
    pub(super) native: bool,
    /// The first kernel in which it supports AF_XDP zero copy.
    pub(super) zero_copy: Option<KernelVersion>,
    /// Whether it passes frames of several buffers to XDP.
    pub(super) multi_buffer: bool,
}

/// Whether a driver transmits frames that programs on other interfaces redirect to it, while it
/// runs a program itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redirected {
    /// It does.
    Sent,
    /// Only from CPUs whose number is that of a queue; it loses frames from all others, because
    /// there is no other queue that they may use.
    ByQueue,
    /// It does not, or not always, or it is not known.
    Unknown,
}

/// Looks up what a driver does with redirected frames.
pub fn redirected(driver: &str) -> Redirected {
    match driver {
        // The queue is the number of the CPU (i40e_xdp_xmit, mlx5e_xdp_xmit).
        "i40e" | "mlx5_core" => Redirected::ByQueue,
        // These have no function for it. For a veth it depends on the peer.
        "nfp" | "mlx4_en" | "ixgbevf" | "veth" => Redirected::Unknown,
        _ if support(driver).native => Redirected::Sent,
        _ => Redirected::Unknown,
    }
}

/// Whether programs that may run behind the driver, at tcx, are better there: it has no XDP, or
/// is a `veth`, whose packets the stack has built already and XDP would copy.
pub fn is_better_at_tcx(driver: &str) -> bool {
    driver == "veth" || !support(driver).native
}

const fn zero_copy(major: u32, minor: u32) -> Support {
    let zero_copy = Some(KernelVersion::new(major, minor));
    Support { native: true, zero_copy, multi_buffer: false }
}

const fn multi_buffer(support: Support) -> Support {
    Support { multi_buffer: true, ..support }
}

const NATIVE: Support = Support { native: true, zero_copy: None, multi_buffer: false };
const GENERIC: Support = Support { native: false, zero_copy: None, multi_buffer: false };

/// Looks a driver up.
pub(super) fn support(driver: &str) -> Support {
    match driver {
        "i40e" => multi_buffer(zero_copy(4, 20)),
        "ixgbe" => zero_copy(4, 20),
        "mlx5_core" => multi_buffer(zero_copy(5, 3)),
        "ice" => multi_buffer(zero_copy(5, 5)),
        "st_gmac" | "stmmaceth" => zero_copy(5, 13),
        "igc" => zero_copy(5, 14),
        "nfp" => zero_copy(5, 18),
        "fsl_dpaa2_eth" => zero_copy(6, 2),
        "tsnep" | "gve" => zero_copy(6, 4),
        "virtio_net" => multi_buffer(zero_copy(6, 13)),
        "igb" => zero_copy(6, 14),
        "veth" | "bnxt_en" | "mvneta" => multi_buffer(NATIVE),
        "atlantic" | "ena" | "fsl_enetc" | "hv_netvsc" | "ixgbevf" | "mana" | "mlx4_en"
        | "mvpp2" | "qede" | "sfc" | "tun" | "vmxnet3" => NATIVE,
        _ => GENERIC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_driver_promises_nothing() {
        assert_eq!(support("brand_new"), GENERIC);
        assert_eq!(support(""), GENERIC);
    }

    #[test]
    fn what_takes_redirected_frames_runs_programs_itself() {
        assert_eq!(redirected("igb"), Redirected::Sent);
        assert_eq!(redirected("i40e"), Redirected::ByQueue);
        for driver in ["veth", "nfp", "e1000e", ""] {
            assert_eq!(redirected(driver), Redirected::Unknown, "{driver}");
        }
    }

    #[test]
    fn veth_runs_xdp_but_copies() {
        let veth = support("veth");
        assert!(veth.native && veth.multi_buffer && veth.zero_copy.is_none());
    }
}
