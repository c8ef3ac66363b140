/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The class of a frame: headers become a key, and the key is looked up under each mask that
 * rules use (tuple-space search), masks with the best rules first, until no later mask can have
 * a better one.
 *
 * Most masks have no rule for a given packet. A sieve excludes them without a look-up: for some
 * bytes of the key, a word with a bit for each mask that has a rule which may match the byte's
 * value. Only masks in the intersection of these words are looked up.
 *
 * Where qdiscs with classes are in classes, or classes have filters, a look-up yields a *scope*, in
 * which the search goes on. Scopes share the masks and the table: a rule's key says of which scope
 * it is, and each scope has a bit for each mask that its rules use.
 *
 * Rules are in an open-addressed table of slots, laid out by user space: each rule is at its
 * hash's slot or shortly behind it, with no empty slot in between.
 *
 * Sources: V. Srinivasan et al., Packet classification using tuple space search; T. V.
 * Lakshman, D. Stiliadis, High-speed policy-based packet forwarding (the bit vectors).
 *
 * Headers are read as in crates/core/packet/src/dissect. What few packets have is read by
 * packet.h, at the cost of a second look at these: more than a few tags, MPLS, PPPoE, extension
 * headers, and lengths that leave no room for ports.
 */
#ifndef FIND_CLASS_H
#define FIND_CLASS_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include "frame.h"
#include "tree.h"

#define TAGS_MAX 4
#define PORTS_BYTES 4

/* In the place of a rule: none, which is behind all others. */
#define NONE (~0ULL)

/* Where the IP header of a frame is. */
struct network {
	__u16 at;
	__u8 ip;			/* 4, 6, or 0 for none */
	__u8 is_rare;			/* there is more than read_headers() reads */
};

static __always_inline int is_tag(__be16 ether_type)
{
	return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD) ||
	       ether_type == bpf_htons(ETH_P_QINQ1);
}

static __always_inline int has_ports(__u8 protocol)
{
	/* TCP, UDP, DCCP, SCTP, UDP-Lite */
	return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 ||
	       protocol == 136;
}

/* Whether a header comes before what the packet carries: extensions, and authentication. */
static __always_inline int is_before(__u8 protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 60 || protocol == 135 ||
	       protocol == 44 || protocol == IPPROTO_AH;
}

/* Reads the ports at `at`, for which a packet has room if it is not short. */
static __always_inline void read_ports(struct key *key, struct network *network, void *at,
				       int is_short, void *data_end)
{
	__be16 *ports = at;

	if (!has_ports(key->protocol)) {
		network->is_rare = is_before(key->protocol);
		return;
	}
	if ((void *)(ports + 2) > data_end)
		return;
	network->is_rare = is_short;
	key->source_port = ports[0];
	key->destination_port = ports[1];
	key->has = 1;
}

static __always_inline void read_v4(struct key *key, struct network *network, void *at,
				    void *data_end)
{
	struct iphdr *ip = at;
	int is_short;

	if ((void *)(ip + 1) > data_end || ip->version != 4 || ip->ihl < 5)
		return;
	network->ip = key->ip = 4;
	key->traffic_class = ip->tos;
	key->protocol = ip->protocol;
	__builtin_memcpy(key->source + 12, &ip->saddr, 4);
	__builtin_memcpy(key->destination + 12, &ip->daddr, 4);
	if (ip->frag_off & bpf_htons(0x3fff))
		return;
	/* A length that has no room for the header itself is wrong, and does not count. */
	is_short = (__u32)bpf_ntohs(ip->tot_len) - ip->ihl * 4 < PORTS_BYTES;
	read_ports(key, network, at + ip->ihl * 4, is_short, data_end);
}

static __always_inline void read_v6(struct key *key, struct network *network, void *at,
				    void *data_end)
{
	struct ipv6hdr *ip = at;
	int is_short;

	if ((void *)(ip + 1) > data_end || ip->version != 6)
		return;
	network->ip = key->ip = 6;
	key->traffic_class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	key->protocol = ip->nexthdr;
	__builtin_memcpy(key->source, &ip->saddr, 16);
	__builtin_memcpy(key->destination, &ip->daddr, 16);
	/* The length of a jumbogram is 0. */
	is_short = (__u32)bpf_ntohs(ip->payload_len) - 1 < PORTS_BYTES - 1;
	read_ports(key, network, at + sizeof(*ip), is_short, data_end);
}

/* Reads the headers of a packet that begins with that of IP. */
static __always_inline void read_headerless(struct key *key, struct network *network, void *data,
					    void *data_end)
{
	__u8 *first = data;

	if ((void *)(first + 1) > data_end)
		return;
	key->ether_type = type_by_version(*first);
	if (*first >> 4 == 4)
		read_v4(key, network, data, data_end);
	else if (*first >> 4 == 6)
		read_v6(key, network, data, data_end);
}

