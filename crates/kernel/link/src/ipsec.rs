//! Which IPsec policies would see a packet that the kernel routes ([`crate::netfilter`] says why
//! that matters).
//!
//! * Only policies for what is forwarded and what is sent count, as a routed packet passes no
//!   other. A socket's own policies are for what this host sends.
//! * **What changes nothing does not count**: a policy that lets packets pass in clear, as IKE
//!   daemons make them; one of an XFRM interface, which is no port of a router in XDP.
//! * Policies with a mark count: in the kernel, much can set it.
//!
//! Source: `linux/xfrm.h`. To list policies needs CAP_NET_ADMIN, and may load a module.

use crate::LinkError;
use crate::netlink::{Request, ask, stream};
use crate::status::{each, u32_at};
use netlink_sys::protocols::NETLINK_XFRM;

const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// `struct xfrm_userpolicy_id`, which a listing does not look at.
const ID: usize = 64;
/// `struct xfrm_userpolicy_info`, and where its direction and its action are.
const HEADER: usize = 168;
const DIRECTION: usize = 160;
const ACTION: usize = 161;
/// `struct xfrm_userpolicy_default`: what happens to packets without a policy that come in, are
/// forwarded, go out.
const DEFAULT: usize = 3;

const OUT: u8 = 1;
const FORWARD: u8 = 2;
const BLOCK: u8 = 1;
const DEFAULT_BLOCK: u8 = 1;

const XFRMA_TMPL: u16 = 5;
const XFRMA_IF_ID: u16 = 31;

/// What would see packets that the kernel routes in the namespace of the calling thread, in words.
/// None if the kernel does not permit to list it.
pub(crate) fn found() -> Result<Option<Vec<String>>, LinkError> {
    match policies().and_then(|policies| Ok(words(policies, default_blocks()?))) {
        Ok(words) => Ok(Some(words)),
        Err(error) => match error.errno() {
            // It has no IPsec, so no policies.
            Some(libc::EPROTONOSUPPORT) => Ok(Some(Vec::new())),
            Some(libc::EPERM) => Ok(None),
            _ => Err(error),
        },
    }
}

fn words(policies: usize, default_blocks: bool) -> Vec<String> {
    let policies = match policies {
        0 => None,
        1 => Some("1 IPsec policy".to_owned()),
        more => Some(format!("{more} IPsec policies")),
    };
    let default = default_blocks.then(|| "an IPsec default that blocks".to_owned());
    policies.into_iter().chain(default).collect()
}

/// How many policies make a difference to routed packets.
fn policies() -> Result<usize, LinkError> {
    let mut count = 0;
    let request = request(GET_POLICY, ID);
    // There may be thousands. The kernel keeps its place while they change.
    stream("listing IPsec policies", &request, |body| count += usize::from(sees_routed(body)))?;
    Ok(count)
}

/// Whether the kernel drops packets that have no policy and are to be forwarded.
fn default_blocks() -> Result<bool, LinkError> {
    match ask("reading the default of IPsec policies", request(GET_DEFAULT, DEFAULT), 0) {
        Ok(answers) => Ok(answers.iter().any(|answer| blocks_routed(answer))),
        // Before 5.15, such packets pass.
        Err(error) if error.errno() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn request(kind: u16, length: usize) -> Request {
    Request { protocol: NETLINK_XFRM, kind, body: vec![0; length], strict: false }
}

/// Whether routed packets pass the policy, and that makes a difference.
fn sees_routed(body: &[u8]) -> bool {
    let Some((header, attributes)) = body.split_at_checked(HEADER) else { return false };
    let (mut transforms, mut interface) = (false, 0);
    each(attributes, |kind, value| match kind {
        XFRMA_TMPL => transforms = !value.is_empty(),
        XFRMA_IF_ID => interface = u32_at(value, 0).unwrap_or_default(),
        _ => {}
    });
    let is_on_path = matches!(header[DIRECTION], FORWARD | OUT) && interface == 0;
    is_on_path && (transforms || header[ACTION] == BLOCK)
}

/// Whether the default blocks what is forwarded, or then what goes out.
fn blocks_routed(body: &[u8]) -> bool {
    matches!(body, [_, forward, out, ..] if [forward, out].contains(&&DEFAULT_BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IN: u8 = 0;
    const ALLOW: u8 = 0;
    const DEFAULT_ACCEPT: u8 = 2;

    /// A policy as the kernel says it, with `templates` of transforms.
    fn policy(direction: u8, action: u8, templates: usize, interface: Option<u32>) -> Vec<u8> {
        const TEMPLATE: usize = 64;
        let mut body = vec![0; HEADER];
        (body[DIRECTION], body[ACTION]) = (direction, action);
        let mut attach = |kind: u16, value: &[u8]| {
            body.extend(((4 + value.len()) as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
        };
        if templates > 0 {
            attach(XFRMA_TMPL, &vec![1; templates * TEMPLATE]);
        }
        if let Some(interface) = interface {
            attach(XFRMA_IF_ID, &interface.to_ne_bytes());
        }
        body
    }

    #[test]
    fn only_policies_on_the_path_of_routed_packets_count() {
        let sees = |direction| sees_routed(&policy(direction, ALLOW, 1, None));
        assert!(sees(OUT) && sees(FORWARD));
        assert!(!sees(IN));
        for of_socket in [3, 4] {
            assert!(!sees(of_socket));
        }
        assert!(sees_routed(&policy(OUT, ALLOW, 2, Some(0))));
        assert!(!sees_routed(&policy(OUT, ALLOW, 2, Some(7))), "of an XFRM interface");
    }

    #[test]
    fn a_policy_that_neither_transforms_nor_blocks_changes_nothing() {
        assert!(!sees_routed(&policy(OUT, ALLOW, 0, None)));
        assert!(sees_routed(&policy(OUT, BLOCK, 0, None)));
        assert!(sees_routed(&policy(FORWARD, BLOCK, 0, None)));
    }

    #[test]
    fn a_default_counts_if_it_blocks_forwarded_packets_on_their_way() {
        assert!(blocks_routed(&[DEFAULT_ACCEPT, DEFAULT_BLOCK, DEFAULT_ACCEPT]));
        assert!(blocks_routed(&[DEFAULT_ACCEPT, DEFAULT_ACCEPT, DEFAULT_BLOCK]));
        assert!(!blocks_routed(&[DEFAULT_BLOCK, DEFAULT_ACCEPT, DEFAULT_ACCEPT]));
        assert!(!blocks_routed(&[DEFAULT_BLOCK, DEFAULT_BLOCK]), "truncated");
    }

    #[test]
    fn they_are_said_with_their_number() {
        assert_eq!(words(0, false), [""; 0]);
        assert_eq!(words(1, false), ["1 IPsec policy"]);
        assert_eq!(words(3, true), ["3 IPsec policies", "an IPsec default that blocks"]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..2 * HEADER)
        ) {
            let _ = (sees_routed(&bytes), blocks_routed(&bytes));
        }
    }
}
