/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A frame's addresses on the inside of network address translation, if this kernel does that
 * translation itself.
 *
 * The kernel's connection tracking knows each connection by two tuples: the addresses of its
 * first packet before translation, and those of answers before theirs. The sources of the two
 * are the connection's true ends, whichever was translated: a source (masquerading), a
 * destination (port forwarding), or both. A frame is either one of these tuples or the reverse
 * of one, depending on the side of the translation on which it is seen; so there are at most
 * two look-ups.
 *
 * The result is written in front of the frame, as XDP metadata, with a seal: a secret shared
 * with user space. A frame without an entry gets the seal as well, so metadata of an earlier
 * frame in the same memory does not count.
 *
 * Non-goals: protocols other than TCP and UDP (the kernel has no look-up for them), fragments,
 * IPv6 extension headers, conntrack zones, other namespaces.
 */
#ifndef TRANSLATION_H
#define TRANSLATION_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The most VLAN tags that are parsed. */
#define TAGS_MAX 2
/* "More fragments", or an offset. */
#define FRAGMENT 0x3fff
/* IPv4 in the session stage of PPP over Ethernet, and IPv6. */
#define PPP_IPV4 0x0021
#define PPP_IPV6 0x0057

/* Proves to user space that these bytes are ours; chosen before the program is
 * loaded. */
const volatile __u32 seal = 1;

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

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
					 __u32 tuple__sz, struct bpf_ct_opts *opts,
					 __u32 opts__sz) __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __ksym;

enum { ORIGINAL, REPLY };

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

/* A frame's flow as it is on the wire. */
struct flow {
	struct bpf_sock_tuple tuple;
	__u8 version;	/* 4, 6, or 0 if it cannot be looked up */
	__u8 protocol;
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

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __always_inline void read_ipv4(void *at, void *end, struct flow *flow)
{
	struct iphdr *ip = at;
	struct ports *ports;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return;
	if (!has_ports(ip->protocol) || ip->frag_off & bpf_htons(FRAGMENT))
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

	if ((void *)(ports + 1) > end || ip->version != 6 || !has_ports(ip->nexthdr))
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

static __always_inline struct nf_conn *find(struct xdp_md *ctx, struct flow *flow, __u8 *dir)
{
	struct bpf_ct_opts opts = {
		.netns_id = BPF_F_CURRENT_NETNS,
		.l4proto = flow->protocol,
	};
	struct nf_conn *ct;

	/* The kernel derives the version from the size, so it must be a constant. */
	if (flow->version == 4)
		ct = bpf_xdp_ct_lookup(ctx, &flow->tuple, sizeof(flow->tuple.ipv4), &opts,
				       sizeof(opts));
	else
		ct = bpf_xdp_ct_lookup(ctx, &flow->tuple, sizeof(flow->tuple.ipv6), &opts,
				       sizeof(opts));
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

	ct = find(ctx, flow, &dir);
	if (!ct) {
		reverse(flow);
		ct = find(ctx, flow, &dir);
		/* The entry is that of the reverse direction. */
		dir = dir == ORIGINAL ? REPLY : ORIGINAL;
	}
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
