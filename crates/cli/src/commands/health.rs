//! `narrows health`.

use super::answer::{instance, read};
use crate::output;
use anyhow::Context;
use clap::Args;
use narrows_health::Config;
use std::process::ExitCode;

/// The longest file, in MiB: lines for 512 services take a tenth.
const FILE_MAX_MIB: u64 = 1;

/// Check the servers that a running instance balances connections over, and take those out that do
/// not answer.
///
/// A server that fails is taken out as by `narrows balance edit ... --down`: its connections move
/// to others, and it comes back as soon as it is well. If all servers of a service fail, the one
/// that failed last stays. It runs until it is stopped, and leaves servers as they are then.
///
/// A check goes the way of clients' packets: to the service's address, in the server's tunnel,
/// through the port. So it also fails where a server lacks the address, or does not unpack.
///
/// Without FILE it opens a connection to each server of a TCP service, every 2 s. FILE says more: a
/// line for a service, with
///
///   -t ADDRESS:PORT, -u ADDRESS:PORT   the service, as `narrows balance` names it
///   --tcp                              a connection opens (default of TCP services)
///   --http PATH [--host NAME] [--status 200-399]
///                                      a GET request is answered with such a status
///   --udp [--send TEXT | --send-binary HEX]
///                                      a datagram is answered; without --send, is not refused by
///                                      an ICMP error
///   --none                             no check
///   --port P                           another port than that of the service
///   --direct                           the server is asked at its own address, without a tunnel
///   --interval 2s --timeout 1s         how often; how long an answer may take
///   --rise 2 --fall 3                  passed or failed checks in a row that bring a server back
///                                      or take it out
///
/// Exit codes: 0; 1 for a file that is refused, and with --once if a server fails, has no way, or
/// loses packets of full size.
///
/// Run it on the balancer, as root, or as the instance's user with CAP_NET_RAW. See
/// docs/balance.md.
///
/// Examples:
///
///   narrows health --once
///   narrows health
///
///   echo '-t 192.0.2.1:80 --http /health --interval 5s' > checks
///   echo '-u 192.0.2.1:53 --udp --send-binary 0000010000010000000000000000020001' >> checks
///   narrows health checks
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Health {
    /// How servers are checked; - is standard input.
    #[arg(value_name = "FILE")]
    file: Option<String>,

    /// The port of the instance, if several run.
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,

    /// Ask each server once, try how long packets to it may be, print what was found, and change
    /// nothing.
    #[arg(long)]
    once: bool,

    /// Print JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

impl Health {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let config = match &self.file {
            Some(file) => {
                Config::parse(&read(Some(file), FILE_MAX_MIB)?).with_context(|| file.clone())?
            }
            None => Config::default(),
        };
        if !self.once {
            let find = move || instance(&self.ports).map_err(|error| error.to_string());
            narrows_health::run(config, find)?;
            return Ok(ExitCode::SUCCESS);
        }
        let report = narrows_health::once(&config, &instance(&self.ports)?)?;
        match self.json {
            true => output::json(&report)?,
            false => output::text(&report),
        }
        Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
