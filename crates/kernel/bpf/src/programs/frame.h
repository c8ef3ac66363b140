/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where the programs of the XDP plane see a frame: at XDP, or at tcx, where the kernel has built
 * a packet of it.
 *
 * Each program is compiled for both. At tcx a packet may stand for several frames on the wire
 * (segments.h). Its VLAN tag is beside the packet, and its data may be in several pieces, of which
 * programs read the first.
 *
 * Non-goals: what the frame contains.
 */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Whether XDP may see frames in several buffers. Set before the program is loaded. */
const volatile __u32 multi_buffer = 0;

#ifndef TCX

#define HOOK "xdp"
#define headerless 0
#define context xdp_md
#define TO_BOX XDP_PASS
#define DROPPED XDP_DROP
#define FAILED XDP_ABORTED

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

/* Whether packets of the port begin with the header of IP: those of tunnels and of PPP do. Set
 * before the program is loaded. */
const volatile __u32 headerless = 0;
#define TO_BOX TC_ACT_UNSPEC
#define DROPPED TC_ACT_SHOT
#define FAILED TC_ACT_SHOT
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

/* The bytes before the network layer of a packet without tags. */
#define LINK_HEADER (headerless ? 0 : sizeof(struct ethhdr))

/* The EtherType of a packet without a header for it, by its first byte; 0 if it is not IP. */
static __always_inline __be16 type_by_version(__u8 first)
{
	return first >> 4 == 4 ? bpf_htons(ETH_P_IP) :
	       first >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : 0;
}

#endif
