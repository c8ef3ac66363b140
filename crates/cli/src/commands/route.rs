//! `narrows route`.

use crate::output::Format;
use anyhow::{Context, bail};
use clap::Args;
use narrows_control::{
    Answer, Client, FamilyStats, Request, RouteFound, RouteRequest, RouteStats, RouteWay,
};
use std::net::IpAddr;
use std::process::ExitCode;

/// Show what a router knows of the kernel's routes.
///
/// Routes are the kernel's: change them with `ip route`, or a routing daemon. An instance of
/// `narrows run --router` keeps a table of the plain ones, in which the programs of its interfaces
/// look first, and asks the kernel for all others.
///
///   narrows route get ADDRESS [from ADDRESS iif DEV]
///       The way of a packet as three say it: the table, the kernel's look-up for programs
///       (bpf_fib_lookup), and the kernel itself (`ip route get`). With `from` and `iif` it is a
///       packet that arrives at the port DEV, else one of this host. Of several next hops for a
///       route, each may name another one; the table leaves these to the kernel.
///   narrows route stats
///       How many prefixes the table has, its memory, and whether it is in use. Rules (`ip rule`),
///       VRFs and local prefixes put it out of use.
///
/// Exit codes: 0; 1 if the three do not agree, or nothing could be asked. While routes change, they
/// may not agree for a moment.
///
/// Examples:
///
///   narrows route get 198.51.100.7
///   narrows route get 2001:db8:f::7 from 2001:db8:a::5 iif eth1
///   narrows route stats --json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Route {
    /// The ports of the instance, if several run.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    ports: Vec<String>,

    #[command(flatten)]
    format: Format,

    /// `get ADDRESS [from ADDRESS iif DEV]` or `stats`.
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
}

impl Route {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let request = parse(&self.words)?;
        let instances = Client::find(self.ports.first().map(String::as_str))?;
        // One that routes, if others run beside it.
        let mut refusals = Vec::new();
        for instance in instances {
            match instance.ask(&Request::Route(request.clone()))? {
                Answer::RouteFound(found) => return self.show_found(&found),
                Answer::RouteStats(stats) => return self.show_stats(&stats),
                Answer::Refused(why) => refusals.push(why),
                _ => bail!("the instance gives another answer: it is of another version"),
            }
        }
        bail!("{}", refusals.join("\n"))
    }

    fn show_found(&self, found: &RouteFound) -> anyhow::Result<ExitCode> {
        self.format.print(found, || text_of(found))?;
        Ok(if found.agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn show_stats(&self, stats: &RouteStats) -> anyhow::Result<ExitCode> {
        self.format.print(stats, || text_of_stats(stats))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn parse(words: &[String]) -> anyhow::Result<RouteRequest> {
    let address = |word: &str| -> anyhow::Result<IpAddr> {
        word.parse().with_context(|| format!("\"{word}\" is no IP address"))
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["stats"] => Ok(RouteRequest::Stats),
        ["get", to] => Ok(RouteRequest::Get { to: address(to)?, from: None }),
        ["get", to, "from", source, "iif", dev] | ["get", to, "iif", dev, "from", source] => {
            let from = Some((address(source)?, dev.to_owned()));
            Ok(RouteRequest::Get { to: address(to)?, from })
        }
        _ => bail!("expected `get ADDRESS [from ADDRESS iif DEV]` or `stats`"),
    }
}

fn text_of(found: &RouteFound) -> String {
    let line = |who: &str, way: &RouteWay| {
        let mut parts = vec![format!("{who:<7}")];
        parts.extend(way.via.map(|via| format!("via {via}")));
        parts.extend(way.dev.as_ref().map(|dev| format!("dev {dev}")));
        parts.extend(way.lladdr.as_ref().map(|mac| format!("lladdr {mac}")));
        parts.extend(way.says.clone());
        format!("{}\n", parts.join(" "))
    };
    let ways = [("table", &found.table), ("helper", &found.helper), ("kernel", &found.kernel)];
    let ways: String = ways.map(|(who, way)| line(who, way)).concat();
    let end = if found.agree { "" } else { "They do not agree.\n" };
    ways + end
}

fn text_of_stats(stats: &RouteStats) -> String {
    let line = |it: &FamilyStats| {
        let FamilyStats { family, prefixes, bytes, in_use } = it;
        let use_of_it = if *in_use { "in use" } else { "not in use: the kernel is asked" };
        format!("{family:<6} {prefixes} prefixes, {} KiB, {use_of_it}\n", bytes / 1024)
    };
    let families: String = stats.families.iter().map(line).collect();
    format!("{families}{} next hops\n", stats.next_hops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_those_of_ip_route_get() {
        let to: IpAddr = "192.0.2.1".parse().unwrap();
        let source: IpAddr = "198.51.100.1".parse().unwrap();
        let get = |from| RouteRequest::Get { to, from };
        assert_eq!(parse(&words("get 192.0.2.1")).unwrap(), get(None));
        let both = get(Some((source, "eth1".to_owned())));
        assert_eq!(parse(&words("get 192.0.2.1 from 198.51.100.1 iif eth1")).unwrap(), both);
        assert_eq!(parse(&words("get 192.0.2.1 iif eth1 from 198.51.100.1")).unwrap(), both);
        assert_eq!(parse(&words("stats")).unwrap(), RouteRequest::Stats);
        for wrong in ["", "get", "get eth1", "get 192.0.2.1 from 198.51.100.1", "show"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn three_ways_are_three_lines() {
        let way = |dev: &str| RouteWay { dev: Some(dev.to_owned()), ..RouteWay::default() };
        let found = RouteFound {
            table: RouteWay { says: Some("the kernel is asked".to_owned()), ..RouteWay::default() },
            helper: RouteWay { lladdr: Some("02:00:00:00:00:01".to_owned()), ..way("b") },
            kernel: RouteWay { via: Some([192, 0, 2, 1].into()), ..way("b") },
            agree: false,
        };
        assert_eq!(
            text_of(&found),
            "table   the kernel is asked\nhelper  dev b lladdr 02:00:00:00:00:01\n\
             kernel  via 192.0.2.1 dev b\nThey do not agree.\n"
        );
    }
}
