/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where the kernel's routes send a frame, and how it leaves.
 *
 * Two steps. `find_way` decides everything and changes nothing. `take_way` then writes the way into
 * the frame: tag and addresses of the Ethernet header, TTL or hop limit, checksum. So whatever is not
 * routed here goes to the kernel as it arrived, and the kernel routes, answers or drops it.
 *
 * Images of the kernel's plain routes (fib.h) are looked into first. They answer as the kernel
 * would, or not at all.
 *
 * The kernel's look-up (`bpf_fib_lookup`) knows routes, rules, neighbours and MTUs. It does not
 * check what the kernel checks in front of its own look-up: addresses that no router forwards, own
 * addresses as sources, and the way back to a source (`rp_filter`, which exists for IPv4 only).
 * That is done here. What the kernel's look-up refuses, it refuses for a reason that the kernel
 * tells the sender; so the kernel gets the frame. Only a blackhole route says nothing, and drops
 * here.
 *
 * Source: net/ipv4/route.c, net/ipv4/fib_frontend.c, net/ipv6/ip6_input.c, net/ipv6/ip6_output.c,
 * net/core/filter.c; RFC 1141, 1812, 8200.
 *
 * *VLANs.* A VLAN of a port is a device of its own to the kernel: it has its own settings, addresses
 * and routes. A frame arrives at a VLAN by its tag, and leaves with the tag of the VLAN where the
 * route leads; with priority 0, which is the kernel's default. What user space does not name here is
 * the kernel's.
 *
 * *Flows.* With FLOWS, only packets of flows in the kernel's flowtable are routed, with the ends that their
 * translation gives them (flow.h). Their first packets have passed the kernel's own checks, also of
 * the way back.
 *
 * Non-goals: several tags, options, multicast, netfilter, IPsec, redirects of ICMP, the checksum of a
 * header that arrives (it stays as wrong as it was); a strict check of sources whose route has
 * several next hops (the kernel gets what the look-up finds another hop for).
 */
#ifndef ROUTE_H
#define ROUTE_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include "edit.h"
#include "fib.h"
#include "flow.h"
#include "martian.h"
#include "outcomes.h"
#include "put_tag.h"
#include "segments.h"
#include "taken.h"

/* The outcome of a frame that leaves through a port. */
#ifdef FLOWS
#define LEAVES BY_FLOW
#else
#define LEAVES ROUTED
#endif
/* A way has what filters may ask of the route. */
#define TELLS_ROUTE

#define OWN_ADDRESSES_MAX 4096
#define VLANS_MAX 16384

/* "More fragments", or an offset. */
#define FRAGMENT 0x3fff
/* Traffic class and flow label, as the kernel's routes see them. */
#define FLOW_MASK 0x0fffffff

/* How sources of IPv4 are checked: the values of rp_filter. */
enum { UNCHECKED, STRICT, LOOSE };

/* How frames that arrive at a device are routed: at a port, or at a VLAN of one. */
struct ingress {
	__u32 source_check;
	__u32 flags;		/* of the kernel's look-up, for IPv4 */
	__u32 by_image[2];	/* whether images are looked into first: of IPv4 and of IPv6 */
	__u32 ifindex;
	__u8 mac[ETH_ALEN];
	__u16 padding;
	__u32 asks;		/* what filters ask of routes */
};

/* A VLAN of a port. Its tag has no priority. */
struct port_vlan {
	__u32 port;
	struct tag tag;
};

/* Whether any filter asks, and whether one asks for the realm of the source. */
enum { ASKS_ROUTE = 1, ASKS_SOURCE = 2 };

/* IPv4 addresses as ::ffff:a.b.c.d. */
struct address {
	__be32 words[4];
};

/* Made by user space, as are the next three, for all ports: by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct ingress);
} ingresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VLANS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct port_vlan);
	__type(value, struct ingress);
} vlan_ingresses SEC(".maps");

/* Where frames leave that leave through a device, by its index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PORTS_MAX + VLANS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct port_vlan);
} egresses SEC(".maps");

/* The addresses of this box. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWN_ADDRESSES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} own_addresses SEC(".maps");

/* What a frame leaves with. `take_way` leaves here what it arrived with. */
struct way {
	__u32 port;		/* through which it leaves */
	__u32 version;		/* 4 or 6 */
	__u8 addresses[12];	/* of the Ethernet header: destination and source */
	__u16 check;		/* of IPv4 */
	__u8 ttl;
	__u8 is_tagged;		/* whether it arrived with a tag */
	struct tag tag;		/* with which it leaves; its type is 0 for none */
	struct taken taken;	/* what filters ask of the route, */
	__u8 asks;		/* if they do */
	struct flow flow;	/* with FLOWS, the ends */
};

