//! A command: `ipvsadm`'s letters (`-A -t ADDRESS:PORT -s mh`), or a word in the place of the first
//! (`add -t ADDRESS:PORT -s mh`; with `-r`, of a server).

use crate::address;
use crate::quic::{self, QuicFormat};
use crate::service::{
    Forward, Health, Protocol, Scheduler, Server, ServerId, Service, ServiceId, Tunnel,
};
use narrows_escape::shell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// For how long a client returns to its server, in seconds, if nothing else is said.
const PERSISTENCE_S: u32 = 360;
/// The longest such time, in seconds: 31 days, as in `ipvsadm`.
const PERSISTENCE_S_MAX: u32 = 31 * 24 * 3600;
/// The UDP port of GUE.
const GUE_PORT: u16 = 6080;

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    AddService(ServiceId, ServiceWords),
    EditService(ServiceId, ServiceWords),
    DeleteService(ServiceId),
    AddServer(ServiceId, ServerId, ServerWords),
    EditServer(ServiceId, ServerId, ServerWords),
    DeleteServer(ServiceId, ServerId),
    Clear,
    Zero(Option<ServiceId>),
    List(Option<ServiceId>, View),
    Save,
    Help,
}

/// What a listing shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// Counters instead of weights.
    pub(crate) stats: bool,
    /// Counters in full.
    pub(crate) exact: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// What is said of a service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServiceWords {
    scheduler: Option<Scheduler>,
    flags: Option<Vec<String>>,
    persistence_s: Option<u32>,
    client_bits: Option<u8>,
    one_packet: bool,
    /// `Some(None)` says that there is none.
    quic: Option<Option<QuicFormat>>,
}

/// What is said of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServerWords {
    forward: Option<Forward>,
    weight: Option<u16>,
    health: Option<Health>,
    /// `Some(None)` says that it has none.
    quic_id: Option<Option<u128>>,
}

impl ServiceWords {
    /// The service `before`, or a new one at an address of this family, with what is said.
    pub(crate) fn applied(&self, before: Option<&Service>, is_v6: bool) -> Result<Service, String> {
        let scheduler = self.scheduler.or(before.map(|before| before.scheduler));
        let scheduler = scheduler.unwrap_or(Scheduler::Maglev);
        let mut service = match before {
            Some(before) => Service { scheduler, ..before.clone() },
            None => Service::new(scheduler, is_v6),
        };
        if let Some(seconds) = self.persistence_s {
            service.persistence_s = Some(seconds);
        }
        if let Some(bits) = self.client_bits {
            service.client_bits = bits;
        }
        service.one_packet |= self.one_packet;
        service.quic = self.quic.unwrap_or(service.quic);
        if let Some(flags) = &self.flags {
            (service.hashes_port, service.falls_back) = (false, false);
            for flag in flags {
                match flag.strip_prefix(scheduler.name()).filter(|_| scheduler.is_hash()) {
                    Some("-port") => service.hashes_port = true,
                    Some("-fallback") => service.falls_back = true,
                    _ => {
                        return Err(format!(
                            "scheduler {} has no flag \"{}\": mh has mh-port and mh-fallback, sh has \
                             sh-port and sh-fallback",
                            scheduler.name(),
                            shell(flag)
                        ));
                    }
                }
            }
        }
        // Servers that take turns are chosen by no hash.
        service.hashes_port &= scheduler.is_hash();
        service.falls_back &= scheduler.is_hash();
        Ok(service)
    }
}

impl ServerWords {
    /// The server `before`, or a new one, with what is said.
    pub(crate) fn applied(&self, before: Option<&Server>) -> Server {
        let before = before.cloned().unwrap_or_default();
        Server {
            forward: self.forward.unwrap_or(before.forward),
            weight: self.weight.unwrap_or(before.weight),
            quic_id: self.quic_id.unwrap_or(before.quic_id),
        }
    }

    /// What is said of its health.
    pub(crate) const fn health(&self) -> Option<Health> {
        self.health
    }
}

/// The commands, by letter, name and our word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    AddServer,
    Edit,
    EditServer,
    Delete,
    DeleteServer,
    Clear,
    Zero,
    List,
    Save,
    Help,
}

