// SPDX-License-Identifier: GPL-2.0 OR MIT
/* trie: drops frames whose source is in the kernel's trie of prefixes. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u64 is_v6 = 0;

struct prefix {
	__u32 len;
	__u8 bytes[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1000000);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, sizeof(struct prefix));
	__uint(value_size, 1);
} prefixes SEC(".maps");

SEC("xdp")
int trie(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct prefix key = { .len = is_v6 ? 128 : 32 };

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (is_v6) {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if (eth->h_proto != bpf_htons(ETH_P_IPV6) || (void *)(ip + 1) > end)
			return XDP_PASS;
		__builtin_memcpy(key.bytes, &ip->saddr, 16);
	} else {
		struct iphdr *ip = (void *)(eth + 1);

		if (eth->h_proto != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end)
			return XDP_PASS;
		__builtin_memcpy(key.bytes, &ip->saddr, 4);
	}
	return bpf_map_lookup_elem(&prefixes, &key) ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
