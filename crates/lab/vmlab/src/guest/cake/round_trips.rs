//! TCP's own round-trip times: the smoothed one of each connection, as `ss -ti` shows it.

use super::netlink::{Conversation, DUMP, attributes, number};
use anyhow::Result;
use narrows_testbed::Namespace;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::thread;
use std::time::{Duration, Instant};

/// How often the kernel is asked.
const LOOK: Duration = Duration::from_millis(10);
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `AF_INET` and `IPPROTO_TCP`.
const TCP: [u8; 2] = [2, 6];
/// `INET_DIAG_INFO`: the attribute with a `struct tcp_info`.
const INFO: u16 = 2;
/// Only connections that are established, by a bit for each state.
const ESTABLISHED: u32 = 1 << 1;
/// Length of a `struct inet_diag_sockid`: any.
const ANY: [u8; 48] = [0; 48];
/// Length of a `struct inet_diag_msg`, which comes before the attributes.
const HEAD: usize = 72;
/// The offset of `tcpi_rtt`.
const RTT: usize = 68;

/// The round-trip times of all connections in `namespace`, polled for `span`.
pub fn of_all(namespace: &Namespace, span: Duration) -> Result<Vec<Duration>> {
    let mut request = TCP.to_vec();
    request.extend([1 << (INFO - 1), 0]);
    request.extend(ESTABLISHED.to_ne_bytes());
    request.extend(ANY);
    namespace.enter(|| {
        let kernel = Conversation::begin(NETLINK_SOCK_DIAG)?;
        let mut found = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < span {
            thread::sleep(LOOK);
            let sockets = kernel.ask(BY_FAMILY, DUMP, &request)?;
            found.extend(sockets.iter().filter_map(|socket| round_trip(socket)));
        }
        Ok(found)
    })
}

fn round_trip(socket: &[u8]) -> Option<Duration> {
    let (_, info) = attributes(socket.get(HEAD..)?).find(|(kind, _)| *kind == INFO)?;
    Some(Duration::from_micros(number(info, RTT)?.into()))
}

#[cfg(test)]
mod tests {
    use super::super::netlink::attribute;
    use super::*;

    #[test]
    fn the_round_trip_is_a_number_of_microseconds_in_tcps_information() {
        let mut info = [0; 232];
        info[RTT..RTT + 4].copy_from_slice(&27_500_u32.to_ne_bytes());
        let socket = [vec![0; HEAD], attribute(INFO, &info)].concat();
        assert_eq!(round_trip(&socket), Some(Duration::from_micros(27_500)));
        assert_eq!(round_trip(&socket[..HEAD]), None);
    }
}