impl Verb {
    fn of(word: &str) -> Result<Self, String> {
        Ok(match word {
            "add" | "-A" | "--add-service" => Self::Add,
            "-a" | "--add-server" => Self::AddServer,
            "edit" | "-E" | "--edit-service" => Self::Edit,
            "-e" | "--edit-server" => Self::EditServer,
            "del" | "delete" | "-D" | "--delete-service" => Self::Delete,
            "-d" | "--delete-server" => Self::DeleteServer,
            "clear" | "-C" | "--clear" => Self::Clear,
            "zero" | "-Z" | "--zero" => Self::Zero,
            "list" | "-L" | "-l" | "--list" => Self::List,
            "save" | "-S" | "--save" => Self::Save,
            "help" | "-h" | "--help" => Self::Help,
            "--set" => {
                return Err(
                    "there are no timeouts to set: what is recorded stays until its place \
                            is needed"
                        .into(),
                );
            }
            "--start-daemon" | "--stop-daemon" => {
                return Err("there is no sync daemon: balancers with equal services choose equal \
                            servers"
                    .into());
            }
            _ => return Err(format!("unknown command \"{}\"", shell(word))),
        })
    }
}

/// The options of a command.
#[derive(Default)]
struct Options {
    service: Option<ServiceId>,
    server: Option<(IpAddr, Option<u16>)>,
    of_service: ServiceWords,
    of_server: ServerWords,
    tunnel: Option<TunnelWords>,
    view: View,
    /// The last option of each kind, to name it where it does not belong.
    service_option: Option<String>,
    server_option: Option<String>,
    view_option: Option<String>,
    mask: Option<String>,
}

#[derive(Default)]
struct TunnelWords {
    is_gue: bool,
    port: Option<u16>,
}

/// Reads a command.
///
/// # Errors
/// Why it is none.
pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Command, String> {
    let mut words = words.into_iter();
    let Some(first) = words.next() else { return Ok(Command::List(None, View::default())) };
    let verb = Verb::of(first)?;
    let options = Options::read(words)?;
    options.command(verb, first)
}

