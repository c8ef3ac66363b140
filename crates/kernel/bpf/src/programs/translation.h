/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A frame's addresses on the inside of network address translation (conntrack.h).
 *
 * The result is written in front of the frame, as XDP metadata, with a seal: a secret shared
 * with user space. A frame without an entry gets the seal as well, so metadata of an earlier
 * frame in the same memory does not count.
 */
#ifndef TRANSLATION_H
#define TRANSLATION_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include "conntrack.h"

/* The most VLAN tags that are parsed. */
#define TAGS_MAX 2
/* IPv4 in the session stage of PPP over Ethernet, and IPv6. */
#define PPP_IPV4 0x0021
#define PPP_IPV6 0x0057

/* Proves to user space that these bytes are ours; chosen before the program is
 * loaded. */
const volatile __u32 seal = 1;

/* What lies in front of a frame: `struct known`, the seal nearest to the frame.
 * Where nothing is known it is `struct known` alone; otherwise ports and addresses
 * stand before it. All in network byte order, but for these two words. */
struct known {
	__u32 version;	/* 4, 6, or 0 for nothing */
	__u32 seal;
};

struct known_v4 {
	__be32 source, destination;
	__be16 ports[2];
	struct known known;
};

struct known_v6 {
	__be32 source[4], destination[4];
	__be16 ports[2];
	struct known known;
};

/* One end of a connection. */
struct end {
	__be32 address[4];
	__be16 port;
};

struct vlan_tag {
	__be16 control;
	__be16 type;
};

struct pppoe {
	__u8 sort, code;
	__be16 session, len, protocol;
};

struct ports {
	__be16 source, destination;
};

static __always_inline void read_ipv4(void *at, void *end, struct flow *flow)
{
	struct iphdr *ip = at;
	struct ports *ports;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return;
	if (!is_tracked(ip->protocol) || ip->frag_off & bpf_htons(FRAGMENT))
		return;
	ports = at + ip->ihl * 4;
	if ((void *)(ports + 1) > end)
		return;
	flow->tuple.ipv4.saddr = ip->saddr;
	flow->tuple.ipv4.daddr = ip->daddr;
	flow->tuple.ipv4.sport = ports->source;
	flow->tuple.ipv4.dport = ports->destination;
	flow->protocol = ip->protocol;
	flow->version = 4;
}

static __always_inline void read_ipv6(void *at, void *end, struct flow *flow)
{
	struct ipv6hdr *ip = at;
	struct ports *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > end || ip->version != 6 || !is_tracked(ip->nexthdr))
		return;
	__builtin_memcpy(flow->tuple.ipv6.saddr, &ip->saddr, 16);
	__builtin_memcpy(flow->tuple.ipv6.daddr, &ip->daddr, 16);
	flow->tuple.ipv6.sport = ports->source;
	flow->tuple.ipv6.dport = ports->destination;
	flow->protocol = ip->nexthdr;
	flow->version = 6;
}

static __always_inline void read_flow(const struct xdp_md *ctx, struct flow *flow)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *at = eth + 1;
	__be16 type;

	if (at > end)
		return;
	type = eth->h_proto;
#pragma unroll
	for (int i = 0; i < TAGS_MAX; i++) {
		struct vlan_tag *tag = at;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		at = tag + 1;
		if (at > end)
			return;
		type = tag->type;
	}
	if (type == bpf_htons(ETH_P_PPP_SES)) {
		struct pppoe *session = at;

		at = session + 1;
		if (at > end || session->sort != 0x11 || session->code != 0)
			return;
		if (session->protocol == bpf_htons(PPP_IPV4))
			type = bpf_htons(ETH_P_IP);
		else if (session->protocol == bpf_htons(PPP_IPV6))
			type = bpf_htons(ETH_P_IPV6);
	}
	if (type == bpf_htons(ETH_P_IP))
		read_ipv4(at, end, flow);
	else if (type == bpf_htons(ETH_P_IPV6))
		read_ipv6(at, end, flow);
}

static __always_inline void read_end(const struct nf_conntrack_man *man, struct end *end)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		end->address[i] = man->u3.ip6[i];
	end->port = man->u.all;
}

/* The true ends of the flow, the sender first. Says whether they are known, and
 * others than those in the frame. */
static __always_inline int true_ends(struct xdp_md *ctx, struct flow *flow, struct end *from,
				     struct end *to)
{
	struct nf_conn *ct;
	int is_translated;
	__u8 dir;

	ct = connection_of(ctx, flow, 0, &dir);
	if (!ct)
		return 0;
	is_translated = !!(ct->status & (IPS_SRC_NAT | IPS_DST_NAT));
	if (is_translated && dir == ORIGINAL) {
		read_end(&ct->tuplehash[ORIGINAL].tuple.src, from);
		read_end(&ct->tuplehash[REPLY].tuple.src, to);
	} else if (is_translated) {
		read_end(&ct->tuplehash[REPLY].tuple.src, from);
		read_end(&ct->tuplehash[ORIGINAL].tuple.src, to);
	}
	bpf_ct_release(ct);
	return is_translated;
}

/* Makes room for `size` bytes in front of the frame. Null where the driver, or an
 * older kernel that has a lower limit, gives none. */
static __always_inline void *room(struct xdp_md *ctx, int size)
{
	void *meta, *data;

	if (bpf_xdp_adjust_meta(ctx, -size))
		return 0;
	meta = (void *)(long)ctx->data_meta;
	data = (void *)(long)ctx->data;
	return meta + size > data ? 0 : meta;
}

/* Writes what is known about the frame's flow in front of it. */
static __always_inline void tell_translation(struct xdp_md *ctx)
{
	struct flow flow = {};
	struct end from, to;
	struct known *none;

	read_flow(ctx, &flow);
	if (flow.version && true_ends(ctx, &flow, &from, &to)) {
		if (flow.version == 4) {
			struct known_v4 *v4 = room(ctx, sizeof(*v4));

			if (v4) {
				v4->source = from.address[0];
				v4->destination = to.address[0];
				v4->ports[0] = from.port;
				v4->ports[1] = to.port;
				v4->known.version = 4;
				v4->known.seal = seal;
				return;
			}
		} else {
			struct known_v6 *v6 = room(ctx, sizeof(*v6));

			if (v6) {
				__builtin_memcpy(v6->source, from.address, 16);
				__builtin_memcpy(v6->destination, to.address, 16);
				v6->ports[0] = from.port;
				v6->ports[1] = to.port;
				v6->known.version = 6;
				v6->known.seal = seal;
				return;
			}
		}
	}
	none = room(ctx, sizeof(*none));
	if (none) {
		none->version = 0;
		none->seal = seal;
	}
}

#endif
