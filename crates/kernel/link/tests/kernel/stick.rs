//! The kernel's VLAN devices and bridges forward like a stick, and leave nothing half-applied.

use crate::bed::Namespace;
use narrows_forwarding::stick::Pair;
use narrows_forwarding::{Tag, TagProtocol};
use narrows_link::bridge::{BridgeError, Origin};
use narrows_link::doctor::{Finding, Severity, Wanted, blockers, examine_stick, render};
use narrows_link::stick::{StickError, check, prepare, remove};
use narrows_link::{Link, LinkError, LinkStatus};
use std::collections::BTreeSet;

const PING: &str = "ping -c 3 -i 0.05 -W 2 192.0.2.2";

fn customer(vid: u16) -> Tag {
    Tag::new(TagProtocol::Customer, vid).unwrap()
}

fn service(vid: u16) -> Tag {
    Tag::new(TagProtocol::Service, vid).unwrap()
}

fn pairs() -> [Pair; 2] {
    [(customer(100), customer(200)), (customer(101), customer(201))]
}

/// A device `sa` of `shaper`, with a cable to `v0` of `far`, all up.
struct Bed {
    shaper: Namespace,
    far: Namespace,
}

impl Bed {
    /// Creates it; none, with a message, without root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: making network namespaces needs root (`sudo -E cargo test`)");
            return None;
        }
        let bed = Self { shaper: Namespace::new("shp"), far: Namespace::new("far") };
        let shaper = &bed.shaper.name;
        bed.far.ip(&format!("link add name v0 type veth peer name sa netns {shaper}"));
        bed.far.ip("link set v0 up");
        bed.shaper.ip("link set sa up");
        Some(bed)
    }

    /// Creates it on a kernel with VLAN devices; none, with a message, on another.
    fn with_vlans() -> Option<Self> {
        let bed = Self::new()?;
        if !bed.has_vlans() {
            println!("SKIPPED: this kernel has no VLAN devices (CONFIG_VLAN_8021Q)");
            return None;
        }
        Some(bed)
    }

    fn has_vlans(&self) -> bool {
        let made = self.far.exec("ip link add link v0 name probe type vlan id 9").status.success();
        if made {
            self.far.ip("link del probe");
        }
        made
    }

    /// A host in a VLAN of `v0`, in a namespace of its own.
    fn host(&self, tag: Tag, address: &str) -> Namespace {
        let host = Namespace::new("host");
        let (protocol, vid) = (tag.protocol().name(), tag.vid());
        // An address of its own: to an operator's bridge, two hosts with that of `v0` are one.
        let mac = format!("02:00:00:00:{:02x}:{:02x}", vid >> 8, vid & 0xff);
        self.far.ip(&format!(
            "link add link v0 name eth0 address {mac} type vlan protocol {protocol} id {vid}"
        ));
        self.far.ip(&format!("link set eth0 netns {}", host.name));
        host.ip(&format!("addr add {address}/24 dev eth0"));
        host.ip("link set eth0 up");
        host
    }

    /// Names of the interfaces of the shaper.
    fn names(&self) -> BTreeSet<String> {
        let listed = self.shaper.exec("ip -brief link").stdout;
        let name = |line: &str| line.split(['@', ' ']).next().unwrap_or_default().to_owned();
        String::from_utf8_lossy(&listed).lines().map(name).collect()
    }

    /// The interfaces of the shaper.
    fn everything(&self) -> Vec<LinkStatus> {
        let read = |name: &String| Link::by_name(name).unwrap().status;
        let names = self.names();
        self.shaper.inside(|| names.iter().map(read).collect())
    }

    fn shown(&self, name: &str) -> String {
        let shown = self.shaper.exec(&format!("ip -details link show dev {name}"));
        assert!(shown.status.success(), "there is no {name}");
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Sends a frame out of `v0`, and returns the experimental ones that come back there.
    fn comes_back(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.far.inside(|| exchange("v0", frame))
    }
}

#[test]
fn a_kernel_without_vlan_devices_says_so_and_nothing_is_changed() {
    let Some(bed) = Bed::new() else { return };
    if bed.has_vlans() {
        println!("SKIPPED: this kernel has VLAN devices");
        return;
    }
    bed.shaper.ip("link set sa down");
    let before = bed.everything();
    let error = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this kernel has no VLAN devices (CONFIG_VLAN_8021Q); try: modprobe 8021q (or use \
         --fail-closed)"
    );
    assert_eq!(bed.everything(), before);
}

