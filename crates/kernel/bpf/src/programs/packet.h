/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The headers that filters read, parsed as in crates/core/packet/src/dissect: through VLAN tags,
 * MPLS labels and PPPoE to the first IP header, and through extension headers to the transport
 * header. So a filter matches the same here as in a worker.
 *
 * The depth of parsing is a constant of each program: if its filters use only addresses,
 * nothing behind the IP header is read.
 */
#ifndef PACKET_H
#define PACKET_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include "frame.h"
#include "segments.h"

/* The most tags, labels and extension headers that are parsed. */
#define PACKET_TAGS_MAX 8
#define PACKET_LABELS_MAX 8
#define PACKET_EXTENSIONS_MAX 8
/* The highest offset of a header: the verifier needs a bound. */
#define OFFSET_MASK 0x7fff

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_AUTHENTICATION 51
#define PROTOCOL_ICMPV6 58

/* The headers that a packet has. */
#define PACKET_PORTS 1
#define PACKET_FLAGS 2
#define PACKET_ICMP 4
#define PACKET_FRAGMENT 8
#define PACKET_FIRST 16
#define PACKET_TAG 32
#define PACKET_INNER_TAG 64
/* No header: see segments.h. */
#define PACKET_CUT_TOO_FINE 128

/* What carries IP further. */
#define CARRIED_BY_PPPOE 1
#define CARRIED_BY_MPLS_UC 2
#define CARRIED_BY_MPLS_MC 3

#define PACKET_WORDS 9

struct packet {
	/* The fields that filters compare under masks. All in network order. */
	union {
		struct {
			/* IPv4 in the first four bytes, the rest zeros. */
			__u8 source[16];
			__u8 destination[16];
			__u8 source_mac[8];
			__u8 destination_mac[8];
			__be16 source_port;
			__be16 destination_port;
			__be16 ether_type;	/* behind all tags, or of IP in PPPoE or MPLS;
						 * ETH_P_802_2 or 3 if it is a length */
			__u8 ip;		/* 4, 6, or 0 for none */
			__u8 protocol;		/* behind all extension headers */
			__u8 traffic_class;
			__u8 ttl;
			__be16 tcp_flags;
			__u8 icmp_type;
			__u8 icmp_code;
			__be16 tag;		/* the outer one's priority and VLAN */
			__u8 has;
			__u8 carrier;		/* what IP may be in; 0 for nothing */
			__be16 tag_type;	/* of the outer tag */
			__be16 inner_tag;	/* the second one's priority and VLAN, */
			__be16 inner_tag_type;	/* and its type */
		};
		__u64 words[PACKET_WORDS];
	};
	__u32 bytes;		/* of the whole frame, or of all that it stands for, */
	__u32 packets;		/* which is as many */
	__u32 mark;
	__u32 priority;
	__u16 network;		/* where IP begins, or else what is behind all tags */
	__u16 transport;	/* where the transport layer does; 0 without IP */
	__u16 end;		/* where the IP packet ends by its own account */
	__u16 behind_tags;	/* where that begins */
};

/* The frames that a packet stands for. */
static __always_inline __u32 packets_of(const struct packet *packet)
{
#ifdef TCX
	return packet->packets ? packet->packets : 1;
#else
	return 1;
#endif
}

/* `bytes` bytes of the frame from `at` on, or null if it is shorter. */
static __always_inline void *part(struct context *ctx, __u32 at, __u32 bytes)
{
	void *data = data_of(ctx), *start;

	at &= OFFSET_MASK;
	asm volatile("" : "+r"(at));
	start = data + at;
	return start + bytes > data_end_of(ctx) ? 0 : start;
}

/* The same, if it is within the IP packet, too. */
static __always_inline void *part_of(struct context *ctx, const struct packet *packet, __u32 at,
				     __u32 bytes)
{
	return at + bytes > packet->end ? 0 : part(ctx, at, bytes);
}

static __always_inline int is_extension(__u8 protocol)
{
	/* Hop-by-hop options, routing, destination options, mobility. */
	return protocol == 0 || protocol == 43 || protocol == 60 || protocol == 135;
}

/* Goes through headers between the IP header and what it carries, which few packets have.
 * A global function, as are others: the verifier looks at each by itself, not once for
 * each way that leads to it. */
