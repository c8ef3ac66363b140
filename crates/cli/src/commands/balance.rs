//! `narrows balance`.

use super::answer::{Output, ask, asks_for_csv, instance, print, read};
use anyhow::bail;
use clap::Args;
use narrows_control::Request;
use std::process::ExitCode;

/// The longest file to restore, in MiB: 4,096 servers take a tenth.
const FILE_MAX_MIB: u64 = 4;

/// Change the services that a host's ports balance over servers.
///
/// The syntax is that of ipvsadm(8): its letters are commands, too, and what `ipvsadm-save -n`
/// prints can be restored. A service is an address and a port that clients connect to. Its servers
/// answer clients themselves: they have the service's address on a device that does not answer ARP
/// (`ip address add ADDRESS/32 dev lo`). Packets reach them with another MAC address (-g), in IP
/// packets (-i), or in GUE (-i --tun-type gue), and leave through that port of the instance to
/// which the kernel's routes lead. A server whose address is this box's own is this box itself.
///
/// A server of weight 0 gets no new connections and keeps those that it has. One that is down
/// (`edit SERVICE -r ADDRESS --down`) gets no packets until it is up again (--up). If servers come
/// and go, the connections of the others stay where they are.
///
/// Of a UDP service with --quic, packets of QUIC go to the server whose --quic-id their connection
/// id has, wherever the client's address moves. Formats: lb:N (QUIC-LB in plaintext, a server id of
/// N octets) and katran.
///
/// Refused, because a balancer that does not see replies cannot do it: masquerading (-m),
/// schedulers that count open connections (lc, wlc and so on), thresholds, the sync daemon.
///
/// Exit codes: 0; 1 if a command failed; 2 for an unknown command.
///
/// Services belong to a running instance with a host's ports (`narrows run --port`). An upgrade
/// keeps them; `narrows run --state FILE` keeps them in FILE.services. See docs/balance.md.
///
/// Examples:
///
///   narrows balance add -t 192.0.2.1:80 -s mh -b mh-port
///   narrows balance add -t 192.0.2.1:80 -r 10.0.0.1 -i
///   narrows balance add -t 192.0.2.1:80 -r 10.0.0.2 -i -w 2
///   narrows balance edit -t 192.0.2.1:80 -r 10.0.0.1 -w 0
///   narrows balance list --stats
///   narrows balance list --stats --csv
///
///   narrows balance add -u 192.0.2.1:443 -s mh --quic lb:4
///   narrows balance add -u 192.0.2.1:443 -r 10.0.0.1 -i --quic-id 0x2a
///
///   ipvsadm-save -n > services
///   narrows balance restore services
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Balance {
    /// The port of the instance, if several run.
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,

    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// The command, as ipvsadm takes it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<String>,
}

impl Balance {
    pub fn execute(mut self) -> anyhow::Result<ExitCode> {
        let csv = asks_for_csv(&mut self.words, "-j");
        let has = |options: &[&str]| self.words.iter().any(|word| options.contains(&word.as_str()));
        let output = if csv {
            Output::Csv
        } else if has(&["-j", "--json"]) {
            Output::Json
        } else if has(&["save", "-S", "--save"]) {
            Output::Saved
        } else {
            Output::Text
        };
        let restores = ["restore", "-R", "--restore"];
        let request = match self.words.split_first() {
            Some((first, rest)) if restores.contains(&first.as_str()) => {
                let file = match rest {
                    [] => None,
                    [file] => Some(file.as_str()),
                    [_, other, ..] => {
                        bail!("unknown argument \"{other}\" of restore: it takes FILE")
                    }
                };
                Request::RestoreServices { text: read(file, FILE_MAX_MIB)? }
            }
            _ => Request::Balance { args: self.words },
        };
        Ok(print(&ask(&instance(&self.ports)?, &request)?, output))
    }
}
