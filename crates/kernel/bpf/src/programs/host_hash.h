/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A hash of the host that a packet comes from, or goes to: of one address of its outer IP header.
 *
 * Non-goals: what is not IP for the kernel, as in a tag that the device does not take off; it is of
 * one host. Addresses before NAT, where it has been done.
 */
#ifndef HOST_HASH_H
#define HOST_HASH_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include "tree.h"

/* The side of the address is of `enum hosts`. A global function: what calls it has little stack left. */
__noinline __u32 host_hash(struct __sk_buff *ctx, __u32 side)
{
	__u32 words[4] = {}, hash = 0, at;

	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		at = side == SOURCES ? offsetof(struct iphdr, saddr) :
				       offsetof(struct iphdr, daddr);
		if (bpf_skb_load_bytes_relative(ctx, at, words, 4, BPF_HDR_START_NET))
			return 0;
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		at = side == SOURCES ? offsetof(struct ipv6hdr, saddr) :
				       offsetof(struct ipv6hdr, daddr);
		if (bpf_skb_load_bytes_relative(ctx, at, words, 16, BPF_HDR_START_NET))
			return 0;
	}
	for (int i = 0; i < 4; i++)
		hash = (hash ^ words[i]) * 0x9e3779b1;
	return hash ^ hash >> 16;
}

#endif
