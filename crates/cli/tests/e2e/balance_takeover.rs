//! A balancer dies, and another one goes on, which knows the same services and nothing else.

use crate::balance::{Farm, PORT, VIP, assert_balanced, assert_stay, servers_of};
use crate::setup::{Scratch, show, turn_to_count};
use std::time::Duration;

#[test]
fn connections_stay_when_a_balancer_dies_and_another_has_the_same_services() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    let mut connections = farm.connect_many(60);
    assert_eq!(servers_of(&connections), [1, 2, 3, 4].into());
    let services = Scratch::new("services", &farm.balance("save"));
    // Meanwhile this host is not to answer packets of connections that are none of its own.
    let nft = |words: &str| farm.bed.shaper().run("nft", &[words]).unwrap();
    nft("add table inet narrows");
    nft("add chain inet narrows input { type filter hook input priority 0; }");
    nft(&format!("add rule inet narrows input ip daddr {VIP} tcp dport {PORT} drop"));
    instance.kill().unwrap();
    connections.iter_mut().for_each(|connection| connection.say().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let _instance = farm.start(&[]);
    farm.balance(&format!("restore {}", services.path()));
    farm.wait_for_ways();
    // What was said meanwhile is sent again.
    for connection in &mut connections {
        assert_eq!(connection.hear().unwrap(), connection.server);
    }
    assert_stay(&mut connections);
    assert_balanced(&show(&farm.bed));
}
