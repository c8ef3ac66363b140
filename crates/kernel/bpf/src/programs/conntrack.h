/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the kernel's connection tracking knows of a packet's connection: the addresses of its ends
 * before network address translation, if this kernel does that translation itself.
 *
 * It knows each connection by two tuples: the addresses of its first packet before translation, and
 * those of answers before theirs. The sources of the two are the connection's true ends, whichever
 * was translated: a source (masquerading), a destination (port forwarding), or both. A packet is
 * either one of these tuples or the reverse of one, depending on the side of the translation on
 * which it is seen; so there are at most two look-ups.
 *
 * Non-goals: protocols other than TCP and UDP (the kernel has no look-up for them), fragments, IPv6
 * extension headers, conntrack zones, other namespaces.
 */
#ifndef CONNTRACK_H
#define CONNTRACK_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* "More fragments", or an offset. */
#define FRAGMENT 0x3fff

/* The kernel's own structures, as far as they are read: where their fields are is
 * found out when the program is loaded. */
struct nf_conntrack_man {
	union {
		__be32 ip;
		__be32 ip6[4];
	} u3;
	union {
		__be16 all;
	} u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
} __attribute__((preserve_access_index));

/* The part of the options that all kernels with these look-ups take. */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

#ifdef TCX
typedef struct __sk_buff conntrack_context;
#define LOOK_UP bpf_skb_ct_lookup
#else
typedef struct xdp_md conntrack_context;
#define LOOK_UP bpf_xdp_ct_lookup
#endif

extern struct nf_conn *LOOK_UP(conntrack_context *ctx, struct bpf_sock_tuple *tuple,
			       __u32 tuple__sz, struct bpf_ct_opts *opts, __u32 opts__sz) __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __ksym;

enum { ORIGINAL, REPLY };

/* A packet's flow as it is on the wire. */
struct flow {
	struct bpf_sock_tuple tuple;
	__u8 version;	/* 4, 6, or 0 if it cannot be looked up */
	__u8 protocol;
};

/* Whether there is a look-up for the protocol. */
static __always_inline int is_tracked(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __always_inline struct nf_conn *find(conntrack_context *ctx, struct flow *flow, __u8 *dir)
{
	struct bpf_ct_opts opts = {
		.netns_id = BPF_F_CURRENT_NETNS,
		.l4proto = flow->protocol,
	};
	struct nf_conn *ct;

	/* The kernel derives the version from the size, so it must be a constant. */
	if (flow->version == 4)
		ct = LOOK_UP(ctx, &flow->tuple, sizeof(flow->tuple.ipv4), &opts, sizeof(opts));
	else
		ct = LOOK_UP(ctx, &flow->tuple, sizeof(flow->tuple.ipv6), &opts, sizeof(opts));
	*dir = opts.dir;
	return ct;
}

#define SWAP(a, b) do { __typeof__(a) t = (a); (a) = (b); (b) = t; } while (0)

static __always_inline void reverse(struct flow *flow)
{
	if (flow->version == 4) {
		SWAP(flow->tuple.ipv4.saddr, flow->tuple.ipv4.daddr);
		SWAP(flow->tuple.ipv4.sport, flow->tuple.ipv4.dport);
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		SWAP(flow->tuple.ipv6.saddr[i], flow->tuple.ipv6.daddr[i]);
	SWAP(flow->tuple.ipv6.sport, flow->tuple.ipv6.dport);
}

/* The connection of a packet, and the direction in which that goes; null if the kernel knows none.
 * What is found has to be released. Of a packet that has been translated already, the reverse is an
 * answer's tuple: then that is the one to begin with. */
static __always_inline struct nf_conn *connection_of(conntrack_context *ctx, struct flow *flow,
						     int is_translated, __u8 *dir)
{
	struct nf_conn *ct;

	if (is_translated)
		reverse(flow);
	ct = find(ctx, flow, dir);
	if (!ct) {
		reverse(flow);
		ct = find(ctx, flow, dir);
		is_translated = !is_translated;
	}
	/* The entry is that of the reverse direction. */
	if (is_translated)
		*dir = *dir == ORIGINAL ? REPLY : ORIGINAL;
	return ct;
}

#endif
