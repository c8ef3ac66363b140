//! The realms and the metric of the route that a frame takes, for filters.

use super::plane::in_each_plane_by_tables;
use super::*;
use crate::router::Asks;
use crate::tree::layout::{Class, PRIORITIES};
use crate::tree::term::{self, Comparison, Next, Number, Relation};
use crate::tree::{Image, Scope};

const ROUTES: &str = "
    route add 203.0.113.0/24 via 10.0.1.2 realm 10
    route add 203.0.114.0/24 via 10.0.1.3 realm 5/20 metric 7
    route add 203.0.115.0/24 nexthop via 10.0.1.2 realm 30 nexthop via 10.0.1.3 realm 30
    route add 203.0.116.0/24 nexthop via 10.0.1.2 realm 40 nexthop via 10.0.1.3 realm 41
    route add 203.0.117.0/24 via 10.0.1.2 metric 9
    route add 10.9.0.0/16 via 10.0.0.5 realm 2
    route change 10.0.0.0/24 dev lan proto kernel scope link src 10.0.0.1 realm 3
    route add 2001:db8:113::/64 via 2001:db8:b::2 metric 77
    route add 2001:db8:114::/64 metric 78 nexthop via 2001:db8:b::2 nexthop via 2001:db8:b::3
";

/// Asks for routes at `lan`.
fn ask(bed: &Bed, router: &Router, asks: Asks) {
    bed.set_ingress(router, LAN, Ingress { asks, ..Ingress::default() });
}

/// What a worker learns of the route of a frame with these ends.
#[track_caller]
fn taken(bed: &Bed, steered: &Steered, source: &str, destination: &str) -> (u16, u16, u32) {
    let (verdict, _, before) = bed.run(steered, &frame(source, destination, 8));
    assert_eq!(verdict, REDIRECT, "{source} to {destination}");
    let route = route_taken(&before, SEAL).unwrap();
    (route.from(), route.to(), route.metric)
}

#[test]
fn the_metric_is_that_of_the_route_by_the_tables_and_by_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip(ROUTES);
        ask(bed, &bed.router, Asks::Route);
        let metric = |source, destination| taken(bed, &steered, source, destination).2;
        let v4 = ["203.0.113.1", "203.0.114.1", "203.0.115.1", "203.0.117.1", "10.0.1.3"];
        assert_eq!(v4.map(|to| metric(NEAR, to)), [0, 7, 0, 9, 0]);
        let v6 = ["2001:db8:113::1", "2001:db8:114::1", FAR6];
        assert_eq!(v6.map(|to| metric(NEAR6, to)), [77, 78, 1024]);
    });
}

#[test]
fn realms_are_those_of_the_tables_also_where_the_kernel_says_the_way() {
    in_one_bed(true, &|bed| {
        let steered = bed.steer();
        ip(ROUTES);
        ask(bed, &bed.router, Asks::Route);
        let realms = |source, destination| {
            let (from, to, _) = taken(bed, &steered, source, destination);
            (from, to)
        };
        let all = ["203.0.113.1", "203.0.114.1", "203.0.115.1", "203.0.116.1", "203.0.117.1"];
        let to = all.map(|to| realms(NEAR, to));
        assert_eq!(to, [(0, 10), (5, 20), (0, 30), (0, 0), (0, 0)]);
        assert_eq!(realms(NEAR6, "2001:db8:113::1"), (0, 0), "IPv6 has none");
        // The source's is found only where it is asked for. The route's own comes first.
        ask(bed, &bed.router, Asks::Source);
        let from = ["10.9.9.9", NEAR, "10.0.0.77", "192.0.2.1"];
        let from = from.map(|from| realms(from, "203.0.113.1"));
        assert_eq!(
            from,
            [(2, 10), (3, 10), (3, 10), (0, 10)],
            "on a link a host needs no neighbour"
        );
        assert_eq!(realms("10.9.9.9", "203.0.114.1"), (5, 20));
        // With a check of sources, and while it is not known what the kernel does.
        let source_check = SourceCheck::Strict;
        let ingress = Ingress { source_check, asks: Asks::Source, ..Ingress::default() };
        bed.set_ingress(&bed.router, LAN, ingress);
        assert_eq!(realms("10.9.9.9", "203.0.113.1"), (2, 10));
        {
            let (follower, tables) = &mut *bed.followed.borrow_mut();
            follower.mirror_mut().doubt(Family::V4);
            tables.follow(follower.mirror_mut()).unwrap();
        }
        assert_eq!(realms("10.9.9.9", "203.0.113.1"), (2, 10));
        // Another realm, of a route that stays.
        ip("route change 203.0.113.0/24 via 10.0.1.2 realm 11");
        assert_eq!(realms("10.9.9.9", "203.0.113.1"), (2, 11));
    });
}

