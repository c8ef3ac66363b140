//! Any bytes as a frame.
//!
//! No frame may panic. Marking and washing change the code points as asked and nothing that tells
//! flows apart, and a header whose checksum was right before has a right one after.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_packet::dissect::{Conversation, Dissector, Keys, rewrite};
use narrows_packet::{Acknowledgement, Ecn, Headers, Rewrite};

/// Whether an IPv4 header that begins at `at` has a right checksum.
fn is_right(frame: &[u8], at: usize) -> bool {
    let Some(first) = frame.get(at).filter(|first| *first >> 4 == 4) else { return false };
    let Some(header) = frame.get(at..at + usize::from(first & 15) * 4) else { return false };
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

fuzz_target!(|frame: &[u8]| {
    let dissector = Dissector::new(0x5eed);
    let before = dissector.headers(frame, false);
    let inner = dissector.headers(frame, true);
    if let Some(keys) = Keys::of(frame) {
        assert!(keys.inner_tag.is_none() || keys.tag.is_some(), "a second tag without a first one");
        if let Some(ip) = keys.ip {
            assert!(ip.at >= keys.network && ip.transport > ip.at, "headers in another order");
            assert_eq!(keys.carried, if ip.is_v6 { 0x86dd } else { 0x0800 });
        } else {
            assert_eq!(keys.carried, keys.ether_type, "there is no IP to be carried");
        }
    }
    if let Some(keys) = Keys::plain(frame) {
        assert_eq!(Some(keys), Keys::walk(frame), "the short way says something else");
    }
    if let Some(conversation) = Conversation::of(frame, 0x5eed) {
        let (segment, spin) = (conversation.segment(frame), conversation.spin(frame));
        assert!(segment.is_none() || spin.is_none(), "it is of one protocol");
        assert!(conversation.hosts(frame).is_some());
    }
    let outermost = |h: Headers| (h.network_offset, h.dscp, h.ecn, h.is_arp);
    assert_eq!(outermost(before), outermost(inner), "a tunnel changed what is around it");

    let read = dissector.acknowledgement(frame);
    assert!(read.connection != 0 || read == Acknowledgement::default());
    assert!(read.blocks().len() == usize::from(read.block_count));

    for (mark, wash) in [(true, false), (false, true), (true, true)] {
        let mut written = frame.to_vec();
        let is_ip = rewrite(&mut written, Rewrite::new(mark, wash));
        let after = dissector.headers(&written, false);
        if !is_ip {
            assert!(written == frame, "written without an IP header");
            continue;
        }
        let is_marked = mark && before.ecn.is_capable();
        let ecn = if is_marked { Ecn::Experienced } else { before.ecn };
        let dscp = if wash { 0 } else { before.dscp };
        assert_eq!(after, Headers { ecn, dscp, ..before });
        let at = usize::from(before.network_offset);
        assert!(!is_right(frame, at) || is_right(&written, at), "the checksum is wrong now");
        assert_eq!(dissector.acknowledgement(&written), read);
    }
});