__noinline int pass_extensions(struct context *ctx, struct packet *packet)
{
	if (!ctx || !packet)
		return 0;
	for (int i = 0; i < PACKET_EXTENSIONS_MAX; i++) {
		__u8 protocol = packet->protocol;
		__u32 at = packet->transport, len;
		__u8 *header;

		if (protocol == PROTOCOL_AUTHENTICATION) {
			header = part_of(ctx, packet, at, 8);
			if (!header)
				break;
			len = (header[1] + 2) * 4;
		} else if (packet->ip == 6 && is_extension(protocol)) {
			header = part_of(ctx, packet, at, 2);
			if (!header)
				break;
			len = (header[1] + 1) * 8;
		} else if (packet->ip == 6 && protocol == PROTOCOL_FRAGMENT) {
			header = part_of(ctx, packet, at, 4);
			if (!header)
				break;
			len = 8;
			/* Without an offset and "more fragments" it is a whole packet (RFC 6946). */
			if (*(__be16 *)(header + 2) & bpf_htons(0xfff9))
				packet->has |= PACKET_FRAGMENT;
			if (!(*(__be16 *)(header + 2) & bpf_htons(0xfff8)))
				packet->has |= packet->has & PACKET_FRAGMENT ? PACKET_FIRST : 0;
		} else {
			break;
		}
		packet->protocol = header[0];
		if (at + len > OFFSET_MASK)
			break;
		packet->transport = at + len;
		if (packet->has & PACKET_FRAGMENT)
			break;
	}
	return 0;
}

/* Reads the transport header. */
static __always_inline void read_transport(struct context *ctx, struct packet *packet)
{
	__u8 protocol = packet->protocol;
	__be16 *at;

	if (!(packet->has & PACKET_FRAGMENT) &&
	    (protocol == PROTOCOL_AUTHENTICATION ||
	     (packet->ip == 6 && (protocol == PROTOCOL_FRAGMENT || is_extension(protocol))))) {
		pass_extensions(ctx, packet);
		protocol = packet->protocol;
	}
	if (packet->has & PACKET_FRAGMENT)
		return;
	/* TCP, UDP, DCCP, SCTP, UDP-Lite */
	if (protocol == PROTOCOL_TCP || protocol == 17 || protocol == 33 || protocol == 132 ||
	    protocol == 136) {
		at = part_of(ctx, packet, packet->transport, 4);
		if (at) {
			packet->source_port = at[0];
			packet->destination_port = at[1];
			packet->has |= PACKET_PORTS;
		}
		if (protocol != PROTOCOL_TCP)
			return;
		at = part_of(ctx, packet, packet->transport + 12, 2);
		if (at) {
			packet->tcp_flags = at[0] & bpf_htons(0x0fff);
			packet->has |= PACKET_FLAGS;
		}
	} else if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6) {
		__u8 *icmp = part_of(ctx, packet, packet->transport, 2);

		if (icmp) {
			packet->icmp_type = icmp[0];
			packet->icmp_code = icmp[1];
			packet->has |= PACKET_ICMP;
		}
	}
}

/* Where a packet ends that says `declared`, and that cannot end before `least`: lengths that
 * are wrong count as "up to the frame's end". */
static __always_inline __u32 believable(struct context *ctx, __u32 declared, __u32 least)
{
	__u32 whole = reachable(ctx);

	/* A merged packet may be longer than any offset of a header. */
	return min(declared < least || declared > whole ? whole : declared, 0xffff);
}

static __always_inline void read_packet_v4(struct context *ctx, struct packet *packet, __u32 at,
					   int with_transport)
{
	struct iphdr *ip = part(ctx, at, sizeof(*ip));
	__be16 fragment;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return;
	packet->ip = 4;
	packet->ether_type = bpf_htons(ETH_P_IP);
	packet->network = at;
	packet->protocol = ip->protocol;
	packet->traffic_class = ip->tos;
	packet->ttl = ip->ttl;
	__builtin_memcpy(packet->source, &ip->saddr, 4);
	__builtin_memcpy(packet->destination, &ip->daddr, 4);
	packet->transport = at + ip->ihl * 4;
	packet->end = believable(ctx, at + bpf_ntohs(ip->tot_len), packet->transport);
	fragment = ip->frag_off & bpf_htons(0x3fff);
	if (fragment)
		packet->has |= fragment & bpf_htons(0x1fff) ? PACKET_FRAGMENT : PACKET_FRAGMENT | PACKET_FIRST;
	if (with_transport)
		read_transport(ctx, packet);
}

static __always_inline void read_packet_v6(struct context *ctx, struct packet *packet, __u32 at,
					   int with_transport)
{
	struct ipv6hdr *ip = part(ctx, at, sizeof(*ip));

	if (!ip || ip->version != 6)
		return;
	packet->ip = 6;
	packet->ether_type = bpf_htons(ETH_P_IPV6);
	packet->network = at;
	packet->protocol = ip->nexthdr;
	packet->traffic_class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	packet->ttl = ip->hop_limit;
	__builtin_memcpy(packet->source, &ip->saddr, 16);
	__builtin_memcpy(packet->destination, &ip->daddr, 16);
	packet->transport = at + sizeof(*ip);
	packet->end = believable(ctx, at + 40 + bpf_ntohs(ip->payload_len), at + 41);
	if (with_transport)
		read_transport(ctx, packet);
}

/* Which IP header is behind a stack of MPLS labels, and where; nothing says so but the first
 * half byte. 0 for none. */