#[test]
fn a_default_route_has_realms_and_a_metric_too() {
    in_one_bed(true, &|bed| {
        let steered = bed.steer();
        ask(bed, &bed.router, Asks::Source);
        ip("route add default via 10.0.1.2 realm 9 metric 5
            route add default via 2001:db8:b::2 metric 6");
        assert_eq!(taken(bed, &steered, NEAR, "192.0.2.1"), (0, 9, 5));
        assert_eq!(taken(bed, &steered, "192.0.2.9", "192.0.2.1"), (9, 9, 5));
        assert_eq!(taken(bed, &steered, NEAR6, "2001:db8:99::1"), (0, 0, 6));
        ip("route del default via 10.0.1.2 realm 9 metric 5
            route add default metric 5 nexthop via 10.0.1.2 realm 8 nexthop via 10.0.1.3 realm 8");
        assert_eq!(taken(bed, &steered, NEAR, "192.0.2.1"), (0, 8, 5));
    });
}

/// A term that assigns `class` to what has `value` there.
fn term(order: u64, number: Number, shift: u8, mask: u64, value: u64, class: u32) -> term::Term {
    let comparison = Comparison { shift, mask, ..Comparison::of(number, Relation::Equal, value) };
    let test = term::Test { comparison, then: Next::Matches, otherwise: Next::Fails };
    term::Term {
        scope: 0,
        order,
        first: Next::Test(0),
        tests: vec![test],
        does: term::Does::Assigns(class),
        actions: Vec::new(),
    }
}

#[test]
fn filters_of_the_tree_where_a_frame_leaves_see_its_route() {
    in_each_plane_by_tables(|mut plane| {
        ip(&ROUTES.replace("route add", "route replace"));
        let image = Image {
            terms: vec![
                term(1, Number::Realms, 0, 0xffff, 10, 2),
                term(2, Number::Realms, 16, 0xffff, 2, 3),
                term(3, Number::Metric, 0, u64::from(u32::MAX), 77, 4),
            ],
            outermost: Scope { otherwise: [1; PRIORITIES], ..Scope::default() },
            classes: (1..=4).map(|class| (class, Class::default())).collect(),
            ..Image::default()
        };
        plane.trees[1].install(image, &[1, 2, 3, 4]).unwrap();
        let frames = [
            (frame(NEAR, "203.0.113.1", 8), 2),
            (frame("10.9.9.9", "203.0.117.1", 8), 3),
            (frame("10.9.9.9", "203.0.113.1", 8), 2),
            (frame(NEAR6, "2001:db8:113::1", 8), 4),
            (frame(NEAR, "203.0.117.1", 8), 1),
            (frame(NEAR6, "2001:db8:114::1", 8), 1),
        ];
        let classes = |plane: &plane::Plane<'_>| {
            [1, 2, 3, 4].map(|class| plane.trees[1].class_counters(class).unwrap().own_packets)
        };
        let mut expected = [0; 4];
        for asks in [Asks::Source, Asks::Route] {
            ask(plane.bed, &plane.router, asks);
            for (frame, class) in &frames {
                assert_eq!(plane.run(frame).0, REDIRECT);
                // What is not asked for has no realm.
                let class = if (asks, *class) == (Asks::Route, 3) { 1 } else { *class };
                expected[class - 1] += 1;
                assert_eq!(classes(&plane), expected, "{asks:?}, class {class}");
            }
        }
    });
}
