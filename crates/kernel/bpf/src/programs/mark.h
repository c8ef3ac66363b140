/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Congestion experienced: the mark of RFC 3168, written into a frame. */
#ifndef MARK_H
#define MARK_H

#include "edit.h"
#include "find_class.h"
#include "frame.h"

#define CE 3

static __always_inline int mark_v4(struct context *ctx, __u32 at, struct iphdr *ip,
				   void *data_end)
{
	__u8 tos;
	__u32 sum;

	if ((void *)(ip + 1) > data_end || !(ip->tos & CE))
		return 0;
	tos = ip->tos;
	/* RFC 1624: the checksum's complement grows by the same amount as the word. */
	sum = (__u16)~ip->check + (CE - (tos & CE)) * (__u32)bpf_htons(1);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	put_word(ctx, at + offsetof(struct iphdr, check), &ip->check, sum);
	put_byte(ctx, at + offsetof(struct iphdr, tos), &ip->tos, tos | CE);
	return 1;
}

static __always_inline int mark_v6(struct context *ctx, __u32 at, struct ipv6hdr *ip,
				   void *data_end)
{
	__u8 *second = ip->flow_lbl;

	if ((void *)(ip + 1) > data_end || !(*second & CE << 4))
		return 0;
	put_byte(ctx, at + offsetof(struct ipv6hdr, flow_lbl), second, *second | CE << 4);
	return 1;
}

/* Marks the packet if its sender supports ECN. Returns whether it does. */
__noinline int mark(struct context *ctx)
{
	void *data = data_of(ctx), *data_end = data_end_of(ctx);
	struct network network = {};
	struct key key = {};
	__u32 at;

	read_headers(&key, &network, data, data_end);
	at = network.at & 63;
	if (network.ip == 4)
		return mark_v4(ctx, at, data + at, data_end);
	return network.ip == 6 && mark_v6(ctx, at, data + at, data_end);
}

#endif