/* What is looked up. */
struct asked {
	struct bpf_fib_lookup fib;
	struct address source;
	const struct ingress *ingress;
	struct tag tag;		/* with which it arrived, without its priority */
	__u32 at;		/* where the packet is in the frame */
	__u32 bytes;		/* of it, as long as the frame is, */
	__u32 longest;		/* and of the longest packet that it stands for */
};

/* Reads ports at `at`, of which `left` bytes are in the packet. A flow's fragments have none, nor
 * has its first, so that all of them take the same of several next hops. */
static __always_inline void read_ports(struct context *ctx, struct asked *asked, __be16 *at,
				       __u32 left)
{
	__u8 protocol = asked->fib.l4_protocol;

	if ((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || left < 4)
		return;
	if ((void *)(at + 2) > data_end_of(ctx))
		return;
	asked->fib.sport = at[0];
	asked->fib.dport = at[1];
}

/* The packet in the frame. The verifier has forgotten that it is near the beginning. */
static __always_inline void *packet_of(struct context *ctx, const struct asked *asked)
{
	__u32 at = asked->at;

	asm volatile("" : "+r"(at));
	return data_of(ctx) + (at & 31);
}

static __always_inline int read_v4(struct context *ctx, struct asked *asked, struct way *way)
{
	struct iphdr *ip = packet_of(ctx, asked);
	__u32 bytes, check;

	if ((void *)(ip + 1) > data_end_of(ctx))
		return SHORT;
	if (ip->version != 4)
		return NOT_IP;
	if (ip->ihl != 5)
		return OPTIONS;
	bytes = bpf_ntohs(ip->tot_len);
	if (bytes < sizeof(*ip) || bytes > asked->bytes)
		return SHORT;
	if (is_martian_v4(ip->saddr) || is_martian_v4(ip->daddr))
		return MARTIAN;
	asked->fib.family = AF_INET;
	asked->fib.tos = ip->tos;
	asked->fib.l4_protocol = ip->protocol;
	asked->fib.ipv4_src = ip->saddr;
	asked->fib.ipv4_dst = ip->daddr;
	asked->source.words[2] = bpf_htonl(0xffff);
	asked->source.words[3] = ip->saddr;
	if (!(ip->frag_off & bpf_htons(FRAGMENT)))
		read_ports(ctx, asked, (__be16 *)(ip + 1), bytes - sizeof(*ip));
	way->version = 4;
	way->ttl = ip->ttl - 1;
	/* The TTL is the upper half of a word. What the word loses, the checksum gains. */
	check = ip->check + bpf_htons(0x0100);
	way->check = check + (check >= 0xffff);
	return ip->ttl <= 1 ? TTL : ROUTED;
}

static __always_inline int read_v6(struct context *ctx, struct asked *asked, struct way *way)
{
	struct ipv6hdr *ip = packet_of(ctx, asked);
	__u32 bytes;

	if ((void *)(ip + 1) > data_end_of(ctx))
		return SHORT;
	if (ip->version != 6)
		return NOT_IP;
	/* Options for each hop. */
	if (ip->nexthdr == 0)
		return OPTIONS;
	bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (bytes > asked->bytes)
		return SHORT;
	asked->fib.family = AF_INET6;
	asked->fib.flowinfo = *(__be32 *)ip & bpf_htonl(FLOW_MASK);
	asked->fib.l4_protocol = ip->nexthdr;
	__builtin_memcpy(asked->fib.ipv6_src, &ip->saddr, 16);
	__builtin_memcpy(asked->fib.ipv6_dst, &ip->daddr, 16);
	if (is_martian_v6(asked->fib.ipv6_src) || is_martian_v6(asked->fib.ipv6_dst))
		return MARTIAN;
	__builtin_memcpy(&asked->source, &ip->saddr, 16);
	read_ports(ctx, asked, (__be16 *)(ip + 1), bytes - sizeof(*ip));
	way->version = 6;
	way->ttl = ip->hop_limit - 1;
	return ip->hop_limit <= 1 ? TTL : ROUTED;
}

/* Whether it is for this box, to which any TTL may come: routing daemons send 1 to each other. */
static __always_inline int is_to_own_address(struct asked *asked)
{
	struct address to = {};

	if (asked->fib.family == AF_INET) {
		to.words[2] = bpf_htonl(0xffff);
		to.words[3] = asked->fib.ipv4_dst;
	} else {
		__builtin_memcpy(&to, asked->fib.ipv6_dst, sizeof(to));
	}
	return bpf_map_lookup_elem(&own_addresses, &to) ? 1 : 0;
}

/* What becomes of a frame of which the look-up says `said`. */
static __always_inline int outcome_of(long said)
{
	switch (said) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return ROUTED;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return BLACKHOLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return UNREACHABLE;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return NOT_FORWARDED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return DISABLED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return TOO_LONG;
	}
	return UNSUPPORTED;
}

