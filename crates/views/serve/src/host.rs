//! Checks the host name of a request.
//!
//! A web page can make its own name resolve to 127.0.0.1 (DNS rebinding) and then use a browser on
//! this machine to read any local server. The browser puts the name that it used into `Host`, and
//! such a page cannot change that. So a request is answered only under a name that no attacker can
//! own: an address (which cannot resolve to another one), `localhost` and names below it.

use std::net::IpAddr;

/// Whether a request for `host`, the value of a `Host` field or of an absolute URI, is for this
/// server. An HTTP/1.0 client may send none; browsers always do.
pub(crate) fn is_ours(host: Option<&[u8]>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            return is_port(port) && address.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6());
        }
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&host[name.len()..]) || port.is_empty() => name,
            Some(_) => return false,
            None => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse().is_ok_and(|ip: IpAddr| ip.is_ipv4())
        || name == "localhost"
        || name.ends_with(".localhost")
}

/// A colon and digits, or nothing.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_answered() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9466",
            "localhost",
            "localhost:9466",
            "LocalHost.",
            "[::1]",
            "[::1]:9466",
            "192.0.2.1:9466",
            "shaper.localhost:80",
            "localhost:",
        ] {
            assert!(is_ours(Some(host.as_bytes())), "{host}");
        }
        assert!(is_ours(None));
    }

    #[test]
    fn names_that_a_stranger_can_own_are_not() {
        for host in [
            "rebind.example",
            "rebind.example:9466",
            "localhost.example",
            "127.0.0.1.example",
            "notlocalhost",
            "",
            "[::1",
            "[127.0.0.1]",
            "127.0.0.1:9466:1",
            "localhost:x",
            "::1",
            "[rebind.example]:9466",
            "2130706433",
        ] {
            assert!(!is_ours(Some(host.as_bytes())), "{host}");
        }
        assert!(!is_ours(Some(b"\xff")));
    }
}
