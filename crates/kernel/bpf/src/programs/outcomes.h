/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What becomes of a frame that a router or a switch gets, and the counters of it.
 */
#ifndef OUTCOMES_H
#define OUTCOMES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define PORTS_MAX 64

/* src/outcome.rs says the same in Rust. */
enum outcome {
	/* Of a router, and of a switch where the words fit. */
	ROUTED,		/* leaves through a port, where a route says */
	NOT_FOR_US,	/* to another MAC address: another's, multicast, broadcast */
	NOT_IP,		/* ARP, several VLAN tags, all else */
	SHORT,		/* shorter than its headers say */
	OPTIONS,	/* of IPv4, or for each hop of IPv6 */
	TTL,		/* TTL or hop limit are used up */
	MARTIAN,	/* an address that no router forwards */
	OWN_SOURCE,	/* from an address of this box */
	BAD_SOURCE,	/* its source is not where it came from: rp_filter */
	NOT_FORWARDED,	/* for this box, or without a route */
	DISABLED,	/* its device does not forward */
	TOO_LONG,	/* for its route, or for the port */
	NO_NEIGHBOUR,	/* the next hop's MAC address is not known */
	OTHER_PORT,	/* leaves through a device that is no port */
	UNREACHABLE,	/* a route says unreachable, or prohibited */
	UNSUPPORTED,	/* the route encapsulates, or another answer */
	BLACKHOLE,	/* dropped: a route says so */
	NO_ROOM,	/* there is no room for metadata or a tag in front of it */
	NOBODY,		/* nothing takes what leaves through that port */
	/* Of a switch. */
	SWITCHED,	/* leaves through the port where its destination is */
	GROUP,		/* to many: broadcast, multicast, protocols between bridges */
	FOR_BOX,	/* to an address of the bridge or its ports */
	UNKNOWN,	/* nobody knows where its destination is */
	UNKNOWN_SOURCE,	/* the bridge does not know its source yet */
	MOVED,		/* its source was at another port */
	SAME_PORT,	/* its destination is where it came from */
	NOT_FORWARDING,	/* one of the ports does not forward now: spanning tree, or no carrier */
	NOT_IN_VLAN,	/* one of the ports is not in its VLAN */
	OTHER_TAG,	/* of no VLAN of the router, of another protocol than the bridge's, of VLAN 0 */
	ISOLATED,	/* between ports that are isolated from each other */
	SPECIAL,	/* one of the ports does more than to forward */
	/* Of a router that asks the flowtable. */
	BY_FLOW,	/* leaves through a port, as a flow of the flowtable */
	NO_FLOW,	/* in no flow: a first packet, a fragment, neither TCP nor UDP */
	HANDSHAKE,	/* SYN, FIN or RST of TCP */
	OTHER_WAY,	/* its route is not its flow's */
	OUTCOMES,
};

/* Behind the outcomes: the bytes of frames that leave. */
#define LEAVING_BYTES OUTCOMES

/* The port at which frames arrive, by number. Set before the program is loaded. */
const volatile __u32 arrives_at = 0;

/* The frames of each outcome. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOMES + 1);
	__type(key, __u32);
	__type(value, __u64);
} outcomes SEC(".maps");

/* Counts `packets` frames of this outcome, or bytes. */
static __always_inline void count_outcome(__u32 outcome, __s64 packets)
{
	__u64 *frames = bpf_map_lookup_elem(&outcomes, &outcome);

	/* A slot belongs to one CPU, so a plain addition is enough. */
	if (frames)
		*frames += packets;
}

#endif
