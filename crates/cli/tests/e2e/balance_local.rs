//! A server of a balancer that is the balancer's own box.

use crate::balance::{Farm, PATIENCE, PORT, VIP, answer, server_ip, servers_of};
use crate::setup::{ip, port_in, show, turn_to_count, wait_until};
use narrows_testbed::bed::PORT_A;
use std::net::{SocketAddr, TcpListener};

/// An address of the box that is none of the port's network.
const OWN: &str = "198.18.7.7";
const NUMBER: u8 = 9;

/// The box answers at the service's address.
fn serve_itself(farm: &Farm) {
    let address = SocketAddr::from((VIP, PORT));
    let listener = farm.bed.shaper().enter(|| Ok(TcpListener::bind(address)?)).unwrap();
    answer(listener, NUMBER);
}

fn is_local(farm: &Farm) -> bool {
    farm.balance("list").contains(&format!("  -> {:<28} Local ", format!("{OWN}:{PORT}")))
}

#[test]
fn the_box_itself_is_a_server_that_drains_as_others_do() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    ip(farm.bed.shaper(), &format!("addr add {OWN}/32 dev lo"));
    serve_itself(&farm);
    for receiving in [&[][..], &["--rps", "0"]] {
        let mut instance = farm.start(receiving);
        farm.balance(&format!("add -t {VIP}:{PORT} -s mh -b mh-port"));
        farm.balance(&format!("add -t {VIP}:{PORT} -r {}", server_ip(1)));
        farm.balance(&format!("add -t {VIP}:{PORT} -r {OWN}"));
        farm.wait_for_ways();
        assert!(is_local(&farm), "{}", farm.balance("list"));
        let mut all = farm.connect_many(40);
        assert_eq!(servers_of(&all), [1, NUMBER].into());
        instance.upgrade().unwrap();
        farm.balance(&format!("edit -t {VIP}:{PORT} -r {OWN} -w 0"));
        assert_eq!(servers_of(&farm.connect_many(20)), [1].into(), "it gets no new ones");
        for connection in &mut all {
            assert_eq!(connection.ask(), connection.server);
        }
        let shown = show(&farm.bed);
        let local = port_in(&shown, PORT_A)["balance"]["local"].as_u64().unwrap();
        assert!(local > 0, "{shown:#}");
        assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
        let to_box = shown["conservation"]["to_box"].as_u64().unwrap();
        assert!(to_box >= local, "{shown:#}");
        drop(all);
        instance.stop().unwrap();
    }
}

#[test]
fn an_address_that_comes_and_goes_is_noticed() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let shaper = farm.bed.shaper();
    ip(shaper, &format!("route add {OWN}/32 via 198.18.0.77 dev {PORT_A}"));
    serve_itself(&farm);
    let _instance = farm.start(&[]);
    farm.balance(&format!("add -t {VIP}:{PORT} -s mh -b mh-port"));
    farm.balance(&format!("add -t {VIP}:{PORT} -r {OWN}"));
    assert!(!is_local(&farm), "{}", farm.balance("list"));
    ip(shaper, &format!("addr add {OWN}/32 dev lo"));
    wait_until("known: the server is this box", 2 * PATIENCE, || is_local(&farm));
    assert_eq!(farm.connect().server, NUMBER);
    ip(shaper, &format!("addr del {OWN}/32 dev lo"));
    wait_until("known: the server is this box no more", 2 * PATIENCE, || !is_local(&farm));
}
