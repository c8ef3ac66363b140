/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether an address is painted. crates/sets/src/image.rs and the modules below it say
 * how cells are laid out, and have the same look-ups for tests.
 */
#ifndef PAINTING_H
#define PAINTING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct cell {
	__u32 words[8];
};

/* A node, of either. Of what begins with other bits than those it passes over, all is in
 * or nothing. */
#define IS_NODE (1U << 31)
#define IS_IN (1U << 29)

/* A dense block of IPv4; without it, a sparse one. */
#define IS_DENSE (1U << 31)
/* In a sparse one: addresses without a flip are in the set; a word that is a flip. */
#define IS_AROUND (1U << 31)
#define IS_USED (1U << 30)
#define SPARSE_MAX 8

/* A cell of IPv6 that is no node has one long flip; without this, up to three short ones. */
#define IS_LONG (1U << 30)
/* Of the 128 bits of an address the top takes 12 and each node at least 6. */
#define NODES_MAX 20

/* How many bits are set. */
static __always_inline __u32 ones(__u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

/* 1 if a word of at most 63 bits is 0. Branch-free: a branch would be unpredictable. */
static __always_inline __u32 is_zero(__u64 word)
{
	word -= 1;
	/* Hides the value, so that the compiler makes no branch of it. */
	asm volatile("" : "+r"(word));
	return word >> 63;
}

static __always_inline __u64 wide(const struct cell *cell, int at)
{
	return *(const __u64 *)&cell->words[at];
}

/* The top's entry of the part `number`: 0 for nothing, 1 for all, or a cell. */
static __always_inline __u32 part_entry(void *painting, __u32 number)
{
	__u32 at = number >> 3;
	const struct cell *cell = bpf_map_lookup_elem(painting, &at);

	/* Published last, so the cells that it leads to are there. */
	return cell ? *(const volatile __u32 *)&cell->words[number & 7] : 0;
}

/* A node's entry of a slot: 0 or 1, or a cell. No cell has these numbers. */
static __always_inline __u32 slot_entry(const struct cell *node, __u32 slot)
{
	__u64 partial = wide(node, 2);

	if (!(partial >> slot & 1))
		return wide(node, 0) >> slot & 1;
	return node->words[6] + ones(partial & ((1ULL << slot) - 1));
}

static __always_inline __u32 is_painted_v4(void *painting, __u32 address)
{
	__u32 entry = part_entry(painting, address >> 20), slot = address >> 8 & 63, is_in;
	const struct cell *cell;
	__u64 partial;

	if (entry <= 1)
		return entry;
	cell = bpf_map_lookup_elem(painting, &entry);
	if (!cell)
		return 0;
	entry = slot_entry(cell, address >> 14 & 63);
	if (entry <= 1)
		return entry;
	cell = bpf_map_lookup_elem(painting, &entry);
	if (!cell)
		return 0;
	if (!(cell->words[7] & IS_DENSE)) {
		is_in = cell->words[0] >> 31;
#pragma unroll
		for (int i = 0; i < SPARSE_MAX; i++) {
			__u32 flip = cell->words[i];

			if (!(flip & IS_USED))
				break;
			is_in ^= is_zero(((address ^ flip >> 8) & 0x3fff) >> (flip & 15));
		}
		return is_in;
	}
	partial = wide(cell, 2);
	if (!(partial >> slot & 1))
		return wide(cell, 0) >> slot & 1;
	entry = cell->words[4] + ones(partial & ((1ULL << slot) - 1));
	cell = bpf_map_lookup_elem(painting, &entry);
	return cell ? cell->words[address >> 5 & 7] >> (address & 31) & 1 : 0;
}

/* Whether an address is in, of whose flips the cell has a list. A long flip is two words,
 * both of which have to be the address's; of short ones an odd number. */
static __always_inline __u32 is_listed(const struct cell *cell, __u64 high, __u64 low)
{
	__u32 kind = cell->words[7], shifts = cell->words[6], first, second, third;
	__u64 is_long = kind >> 30 & 1, next = high << 63 | low >> 1;

	next = high ^ ((high ^ next) & -is_long);
	first = is_zero((wide(cell, 0) ^ high) >> 1 >> (shifts & 63));
	second = is_zero((wide(cell, 2) ^ next) >> 1 >> (shifts >> 8 & 63));
	third = is_zero((wide(cell, 4) ^ high) >> 1 >> (shifts >> 16 & 63));
	/* Of two words (a ^ b) ^ (a | b) is a & b. */
	return (kind >> 29 & 1) ^ first ^ second ^ third ^ ((first | second) & is_long);
}

/* The look-up of an address as two words. Bits that led to a cell are shifted out. */
static __always_inline __u32 is_painted_v6(void *painting, __u64 high, __u64 low)
{
	__u32 entry = part_entry(painting, high >> 52);

	if (entry <= 1)
		return entry;
	high = high << 12 | low >> 52;
	low <<= 12;
	for (int i = 0; i <= NODES_MAX; i++) {
		const struct cell *cell = bpf_map_lookup_elem(painting, &entry);
		__u32 kind, skip;

		if (!cell)
			return 0;
		kind = cell->words[7];
		if (!(kind & IS_NODE))
			return is_listed(cell, high, low);
		skip = kind & 63;
		if ((wide(cell, 4) ^ high) >> 1 >> (63 - skip))
			return kind >> 29 & 1;
		/* Two shifts, because a shift by 64 bits is undefined. */
		high = high << skip | low >> 1 >> (63 - skip);
		low <<= skip;
		entry = slot_entry(cell, high >> 58);
		if (entry <= 1)
			return entry;
		high = high << 6 | low >> 58;
		low <<= 6;
	}
	return 0;
}

#endif