#ifndef TCX

/* Where the packet is in a frame that has a tag, or none. */
static __always_inline __u32 behind_tag(int is_tagged)
{
	return sizeof(struct ethhdr) + (is_tagged ? TAG_BYTES : 0);
}

/* Reads the frame's tag, if it has one. Returns the protocol behind it; 0 if it ends before. */
static __always_inline __be16 read_tag(struct xdp_md *ctx, const struct ethhdr *eth,
				       struct tag *tag)
{
	const __be16 *behind = (const void *)(eth + 1);

	if (eth->h_proto != bpf_htons(ETH_P_8021Q) && eth->h_proto != bpf_htons(ETH_P_8021AD))
		return eth->h_proto;
	if ((void *)(behind + 2) > data_end_of(ctx))
		return 0;
	tag->type = eth->h_proto;
	tag->control = behind[0];
	return behind[1];
}

static __always_inline void measure(struct xdp_md *ctx, struct asked *asked)
{
	asked->bytes = asked->longest = size_of(ctx).bytes - asked->at;
}

#else

/* A tag is beside the packet. */
static __always_inline __u32 behind_tag(int is_tagged)
{
	return sizeof(struct ethhdr);
}

static __always_inline __be16 read_tag(struct __sk_buff *ctx, const struct ethhdr *eth,
				       struct tag *tag)
{
	tag->control = tag_beside(ctx, &tag->type);
	return eth->h_proto;
}

static __always_inline void measure(struct __sk_buff *ctx, struct asked *asked)
{
	__u32 segment = ctx->gso_size;
	__u64 headers;

	asked->bytes = asked->longest = ctx->len - asked->at;
	if (segment && segment != BY_PARTS) {
		headers = headers_of(ctx);
		asked->longest = (__u32)headers - (__u32)(headers >> 32) + segment;
	}
}

#endif

/* Whether the source of an IPv4 packet, which is to leave through the device `leaves`, may come in
 * where it did. As in the kernel, rules see the way back: from where the packet would leave. */
