//! VLANs of a port, as interfaces of a router. What stands for a VLAN device here is a veth: to
//! programs it is a device with an index, an address and routes.

use super::*;
use crate::attach::{Hook, XdpMode};
use crate::tree::{Port, Tree};
use narrows_forwarding::{Tag, TagProtocol};
use narrows_image::Prefix;
use narrows_routes::{Device, Family, Mirror, Route, Target, bits_of};

const SALES_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
const GUESTS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x12];
const SALES_HOST: [u8; 6] = [2, 0, 0, 0, 0x11, 2];
const GUESTS_HOST: [u8; 6] = [2, 0, 0, 0, 0x12, 2];
/// Hosts of both.
const SELLER: [&str; 2] = ["10.11.0.2", "2001:db8:11::2"];
const GUEST: [&str; 2] = ["10.12.0.2", "2001:db8:12::2"];
const INTERNET: [&str; 2] = [FAR, FAR6];

const VLANS: &str = "
    link add sales address 02:00:00:00:00:11 type veth peer name sales-far
    link add guests address 02:00:00:00:00:12 type veth peer name guests-far
    link set sales up
    link set sales-far up
    link set guests up
    link set guests-far up
    addr add 10.11.0.1/24 dev sales
    addr add 10.12.0.1/24 dev guests
    addr add 2001:db8:11::1/64 dev sales nodad
    addr add 2001:db8:12::1/64 dev guests nodad
    neigh add 10.11.0.2 lladdr 02:00:00:00:11:02 dev sales nud permanent
    neigh add 10.12.0.2 lladdr 02:00:00:00:12:02 dev guests nud permanent
    neigh add 2001:db8:11::2 lladdr 02:00:00:00:11:02 dev sales nud permanent
    neigh add 2001:db8:12::2 lladdr 02:00:00:00:12:02 dev guests nud permanent
";

fn sales() -> Tag {
    Tag::new(TagProtocol::Customer, 100).unwrap()
}

fn guests() -> Tag {
    Tag::new(TagProtocol::Service, 100).unwrap()
}

/// What arrives at one of three places or leaves there: `lan` itself, or a VLAN of it.
#[derive(Clone, Copy, Debug)]
enum Place {
    Lan,
    Sales,
    Guests,
}

impl Place {
    const ALL: [Self; 3] = [Self::Lan, Self::Sales, Self::Guests];

    fn tag(self) -> Option<Tag> {
        match self {
            Self::Lan => None,
            Self::Sales => Some(sales()),
            Self::Guests => Some(guests()),
        }
    }

    fn macs(self) -> [[u8; 6]; 2] {
        match self {
            Self::Lan => [LAN_MAC, HOST],
            Self::Sales => [SALES_MAC, SALES_HOST],
            Self::Guests => [GUESTS_MAC, GUESTS_HOST],
        }
    }

    fn host(self, family: usize) -> &'static str {
        match self {
            Self::Lan => [NEAR, NEAR6][family],
            Self::Sales => SELLER[family],
            Self::Guests => GUEST[family],
        }
    }

    /// A frame of this place's host.
    fn frame(self, to: &str, family: usize, priority: u8) -> Vec<u8> {
        let mut frame = frame(self.host(family), to, 64);
        frame[..12].copy_from_slice(&self.macs().concat());
        tagged(frame, self.tag(), priority)
    }

    fn interface(self, ingress: Ingress) -> Interface {
        let device = match self {
            Self::Lan => "lan",
            Self::Sales => "sales",
            Self::Guests => "guests",
        };
        let [mac, _] = self.macs();
        Interface { port: LAN, tag: self.tag(), ifindex: index(device), mac, ingress }
    }
}

/// `frame` with a tag of that priority.
fn tagged(mut frame: Vec<u8>, tag: Option<Tag>, priority: u8) -> Vec<u8> {
    if let Some(tag) = tag {
        let control = u16::from(priority) << 13 | tag.vid();
        let words = [tag.protocol().ethertype(), control].map(u16::to_be_bytes);
        frame.splice(12..12, words.concat());
    }
    frame
}

/// `frame`, of `tag`, as it leaves with `left`.
fn leaving(
    mut frame: Vec<u8>,
    tag: Option<Tag>,
    left: Option<Tag>,
    [from, to]: [[u8; 6]; 2],
) -> Vec<u8> {
    if tag.is_some() {
        frame.drain(12..16);
    }
    tagged(model::leaving(&frame, from, to), left, 0)
}

fn wan(ingress: Ingress) -> Interface {
    Interface { port: WAN, tag: None, ifindex: index("wan"), mac: WAN_MAC, ingress }
}