/// The findings about a stick on `sa`.
fn findings(bed: &Bed, bridge: bool) -> Vec<Finding> {
    let wanted = Wanted { bridge, repairs: true, ..Wanted::default() };
    bed.shaper.inside(|| examine_stick("sa", &pairs(), &wanted))
}

#[test]
fn the_doctor_knows_whether_the_kernel_can_stand_by() {
    let Some(bed) = Bed::new() else { return };
    let has_vlans = bed.has_vlans();
    let of_vlans = |bridge| {
        let findings = findings(&bed, bridge);
        println!("{}", render(&findings));
        findings.into_iter().find(|finding| finding.what.contains("VLAN devices"))
    };
    assert_eq!(of_vlans(false), None, "nothing has to stand by");
    let finding = of_vlans(true).unwrap();
    let expected = if has_vlans { Severity::Ok } else { Severity::Blocker };
    assert_eq!(finding.severity, expected, "{}", finding.what);
}

#[test]
fn the_doctor_says_what_a_stick_loses_and_what_is_in_its_way() {
    let Some(bed) = Bed::with_vlans() else { return };
    let whole = Wanted { bridge: true, ..Wanted::default() };
    let spoilt = bed.shaper.inside(|| examine_stick("sa", &pairs(), &whole));
    let remedies: Vec<_> = blockers(&spoilt).filter_map(|it| it.remedy.clone()).collect();
    let peer = format!("ip netns exec {} ethtool -K v0 txvlan off", bed.far.name);
    assert!(remedies.contains(&peer), "{}", render(&spoilt));
    assert!(spoilt.iter().any(|finding| finding.what.contains("pass Narrows by")));

    let said = |subject: &str, severity: Severity| {
        let findings = findings(&bed, true);
        let found = findings.iter().filter(|it| it.subject == subject && it.severity == severity);
        let whats: Vec<_> = found.map(|finding| finding.what.clone()).collect();
        assert!(!whats.is_empty(), "{}", render(&findings));
        whats.join("\n")
    };
    assert!(said("sa", Severity::Ok).contains("will join sa.100 (VLAN 100) and sa.200"));
    bed.shaper.ip("link add link sa name red type vlan id 100");
    bed.shaper.ip("addr add 198.51.100.7/24 dev red");
    assert!(said("red", Severity::Blocker).starts_with("carries 198.51.100.7/24"));
    bed.shaper.ip("addr flush dev red");
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    for pair in &stick.pairs {
        assert!(said(&pair.bridge.name, Severity::Ok).starts_with("is the standby bridge of"));
    }
}

#[test]
fn a_missing_device_is_named() {
    let Some(bed) = Bed::new() else { return };
    let error = bed.shaper.inside(|| prepare("nosuch", &pairs())).unwrap_err();
    assert!(error.to_string().starts_with("there is no interface 'nosuch'"), "{error}");
}

#[test]
fn a_prepared_stick_forwards_between_its_vlans_until_it_is_removed() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link set sa down");
    let hosts = [(100, 1), (200, 2), (101, 1), (201, 2)]
        .map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    let before = bed.names();
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    assert!(stick.pairs.iter().all(|pair| pair.bridge.origin == Origin::Created));
    assert!(stick.pairs.iter().flat_map(|pair| &pair.vlans).all(|vlan| vlan.created));
    let names = stick.pairs.iter().flat_map(|pair| pair.vlans.each_ref().map(|vlan| &*vlan.name));
    assert_eq!(names.collect::<Vec<_>>(), ["sa.100", "sa.200", "sa.101", "sa.201"]);
    hosts[0].must(PING);
    hosts[2].must(PING);
    assert!(!hosts[0].exec("ping -c 1 -W 1 192.0.2.1").stdout.is_empty());
    assert_eq!(bed.shaper.inside(|| check(&stick)).unwrap(), None);

    bed.shaper.inside(|| {
        remove(&stick).unwrap();
        remove(&stick).unwrap();
    });
    assert_eq!(bed.names(), before);
    assert!(!hosts[0].exec("ping -c 1 -W 1 192.0.2.2").status.success());
}

#[test]
fn preparing_twice_changes_nothing_and_what_was_there_stays() {
    let Some(bed) = Bed::with_vlans() else { return };
    let first = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    let before = bed.everything();
    let second = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    assert_eq!(bed.everything(), before);
    for (first, second) in first.pairs.iter().zip(&second.pairs) {
        assert_eq!(second.bridge.origin, Origin::Reused);
        assert_eq!(second.bridge.ifindex, first.bridge.ifindex);
        assert!(second.vlans.iter().all(|vlan| !vlan.created));
    }
    bed.shaper.inside(|| remove(&second)).unwrap();
    assert_eq!(bed.everything(), before);
}