static __always_inline int is_plausible(struct context *ctx, struct asked *asked, __u32 leaves)
{
	const struct ingress *ingress = asked->ingress;
	struct iphdr *ip = packet_of(ctx, asked);
	struct bpf_fib_lookup *fib = &asked->fib;
	__be16 sport = fib->sport;
	long said;

	if ((void *)(ip + 1) > data_end_of(ctx))
		return 0;
	fib->family = AF_INET;
	fib->sport = fib->dport;
	fib->dport = sport;
	/* Fits any MTU: 0 would be the length of the frame at tcx. */
	fib->tot_len = 1;
	fib->ifindex = leaves;
	fib->flowinfo = 0;
	fib->tos = ip->tos;
	fib->ipv4_src = ip->daddr;
	fib->ipv4_dst = ip->saddr;
	said = bpf_fib_lookup(ctx, fib, sizeof(*fib), ingress->flags | BPF_FIB_LOOKUP_SKIP_NEIGH);
	if (said != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	return ingress->source_check != STRICT || fib->ifindex == ingress->ifindex;
}

/* Reads `from`, if the kernel does not have to be asked and nobody changes it meanwhile. */
static __always_inline int read_hop(const struct hop *from, struct hop *hop)
{
	const volatile __u64 *how = &from->how;

	hop->how = *how;
	if (!(hop->how & HOP_IS_KNOWN))
		return 0;
	__builtin_memcpy(hop->addresses, from->addresses, sizeof(hop->addresses));
	hop->tag = from->tag;
	barrier();
	return *how == hop->how;
}

/* Whether an IPv4 packet, to whose source `from` leads, may come in where it did, for all that is
 * known. */
static __always_inline int is_known_from(const struct asked *asked, const struct hop *from)
{
	struct hop hop;

	if (!from || !read_hop(from, &hop))
		return 0;
	return asked->ingress->source_check != STRICT ||
	       ((__u8)(hop.how >> HOP_PORT_SHIFT) == arrives_at && hop.tag.type == asked->tag.type &&
		hop.tag.control == asked->tag.control);
}

/* What filters ask of the route to `hop`, for a packet from where the route to `source` leads: as in
 * the kernel, the route may say both realms itself. */
static __always_inline void tell_taken(struct way *way, const struct hop *hop,
				       const struct hop *source)
{
	__u64 attributes = hop->attributes;

	way->taken.realms = attributes;
	way->taken.metric = attributes >> 32;
	if (source && !(way->taken.realms >> 16))
		way->taken.realms |= (__u32)source->attributes << 16;
}

/* Whether images say that a frame is routed; then that is its way. They know the same as the
 * kernel's look-up, or nothing: then the kernel is asked. They know realms in any case. A source
 * that is checked is no own address if a route leads to it. */
static __always_inline int find_at_once(struct asked *asked, struct way *way)
{
	const struct ingress *ingress = asked->ingress;
	__u32 is_v6 = way->version == 6;
	const struct hop *to, *from = 0;
	struct hop hop;
	__u64 root;

	if (!ingress->by_image[is_v6])
		return 0;
	root = fib_root(is_v6);
	if (!root)
		return 0;
	if (is_v6) {
		const __be64 *words = (const __be64 *)asked->fib.ipv6_dst;

		to = hop_v6(root, bpf_be64_to_cpu(words[0]), bpf_be64_to_cpu(words[1]));
	} else {
		if (ingress->source_check != UNCHECKED || way->asks & ASKS_SOURCE)
			from = hop_v4(root, bpf_ntohl(asked->fib.ipv4_src));
		to = hop_v4(root, bpf_ntohl(asked->fib.ipv4_dst));
	}
	if (!to)
		return 0;
	if (way->asks)
		tell_taken(way, to, way->asks & ASKS_SOURCE ? from : 0);
	if (root & IS_IN_DOUBT)
		return 0;
	if (!is_v6 && ingress->source_check != UNCHECKED && !is_known_from(asked, from))
		return 0;
	if (!read_hop(to, &hop) || asked->longest > (__u32)hop.how)
		return 0;
	way->port = hop.how >> HOP_PORT_SHIFT & 0xff;
	way->tag = hop.tag;
	__builtin_memcpy(way->addresses, hop.addresses, sizeof(way->addresses));
	return 1;
}

static __always_inline int is_to(const struct ethhdr *eth, const struct ingress *ingress)
{
	__u8 differs = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		differs |= eth->h_dest[i] ^ ingress->mac[i];
	return !differs;
}

/* What becomes of a frame that has a way; `said` is what the kernel's look-up says of it, if it was
 * asked. */
static __always_inline int outcome_with(const struct way *way, const struct bpf_fib_lookup *said)
{
#ifdef FLOWS
	const struct port_vlan *egress = bpf_map_lookup_elem(&egresses, &way->flow.device);

	if (!egress)
		return OTHER_PORT;
	if (egress->port != way->port || egress->tag.type || way->tag.type)
		return OTHER_WAY;
	if (said && !is_flows_route(&way->flow, said))
		return OTHER_WAY;
#endif
	return LEAVES;
}

/* Finds the way of a frame, and changes nothing. Returns what becomes of it. */
static __always_inline int find_way(struct context *ctx, struct way *way)
{
	const struct ingress *of_port, *of_vlan;
	struct port_vlan arrives = {}, *egress;
	struct asked asked = {};
	int outcome, checks_source;
	__u32 leaves;
	struct ethhdr *eth;
	__be16 type;
	long said;

	reach_headers(ctx);
	eth = data_of(ctx);
	if ((void *)(eth + 1) > data_end_of(ctx))
		return SHORT;
	arrives.port = arrives_at;
	of_port = bpf_map_lookup_elem(&ingresses, &arrives.port);
	if (!of_port)
		return UNSUPPORTED;
	asked.ingress = of_port;
	type = read_tag(ctx, eth, &arrives.tag);
	way->is_tagged = arrives.tag.type != 0;
	if (way->is_tagged) {
		arrives.tag.control &= bpf_htons(VID_MASK);
		of_vlan = bpf_map_lookup_elem(&vlan_ingresses, &arrives);
		if (!of_vlan)
			return is_to(eth, of_port) ? OTHER_TAG : NOT_FOR_US;
		asked.ingress = of_vlan;
		asked.tag = arrives.tag;
	}
	if (!is_to(eth, asked.ingress))
		return NOT_FOR_US;
	asked.at = behind_tag(way->is_tagged);
	way->asks = asked.ingress->asks;
	measure(ctx, &asked);
	if (type == bpf_htons(ETH_P_IP))
		outcome = read_v4(ctx, &asked, way);
	else if (type == bpf_htons(ETH_P_IPV6))
		outcome = read_v6(ctx, &asked, way);
	else
		outcome = NOT_IP;
	if (outcome == TTL && is_to_own_address(&asked))
		return NOT_FORWARDED;
	if (outcome == ROUTED)
		outcome = find_flow(ctx, &asked.fib, way->is_tagged, asked.longest, &way->check,
				    &way->flow);
	if (outcome != ROUTED)
		return outcome;
	/* A source that an image is asked for is none of this box's if a route leads to it. */
	checks_source = way->version == 4 && asked.ingress->source_check != UNCHECKED;
	if (!checks_source && bpf_map_lookup_elem(&own_addresses, &asked.source))
		return OWN_SOURCE;
	if (find_at_once(&asked, way))
		return outcome_with(way, 0);
	if (checks_source && bpf_map_lookup_elem(&own_addresses, &asked.source))
		return OWN_SOURCE;
	/* All of the frame, also what its headers do not claim: no device takes more. */
	if (asked.longest > 0xffff)
		return TOO_LONG;
	asked.fib.tot_len = asked.longest;
	asked.fib.ifindex = asked.ingress->ifindex;
	/* IPv6 has local addresses in a table of their own: one table is never enough. */
	said = bpf_fib_lookup(ctx, &asked.fib, sizeof(asked.fib),
			      way->version == 4 ? asked.ingress->flags : 0);
	outcome = outcome_of(said);
	if (outcome != ROUTED)
		return outcome;
	way->taken.metric = asked.fib.rt_metric;
	leaves = asked.fib.ifindex;
	egress = bpf_map_lookup_elem(&egresses, &leaves);
	if (!egress)
		return OTHER_PORT;
	way->port = egress->port;
	way->tag = egress->tag;
	__builtin_memcpy(way->addresses, asked.fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->addresses + ETH_ALEN, asked.fib.smac, ETH_ALEN);
	if (checks_source && !is_plausible(ctx, &asked, leaves))
		return BAD_SOURCE;
	return outcome_with(way, &asked.fib);
}

/* Writes `way` into the frame, and what was there into `way`: done twice, it changes nothing.
 * Returns whether it did; if not, the frame is as it was. */
static __always_inline int take_way(struct context *ctx, struct way *way)
{
	struct way was = *way;
	struct ipv6hdr *ip6;
	struct ethhdr *eth;
	struct iphdr *ip;
	__u32 at;

	if (!swap_ends(ctx, &was.flow) || !put_tag(ctx, way->is_tagged, &was.tag))
		return 0;
	was.is_tagged = way->tag.type != 0;
	at = behind_tag(was.is_tagged);
	eth = data_of(ctx);
	ip = data_of(ctx) + at;
	ip6 = (void *)ip;
	/* The shorter one of the two. It is there, since `find_way` has seen it. */
	if ((void *)(ip + 1) > data_end_of(ctx) || (void *)(eth + 1) > data_end_of(ctx))
		return 0;
	__builtin_memcpy(was.addresses, eth, 2 * ETH_ALEN);
	if (way->version == 4) {
		was.ttl = ip->ttl;
		was.check = ip->check;
		put_word(ctx, at + offsetof(struct iphdr, check), &ip->check, way->check);
		put_byte(ctx, at + offsetof(struct iphdr, ttl), &ip->ttl, way->ttl);
	} else {
		was.ttl = ip6->hop_limit;
		put_byte(ctx, at + offsetof(struct ipv6hdr, hop_limit), &ip6->hop_limit, way->ttl);
	}
	put_addresses(ctx, eth, way->addresses);
	*way = was;
	return 1;
}

#endif
