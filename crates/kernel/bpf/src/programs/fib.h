/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The kernel's routes as an image, and next hops by number. crates/core/routes says what is in
 * them, and has the same look-up for tests.
 *
 * The longest prefix of an address gives a number, and that a next hop. Where there is none, the
 * kernel has to be asked. User space writes a next hop before the image leads to it. The realms of
 * a route are there also where the kernel is asked for the way.
 *
 * Non-goals: rules, several next hops for a route.
 */
#ifndef FIB_H
#define FIB_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "image.h"
#include "vlan.h"

#define HOPS_MAX (1 << 16)
/* Numbers: what no other prefix covers. Of IPv6 the next one. */
#define DEFAULT_ROUTE 0
/* In half a word of a part. */
#define PART_IS_NODE (1U << 31)
/* Of the 32 bits of an address the top takes at least 18, of 128 at least 12, and each node 6. */
#define NODES_MAX_V4 3
#define NODES_MAX_V6 20

/* Of IPv6: the bits that the first read takes, and the most fields on the way of an address. Of an
 * entry: it is a node, a field, or else one prefix; how many bits say the part, or are the
 * prefix's. */
#define FIRST_BITS_V6 12
#define FIELDS_MAX 4
#define IS_NODE_V6 (1ULL << 38)
#define IS_FIELD (1ULL << 37)
#define BITS_SHIFT 32
#define BITS_MASK 31

/* In the third word of a node. */
#define LISTED_HERE (1 << 6)
#define SKIP_MASK (LISTED_HERE - 1)

/* In the upper half of a root: the image may be behind the kernel's routes, so that it tells no ways,
 * but what it knows of realms. */
#define IS_IN_DOUBT (1ULL << 63)

/* In the first word of a next hop, besides the MTU, and 16 bits that count its changes. */
#define HOP_IS_KNOWN (1ULL << 63)
#define HOP_PORT_SHIFT 32

/* Made by user space, as are the next two: of the images of IPv4 and of IPv6 the first chunk, and
 * one more, and in the upper half the bits of an address that the first read takes. 0 if there is
 * none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} fib_roots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CHUNKS_MAX);
	__type(key, __u32);
	__array(values, struct image_chunk);
} fib_chunks SEC(".maps");

struct hop {
	__u64 how;		/* HOP_IS_KNOWN, changes, the port, and the MTU */
	__u8 addresses[12];	/* of the Ethernet header: destination and source */
	struct tag tag;		/* without a priority; its type is 0 for none */
	__u64 attributes;	/* of the routes: realms, and above them the metric */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOPS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hop);
} fib_hops SEC(".maps");

/* The number with that index in a node's list, which is in `last` or elsewhere. */
static __always_inline __u32 listed_number(__u32 first, __u64 kind, __u64 last, __u32 index)
{
	const __u64 *words;

	if (!(kind & LISTED_HERE)) {
		words = image_words(&fib_chunks, first, (last >> 32) + index / 4);
		if (!words)
			return DEFAULT_ROUTE;
		last = *words;
	}
	return last << (index & 3) * 16 >> 48;
}

/* A step of a look-up: the node at `at` answers for the bits `high`, which come behind those that
 * led to it. Returns the number, or NEXT_NODE, with `at` as the next node's, and how many bits
 * were read in `read`. */
#define NEXT_NODE (1U << 16)

static __always_inline __u32 step(__u32 first, __u32 *at, __u64 high, __u32 *read)
{
	const __u64 *node = image_words(&fib_chunks, first, *at);
	__u64 partial, starts, kind, last;
	__u32 skip, slot;

	if (!node)
		return DEFAULT_ROUTE;
	partial = node[0];
	starts = node[1];
	kind = node[2];
	last = node[3];
	skip = kind & SKIP_MASK;
	if ((kind ^ high) >> 1 >> (63 - skip))
		return listed_number(first, kind, last, 0);
	slot = high << skip >> 58;
	if (!(partial >> slot & 1))
		/* All bits up to that of the slot. */
		return listed_number(first, kind, last, ones(starts & ((2ULL << slot) - 1)));
	*at = (__u32)last + 4 * ones(partial & ((1ULL << slot) - 1));
	*read = skip + 6;
	return NEXT_NODE;
}

/* The half word of a part of IPv4. Published last, so what it leads to is there. */
static __always_inline __u32 half_of(__u32 first, __u32 part)
{
	const volatile __u64 *word = image_words(&fib_chunks, first, part / 2);

	return word ? *word >> (part & 1) * 32 : DEFAULT_ROUTE;
}

/* The same of IPv6: a word. */
static __always_inline __u64 entry_of(__u32 first, __u32 part)
{
	const volatile __u64 *word = image_words(&fib_chunks, first, part);

	return word ? *word : DEFAULT_ROUTE;
}

static __always_inline __u32 number_v4(__u64 root, __u32 address)
{
	__u32 first = root - 1, bits = root >> 32 & 31, number, read = 0;
	__u32 at = half_of(first, (__u64)address << bits >> 32);
	__u64 high = (__u64)address << 32 << bits;

	if (!(at & PART_IS_NODE))
		return at;
	at &= ~PART_IS_NODE;
	for (int i = 0; i < NODES_MAX_V4; i++) {
		number = step(first, &at, high, &read);
		if (number != NEXT_NODE)
			return number;
		high <<= read & 63;
	}
	return DEFAULT_ROUTE;
}

/* A global function: the verifier looks at it by itself. */
__noinline __u32 number_v6(__u64 root, __u64 high, __u64 low)
{
	__u32 first = root - 1, bits, number, read = 0, at;
	__u64 entry = entry_of(first, high >> (64 - FIRST_BITS_V6)), others;

	high = high << FIRST_BITS_V6 | low >> (64 - FIRST_BITS_V6);
	low <<= FIRST_BITS_V6;
	for (int i = 1; i < FIELDS_MAX && entry & IS_FIELD; i++) {
		/* At least 1, so that no shift is by 64. */
		bits = entry >> BITS_SHIFT & BITS_MASK;
		entry = entry_of(first, (__u32)entry + (__u32)(high >> 1 >> (63 - bits)));
		high = high << bits | low >> 1 >> (63 - bits);
		low <<= bits;
	}
	if (!(entry & IS_NODE_V6)) {
		/* 0 if the address is in the prefix. */
		others = (high ^ entry) >> 1 >> (63 - (entry >> BITS_SHIFT & BITS_MASK));
		/* No branch: it would be unpredictable. */
		return (__u16)(entry >> (is_zero(others) << 4));
	}
	at = entry;
	for (int i = 0; i < NODES_MAX_V6; i++) {
		number = step(first, &at, high, &read);
		if (number != NEXT_NODE)
			return number;
		read &= 63;
		/* At least 6 of them, so that no shift is by 64. */
		high = high << read | low >> 1 >> (63 - read);
		low <<= read;
	}
	return DEFAULT_ROUTE;
}

/* What leads to an image; 0 if there is none. */
static __always_inline __u64 fib_root(__u32 is_v6)
{
	const volatile __u64 *root = bpf_map_lookup_elem(&fib_roots, &is_v6);

	return root ? *root : 0;
}

static __always_inline const struct hop *hop_v4(__u64 root, __u32 address)
{
	__u32 number = number_v4(root, address);

	return bpf_map_lookup_elem(&fib_hops, &number);
}

static __always_inline const struct hop *hop_v6(__u64 root, __u64 high, __u64 low)
{
	__u32 number = number_v6(root, high, low);

	number += !number;
	return bpf_map_lookup_elem(&fib_hops, &number);
}

#endif