impl Options {
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut next = words.next();
        while let Some(word) = next.take() {
            let mut value = |what: &str| words.next().ok_or_else(|| format!("{word} needs {what}"));
            match word {
                "-t" | "--tcp-service" => options.service(Protocol::Tcp, value("ADDRESS:PORT")?)?,
                "-u" | "--udp-service" => options.service(Protocol::Udp, value("ADDRESS:PORT")?)?,
                "-r" | "--real-server" => options.server = Some(address::read(value("ADDRESS")?)?),
                "-s" | "--scheduler" => {
                    options.of_service.scheduler = Some(scheduler(value("mh, sh, rr or wrr")?)?);
                    options.service_option = Some(word.into());
                }
                "-b" | "--sched-flags" => {
                    let flags = value("FLAG,..")?.split(',').map(str::to_owned).collect();
                    options.of_service.flags = Some(flags);
                    options.service_option = Some(word.into());
                }
                "-p" | "--persistent" => {
                    options.service_option = Some(word.into());
                    let seconds = words.next();
                    match seconds.filter(|word| !word.starts_with('-')) {
                        Some(seconds) => options.persist(Some(seconds))?,
                        None => {
                            options.persist(None)?;
                            next = seconds;
                            continue;
                        }
                    }
                }
                "-M" | "--netmask" => {
                    options.mask = Some(value("a mask or a number of bits")?.to_owned());
                    options.service_option = Some(word.into());
                }
                "-o" | "--ops" => {
                    options.of_service.one_packet = true;
                    options.service_option = Some(word.into());
                }
                "--quic" => {
                    let format = value("a format: lb:N, katran or none")?;
                    options.of_service.quic = Some(or_none(format, QuicFormat::read)?);
                    options.service_option = Some(word.into());
                }
                "--quic-id" => {
                    let id = value("a number or none")?;
                    options.of_server.quic_id = Some(or_none(id, quic::read_id)?);
                    options.server_option = Some(word.into());
                }
                "-g" | "--gatewaying" => {
                    options.of_server.forward = Some(Forward::Route);
                    options.server_option = Some(word.into());
                }
                "-i" | "--ipip" => {
                    options.of_server.forward = Some(Forward::Tunnel(Tunnel::Ip));
                    options.server_option = Some(word.into());
                }
                "-w" | "--weight" => {
                    let weight = value("a weight")?;
                    let number = weight
                        .parse()
                        .map_err(|_| format!("\"{}\" is no weight: 0 to 65535", shell(weight)))?;
                    options.of_server.weight = Some(number);
                    options.server_option = Some(word.into());
                }
                "--down" | "--up" => {
                    let is_down = word == "--down";
                    options.of_server.health =
                        Some(if is_down { Health::Down } else { Health::Up });
                    options.server_option = Some(word.into());
                }
                "--tun-type" => {
                    let kind = value("ipip or gue")?;
                    options.tunnel.get_or_insert_default().is_gue = match kind {
                        "ipip" => false,
                        "gue" => true,
                        _ => {
                            return Err(format!(
                                "tunnels of type {} are not made here: ipip or gue",
                                shell(kind)
                            ));
                        }
                    };
                }
                "--tun-port" => {
                    let port = value("a UDP port")?;
                    let port = port.parse().ok().filter(|port| *port != 0);
                    let port = port.ok_or("--tun-port needs a port from 1 to 65535")?;
                    options.tunnel.get_or_insert_default().port = Some(port);
                }
                "--tun-nocsum" => {}
                "-x" | "--u-threshold" | "-y" | "--l-threshold" => {
                    if value("a number")? != "0" {
                        return Err(format!(
                            "{word} counts open connections, which a balancer does not know that \
                             does not see replies"
                        ));
                    }
                }
                "-n" | "--numeric" | "--nosort" | "--sort" | "-6" | "--ipv6" => {}
                "--stats" => options.show(word, |view| view.stats = true),
                "--exact" => options.show(word, |view| view.exact = true),
                "-j" | "--json" => options.show(word, |view| view.json = true),
                _ => return Err(refusal(word)),
            }
            next = words.next();
        }
        Ok(options)
    }

    fn service(&mut self, protocol: Protocol, word: &str) -> Result<(), String> {
        self.service = Some(ServiceId::read(protocol, word)?);
        Ok(())
    }

    fn persist(&mut self, seconds: Option<&str>) -> Result<(), String> {
        let seconds = match seconds {
            None => PERSISTENCE_S,
            Some(word) => {
                let seconds = word.parse().ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.filter(|seconds| *seconds <= PERSISTENCE_S_MAX);
                seconds.ok_or_else(|| {
                    format!("\"{}\" is no time in seconds: 1 to 2678400", shell(word))
                })?
            }
        };
        self.of_service.persistence_s = Some(seconds);
        Ok(())
    }

    fn show(&mut self, word: &str, set: impl FnOnce(&mut View)) {
        set(&mut self.view);
        self.view_option = Some(word.into());
    }

    fn command(mut self, verb: Verb, first: &str) -> Result<Command, String> {
        self.join_tunnel()?;
        let is_of_server = matches!(verb, Verb::AddServer | Verb::EditServer | Verb::DeleteServer)
            || (matches!(first, "add" | "edit" | "del" | "delete") && self.server.is_some());
        let changes = matches!(verb, Verb::Add | Verb::AddServer | Verb::Edit | Verb::EditServer);
        let stray = [
            (self.service_option.as_ref(), changes && !is_of_server),
            (self.server_option.as_ref(), changes && is_of_server),
            (self.view_option.as_ref(), verb == Verb::List),
        ];
        for (option, belongs) in stray {
            if let Some(option) = option.filter(|_| !belongs) {
                return Err(format!("option {option} does not belong to {first}"));
            }
        }
        if self.server.is_some() && !is_of_server {
            return Err(format!("option -r does not belong to {first}"));
        }
        match verb {
            Verb::Clear => return Ok(Command::Clear),
            Verb::Save => return Ok(Command::Save),
            Verb::Help => return Ok(Command::Help),
            Verb::List => return Ok(Command::List(self.service, self.view)),
            Verb::Zero => return Ok(Command::Zero(self.service)),
            _ => {}
        }
        let id = self.service.ok_or_else(|| {
            format!("{first} needs a service: -t ADDRESS:PORT or -u ADDRESS:PORT")
        })?;
        if is_of_server {
            let server = self.server_id(id, first)?;
            if self.of_server.health.is_some() && !matches!(verb, Verb::Edit | Verb::EditServer) {
                return Err(format!("{first} takes no --down and --up: edit does"));
            }
            return Ok(match verb {
                Verb::Add | Verb::AddServer => Command::AddServer(id, server, self.of_server),
                Verb::Edit | Verb::EditServer => Command::EditServer(id, server, self.of_server),
                _ => Command::DeleteServer(id, server),
            });
        }
        if let Some(mask) = &self.mask {
            self.of_service.client_bits = Some(bits(mask, id.address)?);
        }
        if id.port == 0 && self.of_service.persistence_s.is_none() && verb == Verb::Add {
            return Err("a service for all ports (port 0) needs -p: a client's connections to \
                        several ports belong to one server"
                .into());
        }
        if self.of_service.one_packet && id.protocol == Protocol::Tcp {
            return Err("-o is for UDP: packets of a TCP connection belong together".into());
        }
        if self.of_service.quic.is_some() && id.protocol == Protocol::Tcp {
            return Err("--quic is for UDP, which carries QUIC: -u".into());
        }
        Ok(match verb {
            Verb::Add => Command::AddService(id, self.of_service),
            Verb::Edit => Command::EditService(id, self.of_service),
            _ => Command::DeleteService(id),
        })
    }

    fn join_tunnel(&mut self) -> Result<(), String> {
        let Some(TunnelWords { is_gue, port }) = self.tunnel else { return Ok(()) };
        match (&mut self.of_server.forward, is_gue) {
            (Some(Forward::Tunnel(tunnel)), true) => {
                *tunnel = Tunnel::Gue(port.unwrap_or(GUE_PORT));
                Ok(())
            }
            (Some(Forward::Tunnel(_)), false) if port.is_none() => Ok(()),
            (Some(Forward::Tunnel(_)), false) => Err("--tun-port needs --tun-type gue".into()),
            _ => Err("--tun-type and --tun-port need -i".into()),
        }
    }

    fn server_id(&self, service: ServiceId, first: &str) -> Result<ServerId, String> {
        let Some((address, port)) = self.server else {
            return Err(format!("{first} needs a server: -r ADDRESS"));
        };
        if port.is_some_and(|port| port != service.port) {
            return Err(format!(
                "neither -g nor -i changes the port: it is {} at the server, too",
                service.port
            ));
        }
        if address.is_unspecified() || address.is_multicast() {
            return Err(format!("{address} is no address of a server"));
        }
        if let Some(Forward::Route) = self.of_server.forward
            && address.is_ipv6() != service.address.is_ipv6()
        {
            return Err(format!(
                "{address} and {} are of different families: use -i",
                service.address
            ));
        }
        Ok(ServerId { address })
    }
}

