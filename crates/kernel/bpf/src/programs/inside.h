/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * An address of a packet as it is on the inside of network address translation, if this kernel does
 * that translation itself (conntrack.h).
 *
 * At a port towards the Internet what leaves has been translated already, and what arrives has not:
 * so the sender of the one and the receiver of the other are found by the first look-up.
 */
#ifndef INSIDE_H
#define INSIDE_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include "conntrack.h"

static __always_inline int load(struct __sk_buff *ctx, __u32 at, void *to, __u32 bytes)
{
	return !bpf_skb_load_bytes_relative(ctx, at, to, bytes, BPF_HDR_START_NET);
}

/* Both ports, which are where TCP and UDP have them. */
static __always_inline int load_ports(struct __sk_buff *ctx, __u32 at, __be16 *source,
				      __be16 *destination)
{
	return load(ctx, at, source, 2) && load(ctx, at + 2, destination, 2);
}

static __always_inline void load_ipv4(struct __sk_buff *ctx, struct flow *flow)
{
	struct iphdr ip;

	if (!load(ctx, 0, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return;
	if (!is_tracked(ip.protocol) || ip.frag_off & bpf_htons(FRAGMENT))
		return;
	if (!load_ports(ctx, ip.ihl * 4, &flow->tuple.ipv4.sport, &flow->tuple.ipv4.dport))
		return;
	flow->tuple.ipv4.saddr = ip.saddr;
	flow->tuple.ipv4.daddr = ip.daddr;
	flow->protocol = ip.protocol;
	flow->version = 4;
}

static __always_inline void load_ipv6(struct __sk_buff *ctx, struct flow *flow)
{
	__u8 next;

	if (!load(ctx, offsetof(struct ipv6hdr, nexthdr), &next, 1) || !is_tracked(next))
		return;
	/* Both addresses are together, here and there. */
	if (!load(ctx, offsetof(struct ipv6hdr, saddr), &flow->tuple.ipv6, 32) ||
	    !load_ports(ctx, sizeof(struct ipv6hdr), &flow->tuple.ipv6.sport,
			&flow->tuple.ipv6.dport))
		return;
	flow->protocol = next;
	flow->version = 6;
}

static __always_inline void read_end(const struct nf_conntrack_man *man, int version,
				     struct address *address)
{
	address->words[0] = man->u3.ip6[0];
	if (version == 4)
		return;
#pragma unroll
	for (int i = 1; i < 4; i++)
		address->words[i] = man->u3.ip6[i];
}

/* Reads the address before translation. Returns whether the packet is of a connection that the
 * kernel translates. */
static __always_inline int read_inside(struct __sk_buff *ctx, int is_source,
				       struct address *address)
{
	struct flow flow = {};
	struct nf_conn *ct;
	int is_translated;
	__u8 dir;

	if (ctx->protocol == bpf_htons(ETH_P_IP))
		load_ipv4(ctx, &flow);
	else if (ctx->protocol == bpf_htons(ETH_P_IPV6))
		load_ipv6(ctx, &flow);
	if (!flow.version)
		return 0;
	ct = connection_of(ctx, &flow, is_source, &dir);
	if (!ct)
		return 0;
	is_translated = !!(ct->status & (IPS_SRC_NAT | IPS_DST_NAT));
	if (is_source == (dir == ORIGINAL))
		read_end(&ct->tuplehash[ORIGINAL].tuple.src, flow.version, address);
	else
		read_end(&ct->tuplehash[REPLY].tuple.src, flow.version, address);
	bpf_ct_release(ct);
	return is_translated;
}

#endif
