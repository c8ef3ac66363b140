//! What a running instance says of its services, and what it is told: over its control socket.

use crate::rise_fall::Member;
use narrows_balance::{Health, ListedServer, ListedService, ServerId, ServiceId};
use narrows_control::{Client, Request};
use narrows_tc::Outcome;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The servers of each service, as listed.
pub(crate) type Listed = BTreeMap<ServiceId, BTreeMap<IpAddr, Member>>;

/// What is said of a server's health.
pub(crate) type Edit = (ServiceId, ServerId, Health);

/// The instance deals a ring for each service that is in a request. It serves nobody else
/// meanwhile.
const SERVICES_AT_ONCE: usize = 16;

/// The services of the instance.
///
/// # Errors
/// If it does not say.
pub(crate) fn services(client: &Client) -> Result<Vec<ListedService>, String> {
    let args = ["list", "-j"].map(str::to_owned).into();
    match ask(client, &Request::Balance { args })? {
        (said, None) => read(&said),
        (_, Some(why)) => Err(why),
    }
}

/// Tells the instance of `edits`, which are in the order of services: those of a service are in
/// force at once. What it refuses is returned.
///
/// # Errors
/// If it does not answer.
pub(crate) fn tell(client: &Client, edits: &[Edit]) -> Result<Vec<String>, String> {
    let mut refused = Vec::new();
    let of_services: Vec<&[Edit]> = edits.chunk_by(|one, next| one.0 == next.0).collect();
    for some in of_services.chunks(SERVICES_AT_ONCE) {
        if let (_, Some(why)) = ask(client, &Request::Health { servers: some.concat() })? {
            refused.push(why);
        }
    }
    Ok(refused)
}

/// What the instance answers to a command, and why it failed if it did.
fn ask(client: &Client, request: &Request) -> Result<(String, Option<String>), String> {
    let Outcome { stdout, stderr, code } =
        client.ask(request).map_err(|error| error.to_string())?.outcome()?;
    Ok((stdout, (code != 0).then(|| stderr.trim_end().to_owned())))
}

fn read(json: &str) -> Result<Vec<ListedService>, String> {
    serde_json::from_str(json)
        .map_err(|error| format!("the instance does not list its services: {error}"))
}

/// What decides about a server.
fn member(server: &ListedServer) -> Member {
    Member { weight: server.weight, health: server.health }
}

/// The servers of each of `services`.
pub(crate) fn listed(services: &[ListedService]) -> Listed {
    let listed = services.iter().map(|service| {
        let id = service.id();
        let servers = service.servers.iter().map(|server| (server.address, member(server)));
        (id, servers.collect())
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_balance::{Protocol, Seen, Services};
    use narrows_units::Nanos;

    #[test]
    fn what_narrows_balance_lists_is_read() {
        let mut services = Services::default();
        let mut run = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let reply = services.run(&words, &Seen::default, Nanos::ZERO);
            assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
            reply.stdout
        };
        run("add -t 192.0.2.1:80 -s mh");
        run("add -t 192.0.2.1:80 -r 10.0.0.1 -w 7");
        run("add -u [2001:db8::1]:53 -s rr");
        run("add -u [2001:db8::1]:53 -r 2001:db8::2");
        run("edit -u [2001:db8::1]:53 -r 2001:db8::2 --down");
        let listed = listed(&read(&run("list -j")).unwrap());
        let of = |service: &str, protocol| &listed[&ServiceId::read(protocol, service).unwrap()];
        let first = of("192.0.2.1:80", Protocol::Tcp);
        assert_eq!(first[&IpAddr::from([10, 0, 0, 1])], Member { weight: 7, health: Health::Up });
        let second = of("[2001:db8::1]:53", Protocol::Udp);
        assert_eq!(
            second[&"2001:db8::2".parse().unwrap()],
            Member { weight: 1, health: Health::Down }
        );
        assert_eq!(listed.len(), 2);
        assert!(read("{}").is_err_and(|why| why.contains("does not list")));
    }
}
