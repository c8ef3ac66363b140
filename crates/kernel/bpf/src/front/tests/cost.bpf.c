// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * cost: what a look-up in a set costs, for src/front/tests/cost.rs. A run looks many
 * addresses up, one after the other, as many as there are, so that what is not in a
 * cache is fetched as it is for packets. Mode 0 does all but the look-up, 1 asks the
 * set, 2 the kernel's trie.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The first constants: cost.rs writes them by their place. */
const volatile __u32 mode = 0;
const volatile __u32 is_six = 0;

#include "sets.h"

#define ASKED 65536
#define AT_ONCE 64

/* In words, as an address in a header is read. */
struct address {
	__u64 words[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ASKED);
	__type(key, __u32);
	__type(value, struct address);
} asked SEC(".maps");

struct trie_key {
	__u32 len;
	__u8 bytes[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2000000);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, sizeof(struct trie_key));
	__uint(value_size, 1);
} trie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

SEC("xdp")
int cost(struct xdp_md *ctx)
{
	__u32 zero = 0, found = 0;
	__u32 *at = bpf_map_lookup_elem(&next, &zero);
	struct packet packet = {};

	if (!at)
		return 0;
	packet.ip = is_six ? 6 : 4;
	for (int i = 0; i < AT_ONCE; i++) {
		__u32 index = (*at)++ % ASKED;
		struct address *address = bpf_map_lookup_elem(&asked, &index);

		if (!address)
			return 0;
		__builtin_memcpy(packet.source, address, 16);
		if (mode == 1) {
			found += is_in_set_at_once(&packet, 0, LOOK_UP);
		} else if (mode == 2) {
			struct trie_key key = { .len = is_six ? 128 : 32 };

			__builtin_memcpy(key.bytes, packet.source, 16);
			found += bpf_map_lookup_elem(&trie, &key) != 0;
		}
	}
	return found;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
