//! What a program finds is what the kernel would do, or it asks the kernel.

use narrows_image::{Full, Prefix, Words};
use narrows_routes::image::Layout;
use narrows_routes::{
    Attributes, Changed, Device, Family, Hop, Mirror, Number, Object, Route, Target, address_of,
    bits_of,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::HashMap;
use std::net::IpAddr;

/// The program's side: an image for a family, and next hops by number.
struct Program {
    family: Family,
    image: Option<(Layout, Words)>,
    hops: HashMap<Number, (Option<Hop>, Attributes)>,
}

impl Program {
    fn follow(&mut self, mirror: &mut Mirror) {
        let Changed { hops, mut prefixes } = mirror.take_changed();
        self.hops.extend(hops.into_iter().map(|(number, hop, of)| (number, (hop, of))));
        let prefixes = prefixes[self.family as usize].take();
        if let (Some(prefixes), Some((layout, words))) = (prefixes, &mut self.image)
            && mirror.update(layout, &prefixes, words) != Err(Full)
        {
            return;
        }
        let mut words = Words(vec![0; mirror.size(self.family) + 20_000]);
        let layout = mirror.lay_out(self.family, &mut words).expect("it was measured");
        self.image = Some((layout, words));
    }

    fn find(&self, mirror: &Mirror, address: u128) -> Option<Hop> {
        self.entry(address).filter(|_| mirror.is_sure(self.family))?.0
    }

    /// The attributes of the route of `address`, which are known also while the kernel is asked.
    fn attributes(&self, address: u128) -> Attributes {
        self.entry(address).unwrap_or_default().1
    }

    fn entry(&self, address: u128) -> Option<(Option<Hop>, Attributes)> {
        let (layout, words) = self.image.as_ref()?;
        let number = match (layout.find(words, address), self.family) {
            (Number::DEFAULT, Family::V6) => Number::DEFAULT_V6,
            (number, _) => number,
        };
        self.hops.get(&number).copied()
    }
}

/// The naive model: what a kernel has, and what it would do.
#[derive(Default)]
struct Kernel {
    routes: Vec<Route>,
    neighbours: HashMap<(u32, IpAddr), [u8; 6]>,
    devices: HashMap<u32, Device>,
    objects: HashMap<u32, Object>,
}

impl Kernel {
    fn alike(&self, route: &Route) -> Vec<usize> {
        let key = |it: &Route| (it.family, it.prefix, it.metric, it.tos, it.is_local);
        let all = self.routes.iter().enumerate();
        all.filter(|(_, it)| key(it) == key(route)).map(|(at, _)| at).collect()
    }

    /// The route that decides alone, if there is one.
    fn route(&self, family: Family, address: u128) -> Option<&Route> {
        let covering = |it: &&Route| it.family == family && it.prefix.covers(address);
        if self.routes.iter().any(|it| it.is_local && covering(&it)) {
            return None;
        }
        let covering: Vec<&Route> = self.routes.iter().filter(covering).collect();
        let len = covering.iter().map(|it| it.prefix.len).max()?;
        let longest = || covering.iter().filter(|it| it.prefix.len == len);
        let metric = longest().map(|it| it.metric).min()?;
        let best: Vec<_> = longest().filter(|it| it.metric == metric).collect();
        if best.len() > 1 || longest().any(|it| it.tos != 0) {
            return None;
        }
        Some(best[0])
    }

    fn find(&self, family: Family, address: u128) -> Option<Hop> {
        let (ifindex, gateway, mtu) = match self.route(family, address)?.target {
            Target::Gateway { ifindex, gateway, mtu } => (ifindex, gateway, mtu),
            Target::OnLink { ifindex } => (ifindex, address_of(family, address), 0),
            Target::Object { id, mtu } => match self.objects.get(&id)? {
                Object::Gateway { ifindex, gateway } => (*ifindex, *gateway, mtu),
                Object::Ask => return None,
            },
            Target::Ask => return None,
        };
        let device = self.devices.get(&ifindex).filter(|device| device.is_running)?;
        Some(Hop {
            port: device.port?,
            destination: *self.neighbours.get(&(ifindex, gateway))?,
            source: device.mac,
            mtu: match (mtu, family) {
                (0, Family::V4) => device.mtu_v4,
                (0, Family::V6) => device.mtu_v6,
                _ => mtu,
            },
            tag: device.tag,
        })
    }
}

#[derive(Clone, Debug)]
enum Event {
    Add(Route, bool),
    Remove(usize),
    Neighbour(u32, IpAddr, Option<[u8; 6]>),
    Device(u32, Device),
    Object(u32, Object),
    Relist,
    Follow,
}

/// Few, so that prefixes, gateways and hosts meet.
fn address(family: Family) -> impl Strategy<Value = u128> {
    let at = (0..4_u128, 0..4_u128, 0..8_u128);
    at.prop_map(move |(high, middle, low)| match family {
        Family::V4 => (0x0a00_0000 | high << 22 | middle << 8 | low) << 96,
        Family::V6 => 0x2001_0db8_u128 << 96 | high << 88 | middle << 64 | low,
    })
}

fn route(family: Family) -> impl Strategy<Value = Route> {
    let len = match family {
        Family::V4 => prop_oneof![Just(0_u8), Just(8), Just(10), Just(24), Just(30), Just(32)],
        Family::V6 => prop_oneof![Just(0_u8), Just(32), Just(40), Just(64), Just(125), Just(128)],
    };
    let mtu = prop_oneof![3 => Just(0_u32), 1 => Just(1400)];
    let target = prop_oneof![
        4 => (0..3_u32, address(family), mtu.clone()).prop_map(move |(ifindex, gateway, mtu)| {
            Target::Gateway { ifindex, gateway: address_of(family, gateway), mtu }
        }),
        2 => (0..3_u32).prop_map(|ifindex| Target::OnLink { ifindex }),
        1 => (0..3_u32, mtu).prop_map(|(id, mtu)| Target::Object { id, mtu }),
        1 => Just(Target::Ask),
    ];
    let tos = prop_oneof![9 => Just(0_u8), 1 => Just(8)];
    let is_local = prop_oneof![9 => Just(false), 1 => Just(true)];
    let realms = prop_oneof![2 => Just(0_u32), 1 => Just(10), 1 => Just(0x0002_000a)];
    (address(family), len, 0..2_u32, tos, target, is_local, realms).prop_map(
        move |(bits, len, metric, tos, target, is_local, realms)| {
            // What is local is an address.
            let len = if is_local { family.bits() } else { len };
            let prefix = Prefix::new(bits, len);
            let (metric, tos) = if is_local { (0, 0) } else { (metric, tos) };
            let target = if is_local { Target::Ask } else { target };
            Route { family, prefix, metric, tos, realms, target, is_local }
        },
    )
}

fn event(family: Family) -> impl Strategy<Value = Event> {
    let mac = proptest::option::weighted(0.8, (0..4_u8).prop_map(|it| [2, 0, 0, 0, 0, it]));
    let port = proptest::option::weighted(0.8, 0..3_u8);
    let device =
        (port, proptest::bool::weighted(0.8), 0..2_u8).prop_map(|(port, is_running, mac)| Device {
            port,
            is_running,
            mac: [6, 0, 0, 0, 0, mac],
            mtu_v4: 1500,
            mtu_v6: 1480,
            tag: None,
        });
    prop_oneof![
        8 => (route(family), any::<bool>()).prop_map(|(route, replace)| Event::Add(route, replace)),
        4 => any::<prop::sample::Index>().prop_map(|at| Event::Remove(at.index(1000))),
        6 => (0..3_u32, address(family), mac).prop_map(move |(ifindex, host, mac)| {
            Event::Neighbour(ifindex, address_of(family, host), mac)
        }),
        3 => (0..3_u32, device).prop_map(|(ifindex, device)| Event::Device(ifindex, device)),
        2 => (0..3_u32, 0..3_u32, address(family)).prop_map(move |(id, ifindex, gateway)| {
            let gateway = address_of(family, gateway);
            Event::Object(id, if ifindex == 2 { Object::Ask } else { Object::Gateway { ifindex, gateway } })
        }),
        1 => Just(Event::Relist),
        4 => Just(Event::Follow),
    ]
}

fn relist(kernel: &Kernel, mirror: &mut Mirror) {
    mirror.begin();
    kernel.routes.iter().for_each(|route| mirror.list(route));
    mirror.end();
}

fn agrees(family: Family, events: &[Event]) -> TestCaseResult {
    let (mut kernel, mut mirror) = (Kernel::default(), Mirror::default());
    let mut program = Program { family, image: None, hops: HashMap::new() };
    relist(&kernel, &mut mirror);
    let mut asked: Vec<u128> = Vec::new();
    // A prefix of which several alike were there when one was replaced stays unclear until a
    // listing: the kernel may do it either way.
    let mut is_unclear = false;
    for event in events.iter().chain([&Event::Follow, &Event::Relist, &Event::Follow]) {
        match event {
            Event::Add(route, replace) => {
                asked.push(route.prefix.bits);
                let alike = kernel.alike(route);
                let is_there = alike.iter().any(|at| kernel.routes[*at] == *route);
                if route.is_local && !alike.is_empty() || is_there && !replace {
                    continue;
                }
                if *replace {
                    is_unclear |= alike.len() > 1;
                    for at in alike.into_iter().rev() {
                        kernel.routes.remove(at);
                    }
                }
                kernel.routes.push(*route);
                mirror.add(route, *replace);
            }
            Event::Remove(_) if kernel.routes.is_empty() => {}
            Event::Remove(at) => {
                let route = kernel.routes.remove(at % kernel.routes.len());
                mirror.remove(&route);
            }
            Event::Neighbour(ifindex, host, mac) => {
                asked.push(bits_of(*host));
                match mac {
                    Some(mac) => drop(kernel.neighbours.insert((*ifindex, *host), *mac)),
                    None => drop(kernel.neighbours.remove(&(*ifindex, *host))),
                }
                mirror.set_neighbour(*ifindex, *host, *mac);
            }
            Event::Device(ifindex, device) => {
                kernel.devices.insert(*ifindex, *device);
                mirror.set_device(*ifindex, Some(*device));
            }
            Event::Object(id, object) => {
                kernel.objects.insert(*id, *object);
                mirror.set_object(*id, Some(*object));
            }
            Event::Relist => {
                relist(&kernel, &mut mirror);
                is_unclear = false;
            }
            Event::Follow => {
                program.follow(&mut mirror);
                for address in &asked {
                    let (found, is) =
                        (program.find(&mirror, *address), kernel.find(family, *address));
                    if found != is {
                        prop_assert!(found.is_none(), "{address:x}: {found:?}, not {is:?}");
                        prop_assert!(is_unclear, "{address:x} asks for {is:?}");
                    }
                    let told = program.attributes(*address);
                    let route = kernel.route(family, *address).map(Route::attributes);
                    if found.is_some() {
                        prop_assert_eq!(Some(told), route);
                    }
                    let realms = route.map_or(0, |route| route.realms);
                    if told.realms != realms {
                        prop_assert_eq!(told.realms, 0);
                        prop_assert!(is_unclear, "{:x} is of {:#x}", address, realms);
                    }
                }
            }
        }
    }
    prop_assert!(!mirror.is_unclear());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn ipv4_is_routed_as_the_kernel_would(events in proptest::collection::vec(event(Family::V4), 0..80)) {
        agrees(Family::V4, &events)?;
    }

    #[test]
    fn ipv6_is_routed_as_the_kernel_would(events in proptest::collection::vec(event(Family::V6), 0..80)) {
        agrees(Family::V6, &events)?;
    }
}

const PREFIX: Prefix = Prefix { bits: 0x0a01_0000 << 96, len: 16 };
const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const INSIDE: u128 = 0x0a01_0203 << 96;

/// A route by a gateway that can be reached.
fn with_a_route() -> (Mirror, Program, Route) {
    let mut mirror = Mirror::default();
    mirror.set_device(
        1,
        Some(Device { port: Some(0), is_running: true, mtu_v4: 1500, ..Device::default() }),
    );
    mirror.set_neighbour(1, GATEWAY, Some([2; 6]));
    let target = Target::Gateway { ifindex: 1, gateway: GATEWAY, mtu: 0 };
    let (family, prefix) = (Family::V4, PREFIX);
    let route = Route { family, prefix, metric: 0, tos: 0, realms: 0, target, is_local: false };
    mirror.begin();
    mirror.list(&route);
    mirror.end();
    let mut program = Program { family: Family::V4, image: None, hops: HashMap::new() };
    program.follow(&mut mirror);
    assert!(program.find(&mirror, INSIDE).is_some());
    (mirror, program, route)
}

#[test]
fn what_led_to_a_device_that_was_down_is_asked_for_until_a_listing_is_there() {
    let (mut mirror, mut program, _) = with_a_route();
    mirror.doubt_device(1);
    program.follow(&mut mirror);
    assert_eq!(program.find(&mirror, INSIDE), None);
    // The kernel has removed the route without a word.
    mirror.begin();
    mirror.end();
    program.follow(&mut mirror);
    assert_eq!(program.find(&mirror, INSIDE), None);
    let (mut mirror, mut program, route) = with_a_route();
    mirror.begin();
    mirror.list(&route);
    mirror.doubt_device(1);
    mirror.end();
    program.follow(&mut mirror);
    assert_eq!(program.find(&mirror, INSIDE), None, "the listing had begun before");
}

#[test]
fn a_family_in_doubt_is_asked_for_until_a_listing_is_there() {
    let (mut mirror, program, route) = with_a_route();
    mirror.doubt(Family::V4);
    assert_eq!(program.find(&mirror, INSIDE), None);
    mirror.begin();
    mirror.list(&route);
    mirror.end();
    assert!(program.find(&mirror, INSIDE).is_some());
}

#[test]
fn a_local_prefix_that_could_hide_routes_stops_the_image() {
    let (mut mirror, program, _) = with_a_route();
    let local = |bits: u128, len| Route {
        prefix: Prefix { bits: bits << 96, len },
        target: Target::Ask,
        is_local: true,
        family: Family::V4,
        metric: 0,
        tos: 0,
        realms: 0,
    };
    mirror.add(&local(0x7f00_0000, 8), false);
    mirror.add(&local(0x0a01_0001, 32), false);
    assert!(program.find(&mirror, INSIDE).is_some());
    mirror.add(&local(0x0a00_0000, 8), false);
    assert_eq!(program.find(&mirror, INSIDE), None);
    mirror.remove(&local(0x0a00_0000, 8));
    assert!(program.find(&mirror, INSIDE).is_some());
}

#[test]
fn a_listing_that_fails_refers_to_no_next_hop() {
    let (mut mirror, _, route) = with_a_route();
    let hops = mirror.hops();
    for at in 0..10 {
        mirror.begin();
        let gateway = IpAddr::V4((0x0c00_0000 + at).into());
        mirror.list(&Route { target: Target::Gateway { ifindex: 1, gateway, mtu: 0 }, ..route });
    }
    mirror.begin();
    mirror.list(&route);
    mirror.end();
    assert_eq!(mirror.hops(), hops);
}

#[test]
fn numbers_that_are_used_up_are_asked_for() {
    let (mut mirror, mut program, route) = with_a_route();
    mirror.begin();
    for at in 0..70_000_u32 {
        let prefix = Prefix { bits: u128::from(0x0b00_0000 + at) << 96, len: 32 };
        let gateway = IpAddr::V4((0x0c00_0000 + at).into());
        mirror.set_neighbour(1, gateway, Some([4; 6]));
        let target = Target::Gateway { ifindex: 1, gateway, mtu: 0 };
        mirror.list(&Route { prefix, target, ..route });
    }
    mirror.end();
    program.follow(&mut mirror);
    let found = |at: u32| program.find(&mirror, u128::from(0x0b00_0000 + at) << 96).is_some();
    let found = (0..70_000).filter(|at| found(*at)).count();
    // One is still the route's that is gone.
    assert_eq!(found, Number::COUNT - Number::FIRST.index() - 1);
    mirror.begin();
    mirror.list(&route);
    mirror.end();
    program.follow(&mut mirror);
    assert!(program.find(&mirror, INSIDE).is_some(), "free numbers are used again");
}

#[test]
fn realms_of_what_the_kernel_is_asked_for_are_known_also_while_its_family_is_in_doubt() {
    let (mut mirror, mut program, route) = with_a_route();
    let told = |program: &Program| program.attributes(INSIDE).realms;
    let several = Route { target: Target::Ask, realms: 10, ..route };
    mirror.add(&several, true);
    program.follow(&mut mirror);
    assert_eq!((program.find(&mirror, INSIDE), told(&program)), (None, 10));
    mirror.doubt(Family::V4);
    program.follow(&mut mirror);
    assert_eq!(told(&program), 10);
    // Another realm, and nothing else.
    mirror.add(&Route { realms: 20, ..several }, true);
    program.follow(&mut mirror);
    assert_eq!(told(&program), 20);
    mirror.remove(&Route { realms: 20, ..several });
    program.follow(&mut mirror);
    assert_eq!(told(&program), 0);
}

#[test]
fn hosts_on_a_link_have_the_attributes_of_its_route_known_or_not() {
    let (mut mirror, mut program, route) = with_a_route();
    let on_link = Route { target: Target::OnLink { ifindex: 1 }, realms: 2, metric: 7, ..route };
    mirror.begin();
    mirror.list(&on_link);
    mirror.end();
    let host = address_of(Family::V4, INSIDE);
    for mac in [None, Some([4; 6])] {
        mirror.set_neighbour(1, host, mac);
        program.follow(&mut mirror);
        assert_eq!(program.find(&mirror, INSIDE).is_some(), mac.is_some());
        assert_eq!(program.attributes(INSIDE), Attributes { realms: 2, metric: 7 });
    }
    mirror.add(&Route { realms: 3, ..on_link }, true);
    program.follow(&mut mirror);
    assert_eq!(program.attributes(INSIDE), Attributes { realms: 3, metric: 7 });
}