#[test]
fn new_vlan_devices_are_silent_and_keep_priorities() {
    let Some(bed) = Bed::with_vlans() else { return };
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    let shown = bed.shown("sa.100");
    for setting in [
        "vlan protocol 802.1Q id 100 ",
        "addrgenmode none ",
        "{ 1:1 2:2 3:3 4:4 5:5 6:6 7:7 }",
        "group_fwd_mask 0xfffd ",
    ] {
        assert!(shown.contains(setting), "{setting} is not in {shown}");
    }
    bed.shaper.inside(|| {
        for vlan in stick.pairs.iter().flat_map(|pair| &pair.vlans) {
            assert_eq!(Link::by_index(vlan.ifindex).unwrap().addresses, []);
        }
    });
    for setting in ["arp_ignore", "rp_filter"] {
        let said = bed.shaper.exec(&format!("cat /proc/sys/net/ipv4/conf/sa.100/{setting}"));
        assert_eq!(said.stdout, b"1\n", "{setting}");
    }
}

#[test]
fn a_frame_leaves_with_the_other_tag_and_all_else_unchanged() {
    let Some(bed) = Bed::with_vlans() else { return };
    let pairs = [(customer(100), customer(200)), (customer(101), service(201))];
    bed.shaper.inside(|| prepare("sa", &pairs)).unwrap();
    for (sent, back) in [
        (&[(0x8100, 0xa000 | 100)][..], Some(&[(0x8100, 0xa000 | 200)][..])),
        (&[(0x8100, 200)], Some(&[(0x8100, 100)])),
        (&[(0x8100, 0x2000 | 101)], Some(&[(0x88a8, 0x2000 | 201)])),
        (&[(0x88a8, 0xe000 | 201)], Some(&[(0x8100, 0xe000 | 101)])),
        // A tag behind it is payload, also one of a VLAN of the stick.
        (&[(0x8100, 100), (0x8100, 7)], Some(&[(0x8100, 200), (0x8100, 7)])),
        (&[(0x8100, 100), (0x8100, 101)], Some(&[(0x8100, 200), (0x8100, 101)])),
        (&[(0x88a8, 201), (0x8100, 0x6000 | 9)], Some(&[(0x8100, 101), (0x8100, 0x6000 | 9)])),
        // The one difference: drop eligibility is lost.
        (&[(0x8100, 0x3000 | 100)], Some(&[(0x8100, 0x2000 | 200)])),
        (&[(0x8100, 7)], None),
        (&[(0x88a8, 100)], None),
        (&[], None),
    ] {
        let expected: Vec<_> = back.map(frame).into_iter().collect();
        assert_eq!(bed.comes_back(&frame(sent)), expected, "{sent:x?}");
    }
}

#[test]
fn link_local_groups_pass_except_pause_frames() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    for (group, passes) in [(0x00, true), (0x01, false), (0x02, true), (0x03, true), (0x0e, true)] {
        let to_group = |vid| {
            let mut frame = frame(&[(0x8100, vid)]);
            frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, group]);
            frame
        };
        let expected = if passes { vec![to_group(200)] } else { vec![] };
        assert_eq!(bed.comes_back(&to_group(100)), expected, "group {group:#04x}");
    }
}

#[test]
fn what_a_killed_run_left_half_done_is_completed() {
    let Some(bed) = Bed::with_vlans() else { return };
    // Killed after its first step, and after its third.
    bed.shaper.ip("link add link sa name sa.100 type vlan id 100");
    bed.shaper.ip("link add link sa name sa.101 type vlan id 101");
    let left = bed.shaper.inside(|| Link::by_name("sa.101")).unwrap().status.ifindex;
    bed.shaper.ip(&format!("link add name nrwbr{left} type bridge"));
    bed.shaper.ip(&format!("link set sa.101 master nrwbr{left}"));
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    let created = stick.pairs.iter().map(|pair| pair.vlans.each_ref().map(|vlan| vlan.created));
    assert_eq!(created.collect::<Vec<_>>(), [[false, true]; 2]);
    let origins: Vec<_> = stick.pairs.iter().map(|pair| pair.bridge.origin).collect();
    assert_eq!(origins, [Origin::Created, Origin::Reused]);
    for name in ["sa.100", "sa.101"] {
        assert!(bed.shown(name).contains("addrgenmode none "), "{name}");
    }
    let hosts =
        [(101, 1), (201, 2)].map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    hosts[0].must(PING);
}

