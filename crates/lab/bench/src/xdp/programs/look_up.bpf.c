// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * look_up: what it costs to find the next hop of an address. A run looks many addresses up, one
 * after the other, so that what is not in a cache is fetched as it is for packets. Mode 0 does all
 * but the look-up, 1 looks into a router's table, 2 asks the kernel.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The first constants: user space writes them by their place. */
const volatile __u32 mode = 0;
const volatile __u32 is_v6 = 0;
const volatile __u32 arrives_at = 0;

#include "../../../../../kernel/bpf/src/programs/fib.h"

#define ASKED 65536
#define AT_ONCE 64
/* Of <sys/socket.h>, which is not for programs in the kernel. */
#define AF_INET 2
#define AF_INET6 10

struct address {
	__be32 words[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ASKED);
	__type(key, __u32);
	__type(value, struct address);
} asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

static __always_inline int finds(struct xdp_md *ctx, const struct address *address)
{
	struct bpf_fib_lookup fib = {};
	const struct hop *hop;
	__u64 root;

	if (mode == 1) {
		root = fib_root(is_v6);
		if (!root)
			return 0;
		if (is_v6)
			hop = hop_v6(root,
				     (__u64)bpf_ntohl(address->words[0]) << 32 | bpf_ntohl(address->words[1]),
				     (__u64)bpf_ntohl(address->words[2]) << 32 | bpf_ntohl(address->words[3]));
		else
			hop = hop_v4(root, bpf_ntohl(address->words[0]));
		return hop && hop->how & HOP_IS_KNOWN;
	}
	if (mode == 2) {
		fib.family = is_v6 ? AF_INET6 : AF_INET;
		fib.tot_len = 64;
		fib.ifindex = arrives_at;
		if (is_v6)
			__builtin_memcpy(fib.ipv6_dst, address->words, 16);
		else
			fib.ipv4_dst = address->words[0];
		return bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_SUCCESS;
	}
	return address->words[0] != 0;
}

SEC("xdp")
int look_up(struct xdp_md *ctx)
{
	__u32 zero = 0, found = 0;
	__u32 *at = bpf_map_lookup_elem(&next, &zero);

	if (!at)
		return 0;
	for (int i = 0; i < AT_ONCE; i++) {
		__u32 index = (*at)++ % ASKED;
		struct address *address = bpf_map_lookup_elem(&asked, &index);

		if (!address)
			return 0;
		found += finds(ctx, address);
	}
	return found;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
