/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a compressed bitmap of prefixes covers an address. crates/core/sets/src/image.rs and the modules below it say
 * how words are laid out, and have the same look-ups for tests.
 *
 * A bitmap is in adjacent chunks (image.h).
 */
#ifndef BITMAP_H
#define BITMAP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "image.h"

/* IPv4: behind the top, a block with nothing in it. */
#define NO_BLOCK (1 << 16)
/* Bits of half a word of a block. */
#define LEAF_SHIFT 31
#define LIST_IS_IN_SHIFT 30
#define FLIP_BITS 12

/* IPv6: a node, of either. Of what begins with other bits than those it passes over, all is in
 * or nothing. */
#define IS_NODE (1U << 31)
/* Of the 128 bits of an address the top takes 12 and each node at least 6. */
#define NODES_MAX 20

/* The chunks of all bitmaps. The map keeps the name that it has in older versions, so that an
 * upgrade and tools find it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CHUNKS_MAX);
	__type(key, __u32);
	__array(values, struct image_chunk);
} paintings SEC(".maps");

/* Word `at` of the bitmap whose first chunk is `first`, and what is behind it. */
static __always_inline const __u64 *words_at(__u32 first, __u32 at)
{
	return image_words(&paintings, first, at);
}

/* The word of the part `number`. Published last, so what it leads to is there. */
static __always_inline __u64 part_word(__u32 first, __u32 number)
{
	const volatile __u64 *word = words_at(first, number);

	return word ? *word : 0;
}

static __always_inline __u32 bitmap_covers_v4(__u32 first, __u32 address)
{
	__u64 part = part_word(first, address >> 16), offset, full, partial;
	__u64 is_partial, is_leaf, is_in, is_listed;
	__u32 slot = address >> 8 & 63, half, before;
	const __u64 *words;

	offset = part >> 32 >> (address >> 14 & 3) * 8 & 255;
	words = words_at(first, NO_BLOCK + (((__u32)part + (__u32)offset) & (is_zero(offset) - 1)));
	if (!words)
		return 0;
	full = words[0];
	partial = words[1];
	is_partial = partial >> slot & 1;
	before = ones(partial & ((1ULL << slot) - 1));
	/* Even if it is none of the block's: a branch would be unpredictable. */
	half = ((const __u32 *)(words + 2))[before & 63];
	is_leaf = is_partial & half >> LEAF_SHIFT;
	/* One branch, which few addresses take, instead of one for each condition. */
	asm volatile("" : "+r"(is_leaf));
	if (is_leaf) {
		words = words_at(first, half & ~(1U << LEAF_SHIFT));
		return words ? words[address >> 6 & 3] >> (address & 63) & 1 : 0;
	}
	is_in = full >> slot & 1;
	is_listed = (half >> LIST_IS_IN_SHIFT & 1) ^
		    is_zero(((address ^ half) & 255) >> (half >> 8 & 15)) ^
		    is_zero(((address ^ half >> FLIP_BITS) & 255) >> (half >> (FLIP_BITS + 8) & 15));
	return is_in ^ ((is_in ^ is_listed) & is_partial);
}

/* Whether an address is in, of whose flips the cell has a list. A long flip is two words,
 * both of which have to be the address's; of short ones an odd number. */
static __always_inline __u32 is_listed(const __u64 *cell, __u64 high, __u64 low)
{
	__u32 kind = cell[3] >> 32, shifts = cell[3], first, second, third;
	__u64 is_long = kind >> 30 & 1, next = high << 63 | low >> 1;

	next = high ^ ((high ^ next) & -is_long);
	first = is_zero((cell[0] ^ high) >> 1 >> (shifts & 63));
	second = is_zero((cell[1] ^ next) >> 1 >> (shifts >> 8 & 63));
	third = is_zero((cell[2] ^ high) >> 1 >> (shifts >> 16 & 63));
	/* Of two words (a ^ b) ^ (a | b) is a & b. */
	return (kind >> 29 & 1) ^ first ^ second ^ third ^ ((first | second) & is_long);
}

/* The look-up of an address as two words. Bits that led to a cell are shifted out. */
static __always_inline __u32 bitmap_covers_v6(__u32 first, __u64 high, __u64 low)
{
	__u32 at = part_word(first, high >> 52);
	const __u64 *cell;

	/* No cell has these numbers. */
	if (at <= 1)
		return at;
	high = high << 12 | low >> 52;
	low <<= 12;
	for (int i = 0; i <= NODES_MAX; i++) {
		__u32 kind, skip, slot;

		cell = words_at(first, at);
		if (!cell)
			return 0;
		kind = cell[3] >> 32;
		if (!(kind & IS_NODE))
			return is_listed(cell, high, low);
		skip = kind & 63;
		if ((cell[2] ^ high) >> 1 >> (63 - skip))
			return kind >> 29 & 1;
		/* Two shifts, because a shift by 64 bits is undefined. */
		high = high << skip | low >> 1 >> (63 - skip);
		low <<= skip;
		slot = high >> 58;
		if (!(cell[1] >> slot & 1))
			return cell[0] >> slot & 1;
		at = cell[3] + 4 * ones(cell[1] & ((1ULL << slot) - 1));
		high = high << 6 | low >> 58;
		low <<= 6;
	}
	return 0;
}

#endif