/* Reads the headers of the frame from `data` on into a key. */
static __always_inline void read_headers(struct key *key, struct network *network, void *data,
					 void *data_end)
{
	struct ethhdr *eth = data;
	__u16 at = sizeof(*eth);
	__be16 ether_type;

	if (headerless) {
		read_headerless(key, network, data, data_end);
		return;
	}
	if ((void *)(eth + 1) > data_end)
		return;
	ether_type = eth->h_proto;
#pragma unroll
	for (int i = 0; i < TAGS_MAX; i++) {
		if (!is_tag(ether_type) || data + at + 4 > data_end)
			break;
		ether_type = *(__be16 *)(data + at + 2);
		at += 4;
	}
	network->at = at;
	/* Below 1536 it is a length: the rule of eth_type_trans() in the kernel. */
	key->ether_type = ether_type;
	if (bpf_ntohs(ether_type) < 1536)
		key->ether_type = data + at + 2 <= data_end && *(__be16 *)(data + at) == 0xffff ?
					  bpf_htons(ETH_P_802_3) :
					  bpf_htons(ETH_P_802_2);
	if (ether_type == bpf_htons(ETH_P_IP))
		read_v4(key, network, data + at, data_end);
	else if (ether_type == bpf_htons(ETH_P_IPV6))
		read_v6(key, network, data + at, data_end);
	else if (is_tag(ether_type) || ether_type == bpf_htons(ETH_P_QINQ2) ||
		 ether_type == bpf_htons(ETH_P_MPLS_UC) ||
		 ether_type == bpf_htons(ETH_P_MPLS_MC) || ether_type == bpf_htons(ETH_P_PPP_SES))
		network->is_rare = 1;
}

/* The priority that a router derives from the TOS byte: rt_tos2priority() of the kernel. */
static __always_inline __u32 priority(__u8 traffic_class)
{
	__u32 is_fast = traffic_class & 0x10, is_bulk = traffic_class & 0x08;

	return is_fast ? (is_bulk ? 4 : 6) : (is_bulk ? 2 : 0);
}

/* The lowest bit by what it is multiplied to: a sequence in which each five bits occur once.
 * BPF has no instruction for it. */
const __u8 lowest_bit[32] SEC(".rodata") = {
	0,  1,	28, 2,	29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4,  8,
	31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6,  11, 5,  10, 9
};

/* The index of the lowest set bit of `bits`, which is not 0. */
static __always_inline __u32 lowest(__u32 bits)
{
	return lowest_bit[((bits & -bits) * 0x077cb531U) >> 27 & 31];
}

/* The slot of a key: the upper bits of a sum of products. src/tree/table.rs does the same. */
static __always_inline __u64 hash(const struct key *key)
{
	return key->words[0] * 0x9e3779b97f4a7c15ULL + key->words[1] * 0xbf58476d1ce4e5b9ULL +
	       key->words[2] * 0x94d049bb133111ebULL + key->words[3] * 0xd6e8feb86659fd93ULL +
	       key->words[4] * 0xa0761d6478bd642fULL + key->words[5] * 0xe7037ed1a0b428dbULL;
}

/* The rule for exactly `key`: rank and class, or 0. */
static __always_inline __u64 find_slot(void *slots, __u32 shift, const struct key *key)
{
	__u32 at = hash(key) >> (shift & 63);

	for (int probe = 0; probe < PROBES_MAX; probe++, at++) {
		const struct slot *slot = bpf_map_lookup_elem(slots, &at);
		__u64 differs = 0;

		if (!slot || !slot->rule)
			return 0;
#pragma unroll
		for (int word = 0; word < 6; word++)
			differs |= slot->key.words[word] ^ key->words[word];
		if (!differs)
			return slot->rule;
	}
	return 0;
}

/* The rule for `key` of a scope and under a mask: rank and class, or 0. */
__noinline __u64 find_rule(__u32 number, __u32 scope_and_mask, struct key *key)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);
	void *slots = bpf_map_lookup_elem(&rules, &number);
	__u32 i = scope_and_mask & ((1 << SCOPE_SHIFT) - 1);
	struct key masked;

	if (!plan || !slots || !key || i >= MASKS_MAX)
		return 0;
#pragma unroll
	for (int word = 0; word < 6; word++)
		masked.words[word] = key->words[word] & plan->by[i].bits.words[word];
	masked.mask = scope_and_mask;
	return find_slot(slots, plan->shift, &masked);
}

