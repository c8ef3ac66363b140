//! The standby bridge forwards like a wire, and leaves nothing half-applied.

use crate::bed::Bed;
use narrows_link::bridge::{BridgeError, Origin, prepare, remove};
use narrows_link::{Link, LinkError};

const PING: &str = "ping -c 3 -i 0.05 -W 2 192.0.2.2";

#[test]
fn a_prepared_bridge_forwards_between_its_ports() {
    let Some(bed) = Bed::new() else { return };
    assert!(!bed.client.exec("ping -c 1 -W 1 192.0.2.2").status.success());
    let bridge = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    assert_eq!(bridge.origin, Origin::Created);
    bed.client.must(PING);
    bed.shaper.inside(|| {
        let read = |name| Link::by_name(name).unwrap().status;
        assert_eq!(read("sa").master, Some(bridge.ifindex));
        assert_eq!(read("sb").master, Some(bridge.ifindex));
        assert!(read(&bridge.name).up);
        assert!(Link::by_name(&bridge.name).unwrap().addresses.is_empty());
        remove(&bridge).unwrap();
        remove(&bridge).unwrap();
        assert_eq!(read("sa").master, None);
        assert!(read("sa").up);
    });
}

#[test]
fn ports_that_were_down_come_up_with_the_bridge() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.ip("link set sb down");
    bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    bed.client.must(PING);
}

#[test]
fn preparing_twice_changes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let (first, second) =
        bed.shaper.inside(|| (prepare("sa", "sb").unwrap(), prepare("sa", "sb").unwrap()));
    assert_eq!(second.origin, Origin::Reused);
    assert_eq!((first.ifindex, first.name), (second.ifindex, second.name));
    bed.client.must(PING);
}

#[test]
fn the_order_of_the_ports_does_not_matter() {
    let Some(bed) = Bed::new() else { return };
    let (first, second) =
        bed.shaper.inside(|| (prepare("sa", "sb").unwrap(), prepare("sb", "sa").unwrap()));
    assert_eq!(first.ifindex, second.ifindex);
}

#[test]
fn a_port_that_came_back_is_joined_again() {
    let Some(bed) = Bed::new() else { return };
    let first = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    bed.server.ip("link del v1");
    let shaper = &bed.shaper.name;
    bed.server.ip(&format!("link add name v1 type veth peer name sb netns {shaper}"));
    bed.server.ip("link set v1 up");
    bed.server.ip("addr add 192.0.2.2/24 dev v1");
    let second = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    assert_eq!((second.origin, second.ifindex), (Origin::Reused, first.ifindex));
    bed.client.must(PING);
}

#[test]
fn a_foreign_bridge_is_used_and_left_alone() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name br9 type bridge ageing_time 12300");
    bed.shaper.ip("link set sa master br9");
    bed.shaper.ip("link set sb master br9");
    let bridge = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    assert_eq!((bridge.origin, bridge.name.as_str()), (Origin::Foreign, "br9"));
    let shown = bed.shaper.exec("ip -d link show br9").stdout;
    assert!(String::from_utf8_lossy(&shown).contains("ageing_time 12300 "));
    bed.shaper.inside(|| remove(&bridge)).unwrap();
    bed.shaper.inside(|| Link::by_name("br9")).unwrap();
}

#[test]
fn a_bridge_is_set_like_a_wire() {
    let Some(bed) = Bed::new() else { return };
    let bridge = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    let shown = bed.shaper.exec(&format!("ip -d link show {}", bridge.name)).stdout;
    let shown = String::from_utf8_lossy(&shown);
    for setting in [
        "forward_delay 0 ",
        "ageing_time 0 ",
        "stp_state 0 ",
        "mcast_snooping 0 ",
        "group_fwd_mask 0xfff8 ",
        "addrgenmode none ",
    ] {
        assert!(shown.contains(setting), "{setting} is not in {shown}");
    }
    let port = bed.shaper.exec("ip -d link show sa").stdout;
    assert!(String::from_utf8_lossy(&port).contains("group_fwd_mask 0xfffd "));
}

#[test]
fn the_bridge_follows_the_smaller_mtu() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sb mtu 1400");
    let bridge = bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    let mtu = || bed.shaper.inside(|| Link::by_index(bridge.ifindex)).unwrap().status.mtu;
    assert_eq!(mtu(), 1400);
    bed.shaper.ip("link set sa mtu 1300");
    assert_eq!(mtu(), 1300);
}

#[test]
fn link_local_groups_pass_except_pause_frames() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.inside(|| prepare("sa", "sb")).unwrap();
    bed.client.must(PING);
    let received = || {
        let far = bed.server.exec("cat /proc/net/dev").stdout;
        let far = String::from_utf8_lossy(&far).into_owned();
        let line = far.lines().find_map(|line| line.trim().strip_prefix("v1:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Spanning tree, LACP, 802.1X, LLDP; the last octet of the group address.
    for (group, passes) in [(0x00, true), (0x01, false), (0x02, true), (0x03, true), (0x0e, true)] {
        let before = received();
        bed.client.inside(|| send_to_group("v0", group, 100));
        let arrived = received() - before;
        // Stray neighbour discovery may add a few.
        assert_eq!(arrived >= 100, passes, "group {group:#04x}: {arrived} arrived");
    }
}

#[test]
fn a_port_with_an_address_is_refused_and_nothing_changed() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("addr add 198.51.100.7/24 dev sb");
    bed.shaper.inside(|| {
        let error = prepare("sa", "sb").unwrap_err();
        assert!(
            matches!(&error, BridgeError::HasAddresses { port, .. } if port == "sb"),
            "{error}"
        );
        assert_eq!(Link::by_name("sa").unwrap().status.master, None);
    });
}

#[test]
fn a_port_of_another_bridge_is_refused_by_name() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name br9 type bridge");
    bed.shaper.ip("link set sb master br9");
    let error = bed.shaper.inside(|| prepare("sa", "sb")).unwrap_err();
    assert!(
        error.to_string().starts_with("sb is a port of br9 already; try: ip link set"),
        "{error}"
    );
}

#[test]
fn a_port_that_cannot_be_bridged_undoes_everything() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.inside(|| {
        // The loopback device can never be a bridge port, which shows only on the attempt.
        let error = prepare("sa", "lo").unwrap_err();
        assert!(error.to_string().starts_with("making lo a port of bridge nrwbr1: "), "{error}");
        let port = Link::by_name("sa").unwrap().status;
        assert_eq!((port.master, port.up), (None, false));
        assert!(matches!(Link::by_name("nrwbr1"), Err(LinkError::NoSuchName(_))));
    });
}

#[test]
fn a_missing_port_is_named() {
    let Some(bed) = Bed::new() else { return };
    let error = bed.shaper.inside(|| prepare("sa", "nosuch")).unwrap_err();
    assert!(error.to_string().starts_with("there is no interface 'nosuch'"), "{error}");
}

/// Sends `count` frames to link-local group 01-80-C2-00-00-`group` out of `device`.
fn send_to_group(device: &str, group: u8, count: usize) {
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('{device}', 0))\n\
         frame = bytes([1, 0x80, 0xc2, 0, 0, {group}, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]) + bytes(46)\n\
         [s.send(frame) for _ in range({count})]\n"
    );
    let output = std::process::Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
