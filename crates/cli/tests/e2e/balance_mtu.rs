//! Clients of a balancer whose packets do not fit into the tunnel to their server: they find out
//! what fits, and nobody has to lower an MSS.

use crate::balance::{Farm, PATIENCE, SERVER6, VIP, VIP6, server_ip};
use crate::setup::{ip, narrows, show, turn_to_count};
use narrows_testbed::unpack;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// No other server listens there.
const PORT: u16 = 8080;
/// Many full packets.
const UPLOAD: usize = 2_000_000;

/// The server answers with how much it got.
fn serve(farm: &Farm, service: SocketAddr) {
    let listener = farm.bed.server().enter(|| Ok(TcpListener::bind(service)?)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut got = Vec::new();
            let _ = stream.read_to_end(&mut got);
            let _ = stream.write_all(&got.len().to_be_bytes());
        }
    });
}

/// Sends all at once, and returns how much the server says it got.
fn upload(farm: &Farm, service: SocketAddr) -> usize {
    let connect = || Ok(TcpStream::connect_timeout(&service, PATIENCE)?);
    let mut stream = farm.bed.client().enter(connect).unwrap_or_else(|error| {
        let shown = narrows(&farm.bed, &["show"]).stdout;
        panic!("{service}: {error}\n{}", String::from_utf8_lossy(&shown))
    });
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&vec![7; UPLOAD]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    usize::from_be_bytes(answer)
}

#[test]
fn a_client_uploads_through_a_tunnel_without_a_lower_mss() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    farm.add_ipv6();
    let (client, servers) = (farm.bed.client(), farm.bed.server());
    let server4: IpAddr = server_ip(1).parse().unwrap();
    let server6 = SERVER6.into();
    let _unpack = [server4, server6].map(|server| unpack::ip_in_ip(servers, server).unwrap());
    let _instance = farm.start(&[]);
    let services = [(VIP.into(), server4, 1480), (VIP6.into(), server6, 1460)];
    for (vip, server, _) in services {
        let service = SocketAddr::new(vip, PORT);
        let server = SocketAddr::new(server, PORT);
        serve(&farm, service);
        farm.balance(&format!("add -t {service} -s mh -b mh-port"));
        farm.balance(&format!("add -t {service} -r {server} -i"));
    }
    farm.wait_for_ways();
    for (vip, server, mtu) in services {
        let service = SocketAddr::new(vip, PORT);
        assert_eq!(upload(&farm, service), UPLOAD, "{server}");
        let route = ip(client, &format!("route get {vip}"));
        assert!(route.contains(&format!("mtu {mtu}")), "{route}");
    }
    let shown = show(&farm.bed);
    let fates = &shown["ports"][0]["balance"];
    let answered = fates["answered"].as_u64().unwrap();
    assert!((2..100).contains(&answered), "a few are enough: {fates:#}");
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
}
