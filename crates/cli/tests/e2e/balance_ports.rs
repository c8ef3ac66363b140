//! A balancer with several ports: services are answered at each, and the way to a server leads
//! through any of them.

use crate::balance::{Farm, PATIENCE, PORT, VIP, server_ip, servers_of};
use crate::setup::{NARROWS, complaint, ip, narrows, port_in, show, turn_to_count, wait_for};
use narrows_testbed::bed::{CLIENT_IP, PORT_A, PORT_B, SERVER};
use narrows_testbed::narrows::Instance;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;

/// The server behind the second port.
const DISTANT: &str = "198.18.1.11";
const NUMBER: u8 = 9;

/// A server behind the balancer's second port. Its answers go back that way, and on by the kernel.
fn serve_behind_second_port(farm: &Farm) {
    let (shaper, servers) = (farm.bed.shaper(), farm.bed.server());
    ip(shaper, &format!("addr add 198.18.1.254/24 dev {PORT_B}"));
    ip(servers, &format!("addr add {DISTANT}/24 dev {SERVER}"));
    ip(servers, &format!("route add {CLIENT_IP} via 198.18.1.254 dev {SERVER}"));
    servers.set(&format!("ipv4/conf/{SERVER}/rp_filter"), "0").unwrap();
    // They come from the service's address, which is this box's, too.
    for (setting, value) in [("rp_filter", "0"), ("accept_local", "1")] {
        shaper.set(&format!("ipv4/conf/{PORT_B}/{setting}"), value).unwrap();
        shaper.set(&format!("ipv4/conf/all/{setting}"), value).unwrap();
    }
    shaper.set("ipv4/ip_forward", "1").unwrap();
    // A veth sends what is redirected to it if its peer has GRO on. Checksums have to be there.
    servers.run("ethtool", &["-K", SERVER, "gro", "on", "tx", "off"]).unwrap();
    farm.serve(SERVER, NUMBER);
}

fn start(farm: &Farm, hook: &str) -> Instance {
    let ports = format!("{PORT_A},{PORT_B}");
    let words = ["run", "--port", &ports, "--xdp", hook];
    Instance::start_command(&farm.bed, Path::new(NARROWS), &words).unwrap()
}

fn fate(shown: &Value, port: &str, fate: &str) -> u64 {
    port_in(shown, port)["balance"][fate].as_u64().unwrap_or(0)
}

#[test]
fn connections_go_to_servers_behind_both_ports_and_stay_over_an_upgrade() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    serve_behind_second_port(&farm);
    for hook in ["native", "generic"] {
        connections_stay(&farm, start(&farm, hook));
    }
}

fn connections_stay(farm: &Farm, mut instance: Instance) {
    farm.balance(&format!("add -t {VIP}:{PORT} -s mh -b mh-port"));
    for server in [server_ip(1), DISTANT.to_owned()] {
        farm.balance(&format!("add -t {VIP}:{PORT} -r {server}"));
    }
    farm.wait_for_ways();
    let mut all = farm.connect_many(40);
    assert_eq!(servers_of(&all), [1, NUMBER].into(), "both get some");
    instance.upgrade().unwrap();
    for connection in &mut all {
        assert_eq!(connection.ask(), connection.server);
    }
    all.extend(farm.connect_many(20));
    assert_eq!(servers_of(&all), [1, NUMBER].into());
    let shown = show(&farm.bed);
    let sum = &shown["conservation"];
    assert_eq!(sum["unaccounted"], 0, "{shown:#}");
    let redirected = fate(&shown, PORT_A, "redirected");
    assert!(fate(&shown, PORT_A, "balanced") > 0 && redirected > 0, "{shown:#}");
    let sent = &port_in(&shown, PORT_B)["total"]["tx_packets"];
    assert_eq!(*sent, redirected, "what was redirected left there\n{shown:#}");
    let text = String::from_utf8(narrows(&farm.bed, &["show"]).stdout).unwrap();
    assert!(text.contains("redirected"), "{text}");
    drop(all);
    instance.stop().unwrap();
}

#[test]
fn a_server_behind_a_device_that_is_no_port_or_that_sends_nothing_of_others_is_said() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    serve_behind_second_port(&farm);
    {
        // The same server, and an instance without that port.
        let _instance = farm.start(&[]);
        farm.balance(&format!("add -t {VIP}:{PORT} -s mh"));
        let add = format!("balance add -t {VIP}:{PORT} -r {DISTANT}");
        let output = narrows(&farm.bed, &add.split(' ').collect::<Vec<_>>());
        assert!(complaint(&output).contains("another device"), "{}", complaint(&output));
    }
    farm.bed.server().run("ethtool", &["-K", SERVER, "gro", "off"]).unwrap();
    let _instance = start(&farm, "native");
    farm.balance(&format!("add -t {VIP}:{PORT} -s mh"));
    farm.balance(&format!("add -t {VIP}:{PORT} -r {DISTANT}"));
    let said = |show: &Value| show["events"].to_string().contains("servers behind port-b get no");
    wait_for(&farm.bed, "a word about the driver", said);
    let address = SocketAddr::from((VIP, PORT));
    let connect = || {
        let patience = std::time::Duration::from_millis(300);
        Ok(std::net::TcpStream::connect_timeout(&address, patience).is_err())
    };
    assert!(farm.bed.client().enter(connect).unwrap());
    let shown = show(&farm.bed);
    assert!(fate(&shown, PORT_A, "port_gone") > 0, "{shown:#}");
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
    assert!(shown["conservation"]["dropped"]["port_gone"].as_u64() > Some(0), "{shown:#}");
    // It is looked at again.
    farm.bed.server().run("ethtool", &["-K", SERVER, "gro", "on"]).unwrap();
    let sends = |show: &Value| show["events"].to_string().contains("all servers can be reached");
    crate::setup::wait_until("sent: what arrives at the other port", 2 * PATIENCE, || {
        sends(&show(&farm.bed))
    });
    assert_eq!(farm.connect().server, NUMBER);
}

#[test]
fn each_port_has_its_own_filters() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = start(&farm, "native");
    for (port, action) in [(PORT_A, "drop"), (PORT_B, "pass")] {
        for words in [
            format!("qdisc add dev {port} clsact"),
            format!(
                "filter add dev {port} ingress protocol ip flower ip_proto icmp action {action}"
            ),
        ] {
            let output = crate::setup::tc(&farm.bed, &words);
            assert!(output.status.success(), "{words}: {}", complaint(&output));
        }
    }
    let ping = ["-c", "2", "-i", "0.2", "-W", "1", &VIP.to_string()];
    assert!(farm.bed.client().run("ping", &ping).is_err());
    let shown = show(&farm.bed);
    let drops = |port| port_in(&shown, port)["total"]["drops"].as_u64().unwrap();
    assert_eq!((drops(PORT_A), drops(PORT_B)), (2, 0), "{shown:#}");
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
}
