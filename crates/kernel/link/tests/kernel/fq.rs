//! What `fq` finds below devices, on any kernel. `make test-vm` installs it, on kernels that have
//! it.

use crate::bed::Bed;
use narrows_link::Link;
use narrows_link::fq::{FqError, Held, Standing};

/// What `tc` says is at the egress of `sa`.
fn qdiscs(bed: &Bed) -> String {
    String::from_utf8(bed.shaper.exec("tc qdisc show dev sa").stdout).unwrap()
}

fn index(bed: &Bed, name: &str) -> u32 {
    bed.shaper.inside(|| Link::by_name(name)).unwrap().status.ifindex
}

fn install(bed: &Bed, name: &str) -> Result<Held, FqError> {
    let device = index(bed, name);
    bed.shaper.inside(|| Held::install(device))
}

#[test]
fn without_fq_in_the_kernel_the_device_keeps_what_it_has() {
    let Some(bed) = Bed::new() else { return };
    let before = qdiscs(&bed);
    match install(&bed, "sa") {
        Err(FqError::Missing) => {}
        installed => {
            // With four queues, each one's is below `mq`.
            let held = installed.unwrap();
            assert_eq!(bed.shaper.inside(|| held.standing()).unwrap(), Standing::Holds);
            assert!(qdiscs(&bed).contains("qdisc mq 4e57: root"), "{}", qdiscs(&bed));
            bed.shaper.inside(|| held.restore()).unwrap();
        }
    }
    assert_eq!(qdiscs(&bed), before);
}

#[test]
fn the_qdisc_of_somebody_else_is_named_and_stays() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.must("tc qdisc add dev sa root handle 1: pfifo limit 77");
    let before = qdiscs(&bed);
    let error = install(&bed, "sa").unwrap_err().to_string();
    assert!(error.starts_with("sa has a queue of somebody else, pfifo 1:, and packets"), "{error}");
    assert!(error.contains("try: tc qdisc del dev sa root "), "{error}");
    assert_eq!(qdiscs(&bed), before);
}

#[test]
fn what_is_at_ingress_does_not_matter_and_stays() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.must("tc qdisc add dev sa clsact");
    let before = qdiscs(&bed);
    let installed = install(&bed, "sa");
    assert!(!matches!(installed, Err(FqError::Taken { .. })), "{installed:?}");
    if let Ok(held) = installed {
        bed.shaper.inside(|| held.restore()).unwrap();
    }
    assert_eq!(qdiscs(&bed), before);
}

#[test]
fn what_is_routed_to_a_bridge_passes_its_own_queue_so_it_may_have_one() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name br9 type bridge");
    match install(&bed, "br9") {
        Err(FqError::Missing) => {}
        installed => bed.shaper.inside(|| installed.unwrap().restore()).unwrap(),
    }
}

#[test]
fn a_device_that_is_gone_is_said_to_be() {
    let Some(bed) = Bed::new() else { return };
    let device = index(&bed, "sa");
    bed.client.ip("link del v0");
    let refused = bed.shaper.inside(|| Held::install(device)).unwrap_err().to_string();
    assert!(refused.contains("is gone"), "{refused}");
}
