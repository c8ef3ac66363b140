/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which flow of the kernel's flowtable a packet is of, and what its translation makes of it.
 *
 * A flowtable has the connections that the chains of the firewall have accepted and handed over
 * (`flow add @f`). So a packet of one needs no verdict, and its translation is known. That of the
 * answers is in the entry of the other direction, so for each direction: the new source is where
 * answers go to, and the new destination is where they come from.
 *
 * The look-up itself keeps the flow alive, and with it the kernel keeps its connection. It finds
 * none that is being torn down. What opens or closes a connection goes to the kernel, which follows
 * the states of TCP by it.
 *
 * A flow remembers its route. Here the route of the translated packet is looked up anew, and what
 * differs goes to the kernel, which knows whether the flow or the look-up is outdated or sees less.
 *
 * Only programs at XDP can ask, since Linux 6.11.
 *
 * Source: net/netfilter/nf_flow_table_bpf.c, nf_flow_table_ip.c, nf_flow_table_core.c; RFC 1624.
 *
 * Non-goals: fragments, protocols other than TCP and UDP, VLANs, PPPoE, tunnels, IPsec (flows with
 * these go to the kernel); the packet counters of conntrack.
 */
#ifndef FLOW_H
#define FLOW_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "frame.h"
#include "outcomes.h"

/* Of <sys/socket.h>, which is not for programs in the kernel. */
#define AF_INET 2
#define AF_INET6 10

#ifdef FLOWS

/* Where the ends of a packet are written, and where it leaves. */
struct flow {
	__be32 source[4];	/* of IPv4 the first word */
	__be32 destination[4];
	__be16 ports[2];
	__u16 check;		/* of TCP or UDP */
	__u8 is_v6;
	__u8 is_udp;
	__u32 device;		/* through which it leaves, */
	__u64 route;		/* and the address of that route */
};

/* The kernel's own structures, as far as they are read: where their fields are is found out when
 * the program is loaded. */
struct dst_entry;

struct flow_offload_tuple {
	struct in6_addr src_v6, dst_v6;
	__be16 src_port, dst_port;
	int iifidx;
	__u8 dir : 2, xmit_type : 3, encap_num : 2, tun_num : 2;
	__u16 mtu;
	struct dst_entry *dst_cache;
} __attribute__((preserve_access_index));

struct flow_offload_tuple_rhash {
	struct flow_offload_tuple tuple;
} __attribute__((preserve_access_index));

struct rtable {
	__u8 rt_gw_family;
	__be32 rt_gw4;
} __attribute__((preserve_access_index));

struct rt6_info {
	struct in6_addr rt6i_gateway;
	__u32 rt6i_flags;
} __attribute__((preserve_access_index));

struct bpf_flowtable_opts {
	__s32 error;
};

extern struct flow_offload_tuple_rhash *bpf_xdp_flow_lookup(struct xdp_md *ctx,
							    struct bpf_fib_lookup *fib_tuple,
							    struct bpf_flowtable_opts *opts,
							    __u32 opts_len) __ksym;

/* The packet goes to a neighbour, as it is: FLOW_OFFLOAD_XMIT_NEIGH of the kernel. */
#define TO_NEIGHBOUR 1
/* RTF_GATEWAY of the kernel. */
#define HAS_GATEWAY 0x0002

/* The one's complement sum of what is gone, inverted, and of what has come. */
static __always_inline __u64 sum_of_change(__be32 was, __be32 is)
{
	return (__u64)(__u32)~was + is;
}

/* A checksum after such a change. */
static __always_inline __u16 changed_check(__u16 check, __u64 change)
{
	__u64 sum = (__u16)~check + (change & 0xffffffff) + (change >> 32);

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The frame, and its end. Loaded in one piece: a compiler may carry what it has loaded before over a
 * branch as a number, which is no pointer to the verifier. */
static __always_inline void *frame_of(struct xdp_md *ctx)
{
	void *frame;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(frame)
		     : "r"(ctx), "i"(offsetof(struct xdp_md, data)));
	return frame;
}

static __always_inline void *frame_end_of(struct xdp_md *ctx)
{
	void *end;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(end)
		     : "r"(ctx), "i"(offsetof(struct xdp_md, data_end)));
	return end;
}