/// The routes and neighbours of the bed, as a mirror of a kernel with VLAN devices has them.
fn mirror() -> Mirror {
    let mut mirror = Mirror::default();
    mirror.begin();
    let device = |port, tag, mac| Device {
        port: Some(port),
        tag,
        is_running: true,
        mac,
        mtu_v4: 1500,
        mtu_v6: 1500,
    };
    let places = Place::ALL.map(|place| (place.interface(Ingress::default()), place));
    for (interface, place) in places {
        let Interface { ifindex, tag, mac, .. } = interface;
        mirror.set_device(ifindex, Some(device(0, tag, mac)));
        for (family, len) in [(Family::V4, 24), (Family::V6, 64)] {
            let address: IpAddr = place.host(family as usize).parse().unwrap();
            mirror.set_neighbour(ifindex, address, Some(place.macs()[1]));
            list(&mut mirror, family, address, len, Target::OnLink { ifindex });
        }
    }
    let ifindex = index("wan");
    mirror.set_device(ifindex, Some(device(1, None, WAN_MAC)));
    for (family, gateway, len) in [(Family::V4, "10.0.1.2", 24), (Family::V6, "2001:db8:b::2", 64)]
    {
        let (far, gateway) = (INTERNET[family as usize].parse().unwrap(), gateway.parse().unwrap());
        mirror.set_neighbour(ifindex, gateway, Some(HOP));
        let target = Target::Gateway { ifindex, gateway, mtu: 0 };
        list(&mut mirror, family, far, len, target);
    }
    mirror.end();
    mirror
}

fn list(mirror: &mut Mirror, family: Family, address: IpAddr, len: u8, target: Target) {
    let prefix = Prefix::new(bits_of(address), len);
    let route = Route { family, prefix, metric: 0, tos: 0, realms: 0, target, is_local: false };
    mirror.list(&route);
}

/// Runs `work` for a router with two VLANs on `lan`, by the kernel's look-up alone and by a table,
/// with each check of sources.
fn with_vlans(work: impl Fn(&Bed, SourceCheck) + Send + Sync) {
    for by_tables in [false, true] {
        in_one_bed(false, &|bed: &Bed| {
            ip(VLANS);
            let mut tables = RouteTables::new().unwrap();
            if by_tables {
                tables.follow(&mut mirror()).unwrap();
            }
            let bed = Bed {
                router: Router::new(&tables).unwrap(),
                lan: bed.lan,
                by_tables,
                followed: RefCell::new((Follower::new([]).unwrap(), tables)),
                ingresses: RefCell::default(),
                suffice: Cell::default(),
            };
            // What it knows is written here.
            IS_CHANGED.set(false);
            for source_check in [SourceCheck::Off, SourceCheck::Loose, SourceCheck::Strict] {
                let by_tables = [by_tables; 2];
                let ingress = Ingress { source_check, by_tables, ..Ingress::default() };
                let places = Place::ALL.map(|place| place.interface(ingress));
                bed.router.set_interfaces(&[&places[..], &[wan(ingress)]].concat()).unwrap();
                work(&bed, source_check);
            }
        });
    }
}

/// Checks that a frame from `from` leaves through `port` as `left`.
#[track_caller]
fn check_leaves(bed: &Bed, steered: &Steered, frame: &[u8], port: PortId, left: &[u8]) {
    let mut counters = steered.steer.outcomes().unwrap();
    counters.0[Outcome::Routed as usize] += 1;
    let (verdict, after, before) = bed.run(steered, frame);
    let now = steered.steer.outcomes().unwrap();
    let others: Vec<_> = now.iter().zip(counters.iter()).filter(|(a, b)| a != b).collect();
    assert_eq!(now, counters, "{others:?}");
    assert_eq!((verdict, egress_port(&before, SEAL)), (REDIRECT, Some(port.index() as u8)));
    assert!(after == left, "it leaves as {after:02x?}, not as {left:02x?}");
}

#[test]
fn a_frame_leaves_with_the_tag_of_the_vlan_where_its_route_leads() {
    with_vlans(|bed, _| {
        let steered = bed.steer();
        for (family, from) in (0..2).flat_map(|family| Place::ALL.map(|from| (family, from))) {
            for to in Place::ALL {
                let frame = from.frame(to.host(family), family, 5);
                let left = leaving(frame.clone(), from.tag(), to.tag(), to.macs());
                check_leaves(bed, &steered, &frame, LAN, &left);
            }
            let frame = from.frame(INTERNET[family], family, 0);
            let left = leaving(frame.clone(), from.tag(), None, [WAN_MAC, HOP]);
            check_leaves(bed, &steered, &frame, WAN, &left);
        }
    });
}

