/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Puts a packet into another one, to a server: IP in IP (RFC 2003, RFC 2473), or GUE (variant 0,
 * without checksum), as Linux's tunnels unpack them.
 *
 * The outer header has the inner one's traffic class, so congestion marks and priorities count on
 * the way. It never has "don't fragment" cleared: the way takes the packet, or it is not sent.
 */
#ifndef ENCAPSULATE_H
#define ENCAPSULATE_H

#include <linux/udp.h>
#include "balance.h"
#include "frame.h"
#include "own_header.h"

#define PROTOCOL_IPIP 4
#define PROTOCOL_IPV6 41
#define PROTOCOL_UDP 17
/* Source ports of GUE, by the connection's hash, so that servers spread connections over queues. */
#define GUE_PORTS_FROM 49152

struct gue {
	__u8 control;		/* variant 0, no further words */
	__u8 protocol;
	__be16 flags;
};

/* What is in front of the inner packet, without the Ethernet header. */
static __always_inline __u32 outer_bytes(const struct server *server)
{
	__u32 ip = server->ip == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (server->forward == BY_ROUTE)
		return 0;
	return server->forward == BY_GUE ? ip + sizeof(struct udphdr) + sizeof(struct gue) : ip;
}

static __always_inline void write_gue(struct udphdr *udp, const struct server *server, __u8 inner,
				      __u32 bytes, __u64 hash)
{
	struct gue *gue = (void *)(udp + 1);

	udp->source = bpf_htons(GUE_PORTS_FROM + (hash & 0x3fff));
	udp->dest = server->port;
	udp->len = bpf_htons(bytes + sizeof(*udp) + sizeof(*gue));
	udp->check = 0;
	gue->control = 0;
	gue->protocol = inner;
	gue->flags = 0;
}

/* Writes the headers in front of the inner packet of `bytes` bytes, for which there is room behind
 * the Ethernet header. 0 if there is none. */
static __always_inline int encapsulate(struct context *ctx, const struct server *server,
				       __u8 inner_ip, __u8 traffic_class, __u32 bytes, __u64 hash)
{
	struct ethhdr *eth = data_of(ctx);
	__u8 inner = inner_ip == 4 ? PROTOCOL_IPIP : PROTOCOL_IPV6;
	__u8 carried = server->forward == BY_GUE ? PROTOCOL_UDP : inner;
	__u32 gue_bytes = server->forward == BY_GUE ? sizeof(struct udphdr) + sizeof(struct gue) : 0;

	if (server->ip == 4) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) + sizeof(struct udphdr) + sizeof(struct gue) > data_end_of(ctx))
			return 0;
		eth->h_proto = bpf_htons(ETH_P_IP);
		write_ipv4(ip, traffic_class, carried, gue_bytes + bytes, server->from, server->to);
		if (server->forward == BY_GUE)
			write_gue((void *)(ip + 1), server, inner, bytes, hash);
	} else {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) + sizeof(struct udphdr) + sizeof(struct gue) > data_end_of(ctx))
			return 0;
		eth->h_proto = bpf_htons(ETH_P_IPV6);
		write_ipv6(ip, traffic_class, hash >> 32, carried, gue_bytes + bytes, server->from,
			   server->to);
		if (server->forward == BY_GUE)
			write_gue((void *)(ip + 1), server, inner, bytes, hash);
	}
	return 1;
}

#endif
