/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Congestion experienced: the mark of RFC 3168, written into a frame. */
#ifndef MARK_H
#define MARK_H

#include "find_class.h"

#define CE 3

static __always_inline int mark_v4(struct iphdr *ip, void *data_end)
{
	__u32 sum;

	if ((void *)(ip + 1) > data_end || !(ip->tos & CE))
		return 0;
	/* RFC 1624: the checksum's complement grows by the same amount as the word. */
	sum = (__u16)~ip->check + (CE - (ip->tos & CE)) * (__u32)bpf_htons(1);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~((sum & 0xffff) + (sum >> 16));
	ip->tos |= CE;
	return 1;
}

static __always_inline int mark_v6(struct ipv6hdr *ip, void *data_end)
{
	if ((void *)(ip + 1) > data_end || !(ip->flow_lbl[0] & CE << 4))
		return 0;
	ip->flow_lbl[0] |= CE << 4;
	return 1;
}

/* Marks the packet if its sender supports ECN. Returns whether it does. */
__noinline int mark(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct network network = {};
	struct key key = {};

	read_headers(&key, &network, data, data_end);
	data += network.at & 63;
	if (network.ip == 4)
		return mark_v4(data, data_end);
	return network.ip == 6 && mark_v6(data, data_end);
}

#endif
