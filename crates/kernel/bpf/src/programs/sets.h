/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a packet is in a set.
 *
 * Sets are numbered. One word leads from a set to its contents, so writing two words swaps two
 * sets, and a look-up sees one's contents or the other's.
 *
 * These are a bitmap of the set's prefixes (crates/core/sets/src/image.rs, bitmap.h), which
 * answers in a few reads whether an address is in the set. If that is not enough (ports,
 * counters by member), the members are in a hash, too, a table, and are looked up length by
 * length, the longest first; the bitmap excludes addresses without a member.
 *
 * User space makes the maps, one of each for both ports, and changes them while they
 * are read. It writes members before the word that leads to them, and removes that word before
 * them.
 */
#ifndef SETS_H
#define SETS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "packet.h"
#include "bitmap.h"

#define SETS_MAX 64
/* Room for contents that replace others. */
#define TABLES_MAX 128

/* A set's word: the number of its table, how it is looked up, whether of what, and the first chunk
 * of its bitmap. 0 for none. */
#define TABLE_MASK 0xff
#define MODE_SHIFT 8
#define MODE_MASK (0xff << MODE_SHIFT)
#define IS_V6 (1 << 16)
#define HAS_PORTS (1 << 17)
#define FIRST_SHIFT 32

/* How a set is looked up. */
enum mode {
	NOTHING,	/* it is empty */
	BITMAP,		/* the bitmap is enough */
	WALKED,		/* members are looked up if the bitmap covers the address */
	ETHERNET,	/* members are Ethernet addresses */
};

struct table {
	/* The lengths of members that are in the hash: bit n for n + 1 bits. */
	__u64 lengths[2];
	/* Whether members count. */
	__u64 counts;
	__u64 reserved;
};

struct element_key {
	__be64 address[2];
	__u8 len;
	__u8 protocol;
	__be16 port;
} __attribute__((packed, aligned(4)));

struct element {
	__u64 packets;
	__u64 bytes;
	__u64 is_exception;
};

/* Which address of a packet is looked up, and which port. */
#define LOOK_UP 1
#define BY_DESTINATION 2
#define BY_DESTINATION_PORT 4

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SETS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} set_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct table);
} tables SEC(".maps");

struct members {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct element_key));
	__uint(value_size, sizeof(struct element));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TABLES_MAX);
	__type(key, __u32);
	__array(values, struct members);
} members SEC(".maps");

/* The number of the highest bit of a word that is not 0. Without a branch: the verifier
 * would go each way for each member that is looked up. */
static __always_inline __u32 highest(__u64 word)
{
#pragma unroll
	for (int half = 1; half < 64; half *= 2)
		word |= word >> half;
	return (ones(word) - 1) & 63;
}

/* What a member says: 1 where it is in, 0 where it is an exception, 2 where there is
 * none. */
static __always_inline int member(void *elements, const struct element_key *key, __u32 counts,
				  __u32 packets, __u32 bytes)
{
	struct element *element = bpf_map_lookup_elem(elements, key);

	if (!element)
		return 2;
	if (counts) {
		__sync_fetch_and_add(&element->packets, packets);
		__sync_fetch_and_add(&element->bytes, bytes);
	}
	return !element->is_exception;
}

/* What the longest member of table `number` that covers `whole` says. One that counts
 * counts `packets` and `bytes`. The key is copied, because before Linux 6.2 the verifier takes no
 * argument of a global function as a map's key. */