static __always_inline __u8 pass_labels(struct context *ctx, __u32 *at)
{
#pragma unroll
	for (int i = 0; i < PACKET_LABELS_MAX; i++) {
		__u8 *label = part(ctx, *at, 5);

		if (!label)
			return 0;
		*at += 4;
		if (label[2] & 1)
			return label[4] >> 4;
	}
	return 0;
}

/* The same after PPPoE's six bytes and PPP's protocol of two. */
static __always_inline __u8 pass_pppoe(struct context *ctx, __u32 *at)
{
	__be16 *header = part(ctx, *at, 8);

	/* Version 1, type 1, and code 0, which is data. */
	if (!header || header[0] != bpf_htons(0x1100))
		return 0;
	*at += 8;
	return header[3] == bpf_htons(0x0021) ? 4 : header[3] == bpf_htons(0x0057) ? 6 : 0;
}

static __always_inline void set_tag(struct packet *packet, __be16 type, __be16 control)
{
	packet->tag = control & bpf_htons(0xefff);
	packet->tag_type = type;
	packet->has |= PACKET_TAG;
}

static __always_inline void set_inner_tag(struct packet *packet, __be16 type, __be16 control)
{
	packet->inner_tag = control & bpf_htons(0xefff);
	packet->inner_tag_type = type;
	packet->has |= PACKET_INNER_TAG;
}

/* The EtherType behind all tags. */
static __always_inline __u32 behind_tags(const struct packet *packet)
{
	return packet->carrier == CARRIED_BY_PPPOE   ? ETH_P_PPP_SES :
	       packet->carrier == CARRIED_BY_MPLS_UC ? ETH_P_MPLS_UC :
	       packet->carrier == CARRIED_BY_MPLS_MC ? ETH_P_MPLS_MC :
						       bpf_ntohs(packet->ether_type);
}

/* Reads the headers of the frame. */
static __always_inline void read_packet(struct context *ctx, struct packet *packet,
					int with_transport)
{
	__be16 ether_type, beside, beside_type;
	__u32 at = LINK_HEADER;
	__u8 ip = 0;

	if (headerless) {
		__u8 *first = part(ctx, 0, 1);

		if (!first)
			return;
		ether_type = type_by_version(*first);
	} else {
		struct ethhdr *eth = part(ctx, 0, sizeof(*eth));

		if (!eth)
			return;
		__builtin_memcpy(packet->source_mac, eth->h_source, ETH_ALEN);
		__builtin_memcpy(packet->destination_mac, eth->h_dest, ETH_ALEN);
		ether_type = eth->h_proto;
	}
	beside = tag_beside(ctx, &beside_type);
	if (beside_type)
		set_tag(packet, beside_type, beside);
#pragma unroll
	for (int i = 0; i < PACKET_TAGS_MAX; i++) {
		__be16 *tag;

		if (ether_type != bpf_htons(ETH_P_8021Q) && ether_type != bpf_htons(ETH_P_8021AD) &&
		    ether_type != bpf_htons(ETH_P_QINQ1) && ether_type != bpf_htons(ETH_P_QINQ2))
			break;
		tag = part(ctx, at, 4);
		if (!tag)
			break;
		if (i == 0 && !beside_type)
			set_tag(packet, ether_type, tag[0]);
		else if (i == 0 || (i == 1 && !beside_type))
			set_inner_tag(packet, ether_type, tag[0]);
		ether_type = tag[1];
		at += 4;
	}
	packet->ether_type = ether_type;
	if (bpf_ntohs(ether_type) < ETH_P_802_3_MIN) {
		/* The rule of eth_type_trans() in the kernel. */
		__be16 *first = part(ctx, at, 2);

		packet->ether_type = first && *first == 0xffff ? bpf_htons(ETH_P_802_3) :
								 bpf_htons(ETH_P_802_2);
	}
	packet->network = packet->behind_tags = at;
	if (ether_type == bpf_htons(ETH_P_IP)) {
		ip = 4;
	} else if (ether_type == bpf_htons(ETH_P_IPV6)) {
		ip = 6;
	} else if (ether_type == bpf_htons(ETH_P_MPLS_UC) ||
		   ether_type == bpf_htons(ETH_P_MPLS_MC)) {
		packet->carrier = ether_type == bpf_htons(ETH_P_MPLS_UC) ? CARRIED_BY_MPLS_UC :
									   CARRIED_BY_MPLS_MC;
		ip = pass_labels(ctx, &at);
	} else if (ether_type == bpf_htons(ETH_P_PPP_SES)) {
		packet->carrier = CARRIED_BY_PPPOE;
		ip = pass_pppoe(ctx, &at);
	}
	if (ip == 4)
		read_packet_v4(ctx, packet, at, with_transport);
	else if (ip == 6)
		read_packet_v6(ctx, packet, at, with_transport);
}

#endif