/* Where TCP or UDP begins. */
static __always_inline __u32 transport_at(__u32 is_v6)
{
	return sizeof(struct ethhdr) + (is_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

/* The checksum of TCP or UDP. Null if it is not in the packet. */
static __always_inline __u16 *transport_check(struct xdp_md *ctx, __u32 is_v6, __u32 is_udp)
{
	__u32 at = transport_at(is_v6) +
		   (is_udp ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	__u16 *check = frame_of(ctx) + at;

	return (void *)(check + 1) > frame_end_of(ctx) ? 0 : check;
}

/* Whether the frame has the whole header of TCP or UDP, and is no fragment; and what it does to its
 * connection. */
static __always_inline int read_transport(struct xdp_md *ctx, struct flow *flow)
{
	__u32 at = transport_at(flow->is_v6), bytes;

	if (flow->is_v6) {
		struct ipv6hdr *ip = frame_of(ctx) + sizeof(struct ethhdr);

		if ((void *)(ip + 1) > frame_end_of(ctx))
			return SHORT;
		bytes = bpf_ntohs(ip->payload_len);
	} else {
		struct iphdr *ip = frame_of(ctx) + sizeof(struct ethhdr);

		if ((void *)(ip + 1) > frame_end_of(ctx))
			return SHORT;
		if (ip->frag_off & bpf_htons(0x3fff))
			return NO_FLOW;
		bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	}
	if (flow->is_udp) {
		struct udphdr *udp = frame_of(ctx) + at;

		if ((void *)(udp + 1) > frame_end_of(ctx) || bytes < sizeof(*udp))
			return SHORT;
		flow->check = udp->check;
	} else {
		struct tcphdr *tcp = frame_of(ctx) + at;

		if ((void *)(tcp + 1) > frame_end_of(ctx) || bytes < sizeof(*tcp))
			return SHORT;
		if (tcp->syn || tcp->fin || tcp->rst)
			return HANDSHAKE;
		flow->check = tcp->check;
	}
	return ROUTED;
}

/* Where this direction of a flow leads, and what its translation makes of `fib`. Returns what
 * becomes of the packet. */
static __always_inline int read_flow(const struct flow_offload_tuple_rhash *own,
				     const struct bpf_fib_lookup *fib, __u32 longest,
				     struct flow *flow)
{
	__u64 bytes = bpf_core_type_size(struct flow_offload_tuple_rhash);
	const struct flow_offload_tuple_rhash *other = own;
	__u32 encapsulates;

	if (BPF_CORE_READ_BITFIELD(own, tuple.xmit_type) != TO_NEIGHBOUR)
		return UNSUPPORTED;
	if (longest > own->tuple.mtu)
		return TOO_LONG;
	/* The two directions are in one array. The verifier loses track of a number that is negated,
	 * as a compiler does it. */
	if (BPF_CORE_READ_BITFIELD(own, tuple.dir))
		asm volatile("%0 -= %1" : "+r"(other) : "r"(bytes));
	else
		asm volatile("%0 += %1" : "+r"(other) : "r"(bytes));
	encapsulates = BPF_CORE_READ_BITFIELD(own, tuple.encap_num) |
		       BPF_CORE_READ_BITFIELD_PROBED(other, tuple.encap_num);
	if (bpf_core_field_exists(own->tuple.tun_num))
		encapsulates |= BPF_CORE_READ_BITFIELD(own, tuple.tun_num) |
				BPF_CORE_READ_BITFIELD_PROBED(other, tuple.tun_num);
	if (encapsulates)
		return UNSUPPORTED;
	/* As a number, which may be copied in parts. */
	if (bpf_core_read(&flow->route, sizeof(flow->route), &own->tuple.dst_cache) ||
	    bpf_core_read(&flow->source, sizeof(flow->source), &other->tuple.dst_v6) ||
	    bpf_core_read(&flow->destination, sizeof(flow->destination), &other->tuple.src_v6) ||
	    bpf_core_read(&flow->ports[0], sizeof(__be16), &other->tuple.dst_port) ||
	    bpf_core_read(&flow->ports[1], sizeof(__be16), &other->tuple.src_port) ||
	    bpf_core_read(&flow->device, sizeof(flow->device), &other->tuple.iifidx))
		return UNSUPPORTED;
	return ROUTED;
}

/* Finds the flow of a packet that `fib` describes, which stands for packets of up to `longest`
 * bytes; it arrived with a tag if `is_tagged`. From then on `fib` has the ends behind its
 * translation, and `check`, the checksum of the header of IPv4, is that of the packet with them.
 * Returns what becomes of it. */
static __always_inline int find_flow(struct xdp_md *ctx, struct bpf_fib_lookup *fib,
				     __u32 is_tagged, __u32 longest, __u16 *check,
				     struct flow *flow)
{
	struct bpf_flowtable_opts opts = {};
	const struct flow_offload_tuple_rhash *own;
	__u64 ends = 0, ports = 0;
	int outcome;

	if (is_tagged || (fib->l4_protocol != IPPROTO_TCP && fib->l4_protocol != IPPROTO_UDP))
		return NO_FLOW;
	flow->is_v6 = fib->family != AF_INET;
	flow->is_udp = fib->l4_protocol == IPPROTO_UDP;
	outcome = read_transport(ctx, flow);
	if (outcome != ROUTED)
		return outcome;
	fib->ifindex = ctx->ingress_ifindex;
	own = bpf_xdp_flow_lookup(ctx, fib, &opts, sizeof(opts));
	if (!own)
		return NO_FLOW;
	outcome = read_flow(own, fib, longest, flow);
	if (outcome != ROUTED)
		return outcome;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (i && !flow->is_v6)
			break;
		ends += sum_of_change(fib->ipv6_src[i], flow->source[i]);
		ends += sum_of_change(fib->ipv6_dst[i], flow->destination[i]);
		fib->ipv6_src[i] = flow->source[i];
		fib->ipv6_dst[i] = flow->destination[i];
	}
	ports += sum_of_change(fib->sport, flow->ports[0]);
	ports += sum_of_change(fib->dport, flow->ports[1]);
	fib->sport = flow->ports[0];
	fib->dport = flow->ports[1];
	*check = changed_check(*check, ends);
	/* UDP of IPv4 may have none. */
	if (!flow->is_udp || flow->check) {
		flow->check = changed_check(flow->check, ends + ports);
		if (flow->is_udp && !flow->check)
			flow->check = 0xffff;
	}
	return ROUTED;
}

/* Whether `said`, what the kernel's look-up says of a packet of this flow, is its route, too: a
 * mark may have chosen another next hop. */
static __always_inline int is_flows_route(const struct flow *flow,
					  const struct bpf_fib_lookup *said)
{
	__u32 differs = said->ifindex ^ flow->device;

	if (flow->is_v6) {
		const struct rt6_info *route = (void *)flow->route;
		struct in6_addr gateway = {};
		__u32 flags = 0;

		bpf_core_read(&flags, sizeof(flags), &route->rt6i_flags);
		if (flags & HAS_GATEWAY)
			bpf_core_read(&gateway, sizeof(gateway), &route->rt6i_gateway);
		else
			__builtin_memcpy(&gateway, flow->destination, sizeof(gateway));
#pragma unroll
		for (int i = 0; i < 4; i++)
			differs |= said->ipv6_dst[i] ^ gateway.in6_u.u6_addr32[i];
	} else {
		const struct rtable *route = (void *)flow->route;
		__be32 gateway = flow->destination[0];
		__u8 family = 0;

		bpf_core_read(&family, sizeof(family), &route->rt_gw_family);
		if (family == AF_INET)
			bpf_core_read(&gateway, sizeof(gateway), &route->rt_gw4);
		/* A gateway of IPv6 is left to the kernel. */
		differs |= family && family != AF_INET;
		differs |= said->family != AF_INET;
		differs |= said->ipv4_dst ^ gateway;
	}
	return !differs;
}

/* Writes the ends of `flow` into the frame, and what was there into `flow`. Returns whether it
 * did, as it always does after `find_flow`. */
static __always_inline int swap_ends(struct xdp_md *ctx, struct flow *flow)
{
	__u16 *check = transport_check(ctx, flow->is_v6, flow->is_udp);
	__be16 *ports = frame_of(ctx) + transport_at(flow->is_v6);
	struct ipv6hdr *ip6 = frame_of(ctx) + sizeof(struct ethhdr);
	struct iphdr *ip = (void *)ip6;
	struct flow was = *flow;

	if (!check || (void *)(ports + 2) > frame_end_of(ctx))
		return 0;
	if (flow->is_v6) {
		if ((void *)(ip6 + 1) > frame_end_of(ctx))
			return 0;
		__builtin_memcpy(was.source, &ip6->saddr, sizeof(was.source));
		__builtin_memcpy(was.destination, &ip6->daddr, sizeof(was.destination));
		__builtin_memcpy(&ip6->saddr, flow->source, sizeof(was.source));
		__builtin_memcpy(&ip6->daddr, flow->destination, sizeof(was.destination));
	} else {
		if ((void *)(ip + 1) > frame_end_of(ctx))
			return 0;
		was.source[0] = ip->saddr;
		was.destination[0] = ip->daddr;
		ip->saddr = flow->source[0];
		ip->daddr = flow->destination[0];
	}
	was.ports[0] = ports[0];
	was.ports[1] = ports[1];
	ports[0] = flow->ports[0];
	ports[1] = flow->ports[1];
	was.check = *check;
	*check = flow->check;
	*flow = was;
	return 1;
}

#else

/* Without flows all ends stay. */
struct flow {};

static __always_inline int find_flow(void *ctx, struct bpf_fib_lookup *fib, __u32 is_tagged,
				     __u32 longest, __u16 *check, struct flow *flow)
{
	return ROUTED;
}

static __always_inline int swap_ends(void *ctx, struct flow *flow)
{
	return 1;
}

#endif

#endif
