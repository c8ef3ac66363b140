//! The dissector from outside: frames as they are on the wire, and their hashes.

mod acknowledgements;
mod flows;
mod frames;
mod oracle;
mod rewriting;
mod robustness;
mod spread;
mod tunnels;

use narrows_packet::Headers;
use narrows_packet::dissect::Dissector;

/// The outermost headers of `frame`.
fn headers(frame: &[u8]) -> Headers {
    Dissector::new(0x5eed).headers(frame, false)
}

/// The headers of `frame`, with hosts and flow from inside tunnels.
fn inner_headers(frame: &[u8]) -> Headers {
    Dissector::new(0x5eed).headers(frame, true)
}

/// The hashes that identify a flow.
fn identity(headers: Headers) -> (u32, u32, u32) {
    (headers.flow, headers.source, headers.destination)
}
