// SPDX-License-Identifier: GPL-2.0 OR MIT
/* spread: gives each frame another source, and has the program under test run on it, so that what
 * is looked up is not in the nearest cache. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include "subject.h"

#define SOURCES 65536
/* Where a source is in a frame: of IPv4, and of IPv6. */
#define V4_AT 26
#define V6_AT 22

const volatile __u64 is_v6 = 0;

struct source {
	__u8 bytes[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES);
	__type(key, __u32);
	__type(value, struct source);
} sources SEC(".maps");

SEC("xdp")
int spread(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	__u32 zero = 0, at, *number = bpf_map_lookup_elem(&next, &zero);
	const struct source *source;

	if (!number || data + V6_AT + 16 > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	at = (*number)++ % SOURCES;
	source = bpf_map_lookup_elem(&sources, &at);
	if (!source)
		return XDP_ABORTED;
	if (is_v6)
		__builtin_memcpy(data + V6_AT, source, 16);
	else
		__builtin_memcpy(data + V4_AT, source, 4);
	bpf_tail_call(ctx, &subject, 0);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
