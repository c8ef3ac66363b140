/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Congestion experienced: the mark of RFC 3168, written into a frame. */
#ifndef MARK_H
#define MARK_H

#include "find_class.h"
#include "frame.h"

#define CE 3

#ifndef TCX

static __always_inline void put_byte(struct xdp_md *ctx, __u32 offset, __u8 *at, __u8 value)
{
	*at = value;
}

static __always_inline void put_word(struct xdp_md *ctx, __u32 offset, __u16 *at, __u16 value)
{
	*at = value;
}

#else

/* The kernel copies first what others have a hand on, and keeps the device's checksum of the
 * packet right. Pointers into the packet are void afterwards. */
static __always_inline void put_byte(struct __sk_buff *ctx, __u32 offset, __u8 *at, __u8 value)
{
	bpf_skb_store_bytes(ctx, offset, &value, sizeof(value), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline void put_word(struct __sk_buff *ctx, __u32 offset, __u16 *at, __u16 value)
{
	bpf_skb_store_bytes(ctx, offset, &value, sizeof(value), BPF_F_RECOMPUTE_CSUM);
}

#endif

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