#[test]
fn an_operators_vlan_devices_and_bridge_are_used_as_they_are() {
    let Some(bed) = Bed::with_vlans() else { return };
    for (name, vid) in [("red", 100), ("blue", 200), ("green", 101)] {
        bed.shaper.ip(&format!("link add link sa name {name} type vlan id {vid}"));
        bed.shaper.ip(&format!("link set {name} up"));
    }
    bed.shaper.ip("link add name br9 type bridge ageing_time 12300 forward_delay 0");
    bed.shaper.ip("link set red master br9");
    bed.shaper.ip("link set blue master br9");
    let of_operator = || bed.shaper.inside(|| ["red", "blue"].map(Link::by_name));
    let before = of_operator().map(Result::unwrap);
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    assert_eq!(of_operator().map(Result::unwrap), before);
    assert!(bed.shown("br9").contains("ageing_time 12300 "));
    assert_eq!(stick.pairs[0].bridge.origin, Origin::Foreign);
    assert!(stick.name().starts_with("br9 and nrwbr"), "{}", stick.name());
    assert_eq!(stick.pairs[1].vlans.each_ref().map(|vlan| vlan.created), [false, true]);
    let hosts =
        [(100, 1), (200, 2)].map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    hosts[0].must(PING);
    bed.shaper.inside(|| remove(&stick)).unwrap();
    let names = bed.names();
    let left: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(left, ["blue", "br9", "green", "lo", "red", "sa"]);
}

#[test]
fn an_obstacle_in_the_last_pair_leaves_everything_as_it_was() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.ip("link add link sa name red type vlan id 100");
    bed.shaper.ip("link add link sa name sa.201 type vlan id 201");
    bed.shaper.ip("addr add 198.51.100.7/24 dev sa.201");
    let before = bed.everything();
    bed.shaper.inside(|| {
        let error = prepare("sa", &pairs()).unwrap_err();
        assert!(
            matches!(
                &error,
                StickError::Bridge(BridgeError::HasAddresses { port, .. }) if port == "sa.201"
            ),
            "{error}"
        );
    });
    assert_eq!(bed.everything(), before);
}

/// That a VLAN is in another namespace shows only on the attempt, when a pair is finished already.
#[test]
fn a_step_that_fails_late_undoes_everything() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.ip("link add link sa name red type vlan id 100");
    let elsewhere = Namespace::new("else");
    bed.shaper.ip("link add link sa name sa.201 type vlan id 201");
    bed.shaper.ip(&format!("link set sa.201 netns {}", elsewhere.name));
    let before = bed.everything();
    let error = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap_err();
    assert!(
        error.to_string().starts_with("VLAN 201 of sa has a device in another network namespace"),
        "{error}"
    );
    assert_eq!(bed.everything(), before);
}

#[test]
fn a_name_that_is_taken_is_refused_and_the_remedy_helps() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link add name sa.201 type dummy");
    let error = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap_err();
    assert!(matches!(error, StickError::NameTaken { .. }), "{error}");
    let remedy = error.remedy().unwrap();
    let command = remedy.split(" (").next().unwrap();
    bed.shaper.must(&command.replace("NAME", "yellow"));
    bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
}

#[test]
fn an_802_1ad_vlan_of_the_same_number_is_another_vlan() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link add link sa name other type vlan protocol 802.1ad id 100");
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    assert_eq!(stick.pairs[0].vlans[0].name, "sa.100");
    bed.shaper.inside(|| {
        assert_eq!(Link::by_name("sa.100").unwrap().status.vlan, Some(customer(100)));
        assert_eq!(Link::by_name("other").unwrap().status.vlan, Some(service(100)));
        assert_eq!(Link::by_name("other").unwrap().status.master, None);
    });
}

#[test]
fn damage_is_said_and_repaired() {
    let Some(bed) = Bed::with_vlans() else { return };
    let hosts =
        [(100, 1), (200, 2)].map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    let mut stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    for (damage, said) in [
        ("link del sa.200", "sa.200 for VLAN 200 is gone"),
        ("link set sa.100 down", "sa.100 is down"),
        ("link set sa.100 nomaster", "sa.100 is no longer a port of"),
        ("link del BRIDGE", "the bridge BRIDGE is gone"),
        ("link set BRIDGE type bridge stp_state 1", "configured as something other than a wire"),
        ("link set sa.200 mtu 1400", "sa.200 takes packets of 1400 bytes at most"),
    ] {
        let bridge = stick.pairs[0].bridge.name.clone();
        bed.shaper.ip(&damage.replace("BRIDGE", &bridge));
        let found = bed.shaper.inside(|| check(&stick)).unwrap().unwrap_or_default();
        assert!(found.contains(&said.replace("BRIDGE", &bridge)), "{damage}: {found}");
        stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
        assert_eq!(bed.shaper.inside(|| check(&stick)).unwrap(), None, "{damage}");
        hosts[0].must(PING);
    }
}

