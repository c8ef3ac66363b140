/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A hash of the host that a packet comes from, or goes to: of one address of its outer IP header, or
 * of what that was before network address translation.
 *
 * Non-goals: what is not IP for the kernel, as in a tag that the device does not take off; it is of
 * one host.
 */
#ifndef HOST_HASH_H
#define HOST_HASH_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include "tree.h"

/* An address; of IPv4 in the first word. */
struct address {
	__u32 words[4];
};

/* Reads the address in the header. Returns whether there is one. */
static __always_inline int read_address(struct __sk_buff *ctx, int is_source,
					struct address *address)
{
	__u32 at;

	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		at = is_source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr);
		return !bpf_skb_load_bytes_relative(ctx, at, address, 4, BPF_HDR_START_NET);
	}
	if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		at = is_source ? offsetof(struct ipv6hdr, saddr) :
				 offsetof(struct ipv6hdr, daddr);
		return !bpf_skb_load_bytes_relative(ctx, at, address, 16, BPF_HDR_START_NET);
	}
	return 0;
}

#ifdef BEFORE_NAT
#include "inside.h"
#else
/* Without the look-up the address is that in the header. */
static __always_inline int read_inside(struct __sk_buff *ctx, int is_source,
				       struct address *address)
{
	return 0;
}
#endif

/* The side of the address is of `enum hosts`. A global function: what calls it has little stack left. */
__noinline __u32 host_hash(struct __sk_buff *ctx, __u32 side)
{
	int is_source = side == SOURCES || side == SOURCES_INSIDE;
	int is_inside = side == SOURCES_INSIDE || side == DESTINATIONS_INSIDE;
	struct address address = {};
	__u32 hash = 0;

	if (!(is_inside && read_inside(ctx, is_source, &address)) &&
	    !read_address(ctx, is_source, &address))
		return 0;
	for (int i = 0; i < 4; i++)
		hash = (hash ^ address.words[i]) * 0x9e3779b1;
	return hash ^ hash >> 16;
}

#endif