__noinline int longest_member(__u32 number, const struct element_key *whole, __u32 packets,
			      __u32 bytes)
{
	struct element_key own, *key = &own;
	struct table *table = bpf_map_lookup_elem(&tables, &number);
	void *elements = bpf_map_lookup_elem(&members, &number);
	__u64 lengths, bits;
	__u32 counts, bit;
	int found;

	if (!table || !elements || !whole)
		return 2;
	own = *whole;
	counts = table->counts;
	lengths = table->lengths[1];
	bits = bpf_be64_to_cpu(key->address[1]);
	for (int i = 0; i < 64 && lengths; i++) {
		bit = highest(lengths);
		lengths &= ~(1ULL << bit);
		bits &= ~0ULL << (63 - bit);
		key->address[1] = bpf_cpu_to_be64(bits);
		key->len = 65 + bit;
		found = member(elements, key, counts, packets, bytes);
		if (found != 2)
			return found;
	}
	lengths = table->lengths[0];
	bits = bpf_be64_to_cpu(key->address[0]);
	key->address[1] = 0;
	for (int i = 0; i < 64 && lengths; i++) {
		bit = highest(lengths);
		lengths &= ~(1ULL << bit);
		bits &= ~0ULL << (63 - bit);
		key->address[0] = bpf_cpu_to_be64(bits);
		key->len = 1 + bit;
		found = member(elements, key, counts, packets, bytes);
		if (found != 2)
			return found;
	}
	return 2;
}

/* The word of the set `set`; 0 if there is none. */
static __always_inline __u64 word_of(__u32 set)
{
	const volatile __u64 *word = bpf_map_lookup_elem(&set_words, &set);

	return word ? *word : 0;
}

/* Whether the set with `word` is one of the packet's IP version. */
static __always_inline int is_of_version(__u64 word, const struct packet *packet)
{
	return packet->ip == (word & IS_V6 ? 6 : 4);
}

/* The address of a packet that is looked up. */
static __always_inline const __u8 *address_of(const struct packet *packet, __u32 how)
{
	return how & BY_DESTINATION ? packet->destination : packet->source;
}

/* Whether the bitmap of the set with `word` covers `address`. */
static __always_inline __u32 bitmap_covers(__u64 word, const __u8 *address)
{
	__u32 first = word >> FIRST_SHIFT;

	if (word & IS_V6)
		return bitmap_covers_v6(first, bpf_be64_to_cpu(((const __be64 *)address)[0]),
					bpf_be64_to_cpu(((const __be64 *)address)[1]));
	return bitmap_covers_v4(first, bpf_ntohl(*(const __be32 *)address));
}

/* Whether `key` is in the table of the set with `word`; counts `packet` for it. */
static __always_inline int is_member(__u64 word, const struct element_key *key,
				     const struct packet *packet)
{
	return longest_member(word & TABLE_MASK, key, packets_of(packet), packet->bytes) == 1;
}

/* Whether `packet` is in the set `set`. A global function: the verifier looks at it by
 * itself, not once for each filter that calls it. */
__noinline int is_in_set(struct packet *packet, __u32 set, __u32 how)
{
	struct element_key key = {};
	const __u8 *address;
	__u32 mode;
	__u64 word;

	if (!packet)
		return 0;
	word = word_of(set);
	mode = (word & MODE_MASK) >> MODE_SHIFT;
	if (mode == NOTHING)
		return 0;
	if (mode == ETHERNET) {
		__builtin_memcpy(&key, how & BY_DESTINATION ? packet->destination_mac :
							      packet->source_mac, 8);
		return is_member(word, &key, packet);
	}
	if (!is_of_version(word, packet))
		return 0;
	address = address_of(packet, how);
	if (!bitmap_covers(word, address))
		return 0;
	if (mode == BITMAP)
		return 1;
	__builtin_memcpy(&key, address, 16);
	if (word & HAS_PORTS) {
		key.protocol = packet->protocol;
		key.port = how & BY_DESTINATION_PORT ? packet->destination_port :
						       packet->source_port;
	}
	return is_member(word, &key, packet);
}

/* The same without a call, which costs as much as a look-up, if the bitmap is enough. */
static __always_inline int is_in_set_at_once(struct packet *packet, __u32 set, __u32 how)
{
	__u64 word = word_of(set);

	if ((word & MODE_MASK) != BITMAP << MODE_SHIFT)
		return is_in_set(packet, set, how);
	return is_of_version(word, packet) && bitmap_covers(word, address_of(packet, how));
}

#endif
