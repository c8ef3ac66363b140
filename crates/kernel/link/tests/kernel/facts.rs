//! The facts that are read about interfaces are correct.

use crate::bed::Bed;
use crate::pass_all::PassAll;
use narrows_link::{Link, LinkError, Queues, XdpMode, promiscuous, set_up};

#[test]
fn a_veth_reads_as_it_was_made() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("addr add 198.51.100.7/25 dev sa");
    bed.shaper.must("ethtool -K sa gro on");
    let link = bed.shaper.inside(|| Link::by_name("sa")).unwrap();
    assert_eq!(link.name(), "sa");
    assert_eq!(link.status.kind.as_deref(), Some("veth"));
    assert_eq!(link.driver.name, "veth");
    assert_eq!(link.status.mtu, 1500);
    assert!(link.status.up && link.status.carrier && link.status.ethernet);
    assert_ne!(link.status.mac, [0; 6]);
    assert_eq!(link.queues.now, Queues { rx: 4, tx: 4 });
    assert_eq!(link.rings, None);
    assert!(link.offloads.tx_checksum && link.offloads.gro && !link.offloads.lro);
    assert!(link.addresses.iter().any(|address| address.to_string() == "198.51.100.7/25"));
    assert!(link.status.xdp.is_empty());
    assert_eq!(link.status.master, None);

    let peer = link.status.peer.unwrap();
    let far = bed.client.inside(|| Link::by_name("v0")).unwrap();
    assert_eq!(peer.ifindex, far.status.ifindex);
    assert!(peer.namespace.is_some_and(|number| number >= 0));
}

#[test]
fn an_index_reads_the_same_as_a_name() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.inside(|| {
        let by_name = Link::by_name("sa").unwrap();
        assert_eq!(Link::by_index(by_name.status.ifindex).unwrap(), by_name);
    });
}

#[test]
fn queues_in_use_are_those_that_ethtool_set() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.must("ethtool -L sa rx 2 tx 3");
    let queues = bed.shaper.inside(|| Link::by_name("sa")).unwrap().queues;
    assert_eq!(queues.now, Queues { rx: 2, tx: 3 });
    assert_eq!(queues.most, Queues { rx: 4, tx: 4 });
    assert_eq!(queues.now.pairs(), 2);
}

#[test]
fn offloads_turned_off_are_seen_off() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.must("ethtool -K sa tx off tso off gso off gro off txvlan off rxvlan off");
    let stag = "rx-vlan-stag-hw-parse off tx-vlan-stag-hw-insert off";
    let before = bed.shaper.inside(|| Link::by_name("sa")).unwrap().offloads;
    assert!(before.rx_service_tag && before.tx_service_tag, "a veth has them on");
    bed.shaper.must(&format!("ethtool -K sa {stag}"));
    let offloads = bed.shaper.inside(|| Link::by_name("sa")).unwrap().offloads;
    assert!(!offloads.tx_checksum && !offloads.tso && !offloads.gso && !offloads.gro);
    assert!(!offloads.tx_vlan && !offloads.rx_vlan);
    assert!(!offloads.rx_service_tag && !offloads.tx_service_tag && !offloads.gro_hw);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.inside(|| {
        for name in ["nosuch", "", "a-name-far-too-long-for-one", "a/b", "a\0b"] {
            let error = Link::by_name(name).unwrap_err();
            assert!(matches!(&error, LinkError::NoSuchName(named) if named == name), "{error}");
        }
        for ifindex in [0, 999_999, u32::MAX] {
            assert!(matches!(Link::by_index(ifindex), Err(LinkError::NoSuchIndex(_))));
            assert!(matches!(promiscuous(ifindex), Err(LinkError::NoSuchIndex(_))), "{ifindex}");
            assert!(matches!(set_up(ifindex), Err(LinkError::NoSuchIndex(_))), "{ifindex}");
        }
    });
}

#[test]
fn promiscuous_mode_lasts_as_long_as_its_guard() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.inside(|| {
        let read = || Link::by_name("sa").unwrap().status;
        let before = read().promiscuity;
        let first = promiscuous(read().ifindex).unwrap();
        let second = promiscuous(read().ifindex).unwrap();
        assert_eq!(read().promiscuity, before + 2);
        drop(first);
        assert_eq!(read().promiscuity, before + 1);
        drop(second);
        assert_eq!(read().promiscuity, before);
    });
}

#[test]
fn an_interface_that_is_down_comes_up() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.inside(|| {
        let read = || Link::by_name("sa").unwrap().status;
        assert!(!read().up);
        set_up(read().ifindex).unwrap();
        set_up(read().ifindex).unwrap();
        assert!(read().up);
    });
}

#[test]
fn an_attached_program_is_seen_with_its_mode() {
    let Some(bed) = Bed::new() else { return };
    let Some(program) = PassAll::compile() else { return };
    for (word, mode) in [("xdpdrv", XdpMode::Native), ("xdpgeneric", XdpMode::Generic)] {
        bed.shaper.ip(&format!("link set sa {word} obj {} sec xdp", program.object()));
        let status = bed.shaper.inside(|| Link::by_name("sa")).unwrap().status;
        assert_eq!(status.xdp.len(), 1);
        assert_eq!(status.xdp[0].mode, mode);
        assert_ne!(status.xdp[0].id, 0);
        bed.shaper.ip(&format!("link set sa {word} off"));
    }
}