#[test]
fn vlan_devices_follow_the_mtu_of_the_device() {
    let Some(bed) = Bed::with_vlans() else { return };
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    bed.shaper.ip("link set sa mtu 9000");
    let said = bed.shaper.inside(|| check(&stick)).unwrap();
    assert_eq!(said.as_deref(), Some("sa.100 takes packets of 1500 bytes at most"));
    bed.shaper.inside(|| {
        prepare("sa", &pairs()).unwrap();
        for name in ["sa.100", "sa.201", &stick.pairs[0].bridge.name] {
            assert_eq!(Link::by_name(name).unwrap().status.mtu, 9000, "{name}");
        }
    });
}

#[test]
fn a_device_that_came_back_stands_by_again_and_old_bridges_go() {
    let Some(bed) = Bed::with_vlans() else { return };
    let stick = bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    let before = bed.names().len();
    bed.shaper.ip("link del sa");
    assert_eq!(bed.shaper.inside(|| check(&stick)).unwrap(), None, "said elsewhere");
    let shaper = &bed.shaper.name;
    bed.far.ip(&format!("link add name v0 type veth peer name sa netns {shaper}"));
    bed.far.ip("link set v0 up");
    let said = bed.shaper.inside(|| check(&stick)).unwrap();
    assert_eq!(said.as_deref(), Some("sa is a new device without its VLANs"));
    bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    assert_eq!(bed.names().len(), before);
    bed.shaper.inside(|| {
        let old = Link::by_name(&stick.pairs[0].bridge.name);
        assert!(matches!(old, Err(LinkError::NoSuchName(_))));
    });
    let hosts =
        [(100, 1), (200, 2)].map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    hosts[0].must(PING);
}

#[test]
fn a_device_that_is_a_port_serves_its_bridge_with_all_other_frames() {
    let Some(bed) = Bed::with_vlans() else { return };
    bed.shaper.ip("link add name br9 type bridge");
    bed.shaper.ip("link set sa master br9");
    bed.shaper.ip("link set br9 up");
    bed.shaper.ip("addr add 198.51.100.1/24 dev br9");
    bed.far.ip("addr add 198.51.100.2/24 dev v0");
    bed.shaper.inside(|| prepare("sa", &pairs())).unwrap();
    let hosts =
        [(100, 1), (200, 2)].map(|(vid, last)| bed.host(customer(vid), &format!("192.0.2.{last}")));
    hosts[0].must(PING);
    bed.far.must("ping -c 3 -i 0.05 -W 2 198.51.100.1");
    // Of the stick's frames none gets there, and one comes back.
    let sent = frame(&[(0x8100, 100)]);
    assert_eq!(bed.comes_back(&sent), [frame(&[(0x8100, 200)])]);
}

/// A broadcast frame of an experimental type behind these tags, which are protocol and content.
fn frame(tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9]);
    for (protocol, content) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(content.to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.resize(80, 7);
    frame
}

/// Sends `frame` out of `device` of this namespace, and returns those that arrive there with the
/// same content, their tags in place.
fn exchange(device: &str, frame: &[u8]) -> Vec<Vec<u8>> {
    let sent: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = format!(
        "import socket, struct, time\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n\
         s.bind(('{device}', 3))\n\
         s.setsockopt(263, 8, 1)\n\
         s.send(bytes.fromhex('{sent}'))\n\
         end = time.monotonic() + 0.3\n\
         while (left := end - time.monotonic()) > 0:\n\
         \x20   s.settimeout(left)\n\
         \x20   try: data, notes, _, sender = s.recvmsg(2000, 200)\n\
         \x20   except TimeoutError: break\n\
         \x20   if sender[2] == 4: continue\n\
         \x20   for _, kind, note in notes:\n\
         \x20       state, _, _, _, _, tci, protocol = struct.unpack('IIIHHHH', note[:20])\n\
         \x20       tag = struct.pack('!HH', protocol, tci) if state & 16 else b''\n\
         \x20       data = data[:12] + tag + data[12:]\n\
         \x20   if data.endswith(bytes([7] * 20)): print(data.hex())\n"
    );
    let output = std::process::Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = |line: &str| {
        let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        (0..line.len()).step_by(2).map(byte).collect()
    };
    String::from_utf8_lossy(&output.stdout).lines().map(bytes).collect()
}