/// What `read` makes of `word`, or nothing if it says `none`.
fn or_none<T>(word: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if word == "none" { Ok(None) } else { read(word).map(Some) }
}

fn scheduler(word: &str) -> Result<Scheduler, String> {
    if let Some(known) = Scheduler::ALL.into_iter().find(|one| one.name() == word) {
        return Ok(known);
    }
    let counting = ["lc", "wlc", "lblc", "lblcr", "sed", "nq", "fo", "ovf"];
    let word = shell(word);
    Err(if counting.contains(&&*word) {
        format!(
            "scheduler {word} counts open connections, which a balancer does not know that does not \
             see replies: use mh, sh, rr or wrr"
        )
    } else {
        format!("unknown scheduler \"{word}\": mh, sh, rr or wrr")
    })
}

/// How many bits `mask` has, a netmask or a number of bits, in the family of `address`.
fn bits(mask: &str, address: IpAddr) -> Result<u8, String> {
    let known = match address {
        IpAddr::V4(_) => mask.parse::<Ipv4Addr>().ok().map(u32::from).and_then(|mask| {
            let bits = mask.leading_ones();
            (mask.count_ones() == bits).then_some(bits)
        }),
        IpAddr::V6(_) => mask.parse::<Ipv6Addr>().ok().map(u128::from).and_then(|mask| {
            let bits = mask.leading_ones();
            (mask.count_ones() == bits).then_some(bits)
        }),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let known = known.or_else(|| mask.parse().ok());
    match known.filter(|bits| (1..=most).contains(bits)) {
        Some(bits) => Ok(bits as u8),
        None => Err(format!("\"{}\" is no mask for {address}", shell(mask))),
    }
}

/// Why an option of `ipvsadm` is refused.
fn refusal(word: &str) -> String {
    match word {
        "-m" | "--masquerading" => "-m (masquerading) needs replies to come back through the \
                                    balancer: use -g, or -i"
            .into(),
        "--sctp-service" => "SCTP is not balanced: -t or -u".into(),
        "-f" | "--fwmark-service" => "a firewall mark names no address: give services one by one, \
                                      with -t or -u; port 0 is all ports"
            .into(),
        "--pe" => "persistence engines read what is in packets: not in the driver".into(),
        "--tun-csum" | "--tun-remcsum" => {
            format!("{word} sums up each packet: GUE has no checksum here (--tun-nocsum)")
        }
        "-c" | "--connection" | "--persistent-conn" | "--timeout" | "--daemon" | "--thresholds"
        | "--rate" | "--tun-info" => format!("there is no listing {word}: --stats, or -j"),
        "--schedule-icmp" | "--remote-csum" => format!("option {word} is not known"),
        _ => format!("unknown argument \"{}\"", shell(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace())
    }

    #[test]
    fn words_and_letters_are_the_same_commands() {
        for (words, letters) in [
            ("add -t 192.0.2.1:80 -s mh", "-A -t 192.0.2.1:80 -s mh"),
            ("add -t 192.0.2.1:80 -r 10.0.0.1 -i", "-a -t 192.0.2.1:80 -r 10.0.0.1:80 -i"),
            ("edit -u [2001:db8::1]:53 -p", "-E -u [2001:db8::1]:53 -p 360"),
            ("edit -t 192.0.2.1:80 -r 10.0.0.1 -w 0", "-e -t 192.0.2.1:80 -r 10.0.0.1 -w 0"),
            ("del -t 192.0.2.1:80", "-D -t 192.0.2.1:80"),
            ("del -t 192.0.2.1:80 -r 10.0.0.1", "-d -t 192.0.2.1:80 -r 10.0.0.1"),
            ("list --stats", "-L -n --stats"),
            ("zero", "-Z"),
            ("save", "-S -n"),
            ("clear", "-C"),
        ] {
            assert_eq!(parsed(words).unwrap(), parsed(letters).unwrap(), "{words}");
        }
    }

    #[test]
    fn a_server_has_its_tunnel() {
        let forward = |line: &str| match parsed(&format!("add -t 192.0.2.1:80 -r 10.0.0.1 {line}"))
        {
            Ok(Command::AddServer(_, _, words)) => Ok(words.applied(None).forward),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        };
        assert_eq!(forward(""), Ok(Forward::Route));
        assert_eq!(forward("-g"), Ok(Forward::Route));
        assert_eq!(forward("-i --tun-type ipip"), Ok(Forward::Tunnel(Tunnel::Ip)));
        let gue = "-i --tun-type gue --tun-port 7000 --tun-nocsum";
        assert_eq!(forward(gue), Ok(Forward::Tunnel(Tunnel::Gue(7000))));
        assert_eq!(forward("-i --tun-type gue"), Ok(Forward::Tunnel(Tunnel::Gue(6080))));
        for wrong in ["-i --tun-type gre", "-g --tun-type gue", "-i --tun-port 1", "-m"] {
            assert!(forward(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_balancer_cannot_know_is_refused_with_the_reason() {
        for (line, reason) in [
            ("add -t 192.0.2.1:80 -s wlc", "does not see replies"),
            ("add -t 192.0.2.1:80 -r 10.0.0.1 -m", "come back"),
            ("add -t 192.0.2.1:80 -r 10.0.0.1 -x 5", "does not see replies"),
            ("add -t 192.0.2.1:80 -r 10.0.0.1:81", "changes the port"),
            ("add -t 192.0.2.1:80 -r 2001:db8::1 -g", "different families"),
            ("add -t 192.0.2.1:0", "needs -p"),
            ("add -t 192.0.2.1:80 -o", "for UDP"),
            ("add -t 192.0.2.1:80 --quic lb:4", "for UDP"),
            ("add -u 192.0.2.1:443 --quic lb:4:c8f0", "no AES"),
            ("add -u 192.0.2.1:443 -r 10.0.0.1 --quic lb:4", "--quic does not belong to add"),
            ("add -u 192.0.2.1:443 --quic-id 1", "--quic-id does not belong to add"),
            ("add -f 1 -s mh", "firewall mark"),
            ("--start-daemon master", "sync daemon"),
            ("add -t 192.0.2.1:80 -w 1", "-w does not belong to add"),
            ("del -t 192.0.2.1:80 -s mh", "-s does not belong to del"),
            ("save -t", "needs ADDRESS:PORT"),
            ("add", "needs a service"),
            ("what", "unknown command"),
        ] {
            let why = parsed(line).unwrap_err();
            assert!(why.contains(reason), "{line}: {why}");
        }
    }

    #[test]
    fn a_mask_is_that_of_ipv4_or_a_number_of_bits() {
        let four: IpAddr = "192.0.2.1".parse().unwrap();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(bits("255.255.255.0", four), Ok(24));
        assert_eq!(bits("24", four), Ok(24));
        assert_eq!(bits("64", six), Ok(64));
        for (mask, address) in [("255.0.255.0", four), ("33", four), ("0", six), ("129", six)] {
            assert!(bits(mask, address).is_err(), "{mask}");
        }
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(words in prop::collection::vec("[-a-zA-Z0-9:.\\[\\]]{0,12}", 0..8)) {
            let _ = parse(words.iter().map(String::as_str));
        }
    }
}
