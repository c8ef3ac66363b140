// SPDX-License-Identifier: GPL-2.0 OR MIT
/* bucket-percpu: a token bucket for each CPU, so the sum is not limited. */
#include "bucket.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} clocks SEC(".maps");

SEC("xdp")
int bucket_percpu(struct xdp_md *ctx)
{
	__u32 index = bucket_of(ctx);
	__u64 *clock = bpf_map_lookup_elem(&clocks, &index);

	if (!clock)
		return XDP_ABORTED;
	return is_full(clock, time_of(ctx), bpf_ktime_get_ns()) ? XDP_DROP : go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