#[test]
fn a_source_of_another_vlan_of_the_same_port_is_the_wrong_way() {
    with_vlans(|bed, source_check| {
        let steered = bed.steer();
        let is_strict = source_check == SourceCheck::Strict;
        for (family, other) in
            (0..2).flat_map(|family| [Place::Lan, Place::Guests].map(|other| (family, other)))
        {
            let mut strange = frame(other.host(family), INTERNET[family], 64);
            strange[..12].copy_from_slice(&Place::Sales.macs().concat());
            let strange = tagged(strange, Some(sales()), 0);
            // Of IPv6 nothing is checked, as in the kernel.
            if family == 0 && is_strict {
                bed.check_passes(&steered, &strange, Outcome::BadSource);
            } else {
                let left = leaving(strange.clone(), Some(sales()), None, [WAN_MAC, HOP]);
                check_leaves(bed, &steered, &strange, WAN, &left);
            }
        }
    });
}

#[test]
fn what_is_in_no_vlan_of_the_router_goes_to_the_kernel_as_it_arrived() {
    with_vlans(|bed, _| {
        let steered = bed.steer();
        for (family, far) in INTERNET.into_iter().enumerate() {
            let good = Place::Sales.frame(far, family, 3);
            // To the address of another interface of the same port.
            for mac in [LAN_MAC, GUESTS_MAC, [0xff; 6]] {
                let mut frame = good.clone();
                frame[..6].copy_from_slice(&mac);
                bed.check_passes(&steered, &frame, Outcome::NotForUs);
            }
            let plain = frame(Place::Lan.host(family), far, 64);
            let swapped = Tag::new(TagProtocol::Service, 101).unwrap();
            let other = Tag::new(TagProtocol::Customer, 101).unwrap();
            for tag in [swapped, other] {
                bed.check_passes(&steered, &tagged(plain.clone(), Some(tag), 7), Outcome::OtherTag);
            }
            let mut of_vlan_0 = tagged(plain.clone(), Some(other), 7);
            of_vlan_0[15] = 0;
            bed.check_passes(&steered, &of_vlan_0, Outcome::OtherTag);
            // Two tags, and one behind which the frame ends.
            let twice = tagged(good.clone(), Some(sales()), 0);
            bed.check_passes(&steered, &twice, Outcome::NotIp);
            bed.check_passes(&steered, &good[..18], Outcome::Short);
        }
    });
}

#[test]
fn a_vlan_that_goes_is_the_kernel_s_and_so_is_what_leads_there() {
    with_vlans(|bed, _| {
        let steered = bed.steer();
        let to_sales = Place::Lan.frame(SELLER[0], 0, 0);
        let mut from_sales = Place::Sales.frame(FAR, 0, 0);
        let ingress = Ingress { by_tables: [false; 2], ..Ingress::default() };
        let without = [Place::Lan.interface(ingress), wan(ingress)];
        bed.router.set_interfaces(&without).unwrap();
        bed.check_passes(&steered, &to_sales, Outcome::OtherPort);
        bed.check_passes(&steered, &from_sales, Outcome::NotForUs);
        from_sales[..6].copy_from_slice(&LAN_MAC);
        bed.check_passes(&steered, &from_sales, Outcome::OtherTag);
    });
}

#[test]
fn a_tree_gets_the_frame_as_it_leaves_and_without_one_it_goes_to_the_kernel_as_it_was() {
    with_vlans(|bed, _| {
        let at = Port::new(LAN_MAC, false, Entry::Own);
        let takers = bed.router.takers();
        let mut tree = Tree::behind(takers, at, Hook::Xdp(XdpMode::Native), &[]).unwrap();
        tree.connect(bed.lan).unwrap();
        tree.take(takers, LAN).unwrap();
        let program = bed.router.program(LAN, false, Entry::Own, None).unwrap();
        let run = |frame: &[u8]| {
            let before = tree.totals().unwrap().sent_bytes;
            let (TestRun { verdict, frame, .. }, _) =
                run_arriving(program.program(), &[], frame, bed.lan).unwrap();
            (verdict, frame, tree.totals().unwrap().sent_bytes - before)
        };
        for (family, from) in (0..2).flat_map(|family| Place::ALL.map(|from| (family, from))) {
            for to in Place::ALL {
                let frame = from.frame(to.host(family), family, 6);
                let left = leaving(frame.clone(), from.tag(), to.tag(), to.macs());
                let bytes = left.len() as u64;
                assert!(run(&frame) == (REDIRECT, left, bytes), "{from:?} to {to:?}");
            }
            let frame = from.frame(INTERNET[family], family, 6);
            assert!(run(&frame) == (PASS, frame.clone(), 0), "{from:?}");
        }
    });
}
