/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where the programs of the XDP plane see a frame: at XDP, or at tcx, where the kernel has built
 * a packet of it.
 *
 * Each program is compiled for both. At tcx a packet may stand for several frames on the wire,
 * which the kernel or the device has merged, or that are still to be cut. So packets and bytes
 * are counted as on the wire: as many as there are segments, each with its headers. Its VLAN tag
 * is beside the packet, and its data may be in several pieces, of which programs read the first.
 *
 * Non-goals: what the frame contains.
 */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* A frame as it is on the wire. */
struct size {
	__u32 bytes;
	__u32 packets;
};

/* Whether XDP may see frames in several buffers. Set before the program is loaded. */
const volatile __u32 multi_buffer = 0;

#ifndef TCX

#define HOOK "xdp"
#define context xdp_md
#define TO_BOX XDP_PASS
#define DROPPED XDP_DROP
#define FAILED XDP_ABORTED
#define REDIRECTED XDP_REDIRECT

static __always_inline void *data_of(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *data_end_of(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end;
}

static __always_inline void reach_headers(struct xdp_md *ctx)
{
}

static __always_inline struct size size_of(struct xdp_md *ctx)
{
	struct size size = { ctx->data_end - ctx->data, 1 };

	if (multi_buffer)
		size.bytes = bpf_xdp_get_buff_len(ctx);
	return size;
}

/* The frame's bytes that are not out of reach. */
static __always_inline __u32 reachable(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

/* The tag beside the frame, in network order, and its type; 0 for none. */
static __always_inline __be16 tag_beside(struct xdp_md *ctx, __be16 *type)
{
	return *type = 0;
}

#else

#define HOOK "tc"
#define context __sk_buff
#define TO_BOX TC_ACT_UNSPEC
#define DROPPED TC_ACT_SHOT
#define FAILED TC_ACT_SHOT
#define REDIRECTED TC_ACT_REDIRECT
/* The bytes of a packet whose headers are read wherever they are. */
#define HEADERS_MAX 128

/* Loads a pointer as one instruction. The compiler may add to `ctx` first, which the verifier
 * refuses. */
#define CONTEXT_POINTER(ctx, field)                                                             \
	({                                                                                      \
		void *pointer;                                                                  \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                           \
			     : "=r"(pointer)                                                    \
			     : "r"(ctx), "i"(offsetof(struct __sk_buff, field)));               \
		pointer;                                                                        \
	})

static __always_inline void *data_of(struct __sk_buff *ctx)
{
	return CONTEXT_POINTER(ctx, data);
}

static __always_inline void *data_end_of(struct __sk_buff *ctx)
{
	return CONTEXT_POINTER(ctx, data_end);
}

/* Makes headers readable that are not in the packet's first piece. */
static __always_inline void reach_headers(struct __sk_buff *ctx)
{
	__u32 first = data_end_of(ctx) - data_of(ctx);

	if (first < HEADERS_MAX && first < ctx->len)
		bpf_skb_pull_data(ctx, ctx->len < HEADERS_MAX ? ctx->len : HEADERS_MAX);
}

/* The bytes before the payload of TCP or UDP; 0 if it carries neither. Also behind a tag, as
 * an outer tag is beside the packet. */
__noinline int headers_of(struct __sk_buff *ctx)
{
	void *data = data_of(ctx), *data_end = data_end_of(ctx);
	struct ethhdr *eth = data;
	__u32 at = sizeof(*eth);
	struct tcphdr *tcp;
	__be16 type;
	__u8 protocol;

	if ((void *)(eth + 1) > data_end)
		return 0;
	type = eth->h_proto;
	if (type == bpf_htons(ETH_P_8021Q)) {
		if (data + at + 4 > data_end)
			return 0;
		type = *(__be16 *)(data + at + 2);
		at += 4;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > data_end)
			return 0;
		protocol = ip->protocol;
		at += ip->ihl * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + at;

		if ((void *)(ip + 1) > data_end)
			return 0;
		protocol = ip->nexthdr;
		at += sizeof(*ip);
	} else {
		return 0;
	}
	if (protocol == 17)
		return at + 8;
	tcp = data + at;
	if (protocol != 6 || (void *)(tcp + 1) > data_end)
		return 0;
	return at + tcp->doff * 4;
}

static __always_inline struct size size_of(struct __sk_buff *ctx)
{
	struct size size = { ctx->len, 1 };
	__u32 segment = ctx->gso_size;

	if (segment) {
		__u32 headers = headers_of(ctx);

		size.packets = ctx->gso_segs;
		/* A guest, for one, does not say it. */
		if (!size.packets)
			size.packets = (ctx->len - headers + segment - 1) / segment;
		if (!size.packets)
			size.packets = 1;
		size.bytes += (size.packets - 1) * headers;
	}
	if (ctx->vlan_present)
		size.bytes += 4 * size.packets;
	return size;
}

static __always_inline __u32 reachable(struct __sk_buff *ctx)
{
	return ctx->len;
}

static __always_inline __be16 tag_beside(struct __sk_buff *ctx, __be16 *type)
{
	*type = 0;
	if (!ctx->vlan_present)
		return 0;
	*type = ctx->vlan_proto;
	return bpf_htons(ctx->vlan_tci);
}

#endif

#endif