/* The best rule for `key` in the scope `at`: rank and class or scope, or NONE. */
static __always_inline __u64 best_rule(__u32 number, struct plan *plan, const struct scope *scope,
				       __u32 at, struct key *key)
{
	__u64 best = NONE;
	__u32 left = scope->masks;

	for (__u32 i = 0; i < SIEVES_MAX && i < plan->sieves && left; i++) {
		__u32 byte = plan->sieve[i], index;
		const __u32 *may;

		if (byte >= KEY_BYTES)
			break;
		index = (number * KEY_BYTES + byte) * 256 + key->bytes[byte];
		may = bpf_map_lookup_elem(&sieves, &index);
		if (may)
			left &= *may;
	}
	for (__u32 i = 0; i < MASKS_MAX && left; i++) {
		__u32 mask = lowest(left);
		__u64 rule;

		if (plan->by[mask & (MASKS_MAX - 1)].first > best >> 32)
			break;
		left &= left - 1;
		rule = find_rule(number, at << SCOPE_SHIFT | mask, key);
		if (rule && rule < best)
			best = rule;
	}
	return best;
}

/* The class, or scope, of what `key` says in the scope `at`, and of `priority` where no rule says
 * one. */
static __always_inline __u32 find_in(__u32 number, struct plan *plan, const struct scope *scope,
				     __u32 at, struct key *key, __u32 priority)
{
	__u64 best = best_rule(number, plan, scope, at, key);

	return best == NONE ? scope->otherwise[priority & 15] : (__u32)best;
}

/* The class or scope that the priority `name` names, under the plan `number`; else `unknown`. */
__noinline __u32 find_named(__u32 number, __u32 name, __u32 unknown)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);
	void *slots = bpf_map_lookup_elem(&rules, &number);
	struct key key = {};
	__u64 rule;

	if (!plan || !slots)
		return NOWHERE;
	key.mark = name;
	key.mask = BY_NAME;
	rule = find_slot(slots, plan->shift, &key);
	return rule ? (__u32)rule : unknown;
}

/* As for the kernel's qdiscs, a class of theirs that is named comes before any filter. */
static __always_inline int is_named(const struct scope *scope, __u32 set)
{
	return scope->major && scope->major == set >> 16 && (__u16)set;
}

static __always_inline int is_scope(__u32 class)
{
	return class & SCOPE && class < RARE;
}

/* The priority of a packet: `set`, or else by its headers. A class of another qdisc is no
 * priority. */
static __always_inline __u32 priority_of(__u8 traffic_class, __u32 set)
{
	return !set ? priority(traffic_class) : set >> 16 ? 0 : set;
}

/* The class, or scope, of what `key` says in the outermost scope. A global function, as are those
 * that call it: the verifier looks at each by itself, not once for each way that leads to it. */
__noinline __u32 find_class(__u32 number, struct key *key, __u32 priority)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);

	if (!plan || !key)
		return NOWHERE;
	return find_in(number, plan, &plan->outermost, 0, key, priority);
}

/* The same in the scope `at`; `set` may name a class there. */
__noinline __u32 find_at(__u32 number, __u32 at, struct key *key, __u32 priority, __u32 set)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);
	__u32 index = number * SCOPES_MAX + (at & (SCOPES_MAX - 1));
	const struct scope *scope = bpf_map_lookup_elem(&scopes, &index);

	if (!plan || !scope || !key)
		return NOWHERE;
	if (is_named(scope, set))
		return find_named(number, set, scope->unknown);
	return find_in(number, plan, scope, at & (SCOPES_MAX - 1), key, priority);
}

/* The class that scopes find from `at` on, each within the one before. */
__noinline __u32 find_within(__u32 number, __u32 at, struct key *key, __u32 priority, __u32 set)
{
	if (!key)
		return NOWHERE;
	for (int i = 0; i < SCOPES_DEEP && is_scope(at); i++)
		at = find_at(number, at, key, priority, set);
	return is_scope(at) ? NOWHERE : at;
}

/* The class of a frame under the plan `number`; RARE if this does not read all of its headers. */
__noinline __u32 classify(struct context *ctx, __u32 number)
{
	struct network network = {};
	struct key key = {};
	__u32 class, prio;

	read_headers(&key, &network, data_of(ctx), data_end_of(ctx));
	if (network.is_rare)
		return RARE;
	prio = priority(key.traffic_class);
	class = find_class(number, &key, prio);
	return is_scope(class) ? find_within(number, class, &key, prio, 0) : class;
}

/* The same for a frame of which filters in front have set `mark` and `set`, its priority. */
__noinline __u32 classify_edited(struct context *ctx, __u32 number, __u32 mark, __u32 set)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);
	struct network network = {};
	struct key key = {};
	__u32 class = NOWHERE, prio;
	int named;

	if (!plan)
		return NOWHERE;
	named = is_named(&plan->outermost, set);
	if (named) {
		class = find_named(number, set, plan->outermost.unknown);
		if (!is_scope(class))
			return class;
	}
	read_headers(&key, &network, data_of(ctx), data_end_of(ctx));
	if (network.is_rare)
		return RARE;
	key.mark = mark;
	prio = priority_of(key.traffic_class, set);
	if (!named)
		class = find_class(number, &key, prio);
	return is_scope(class) ? find_within(number, class, &key, prio, set) : class;
}

#endif
