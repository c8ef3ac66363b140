// SPDX-License-Identifier: GPL-2.0 OR MIT
/* bucket-shared: a token bucket of all CPUs, charged by an atomic addition for each frame. */
#include "bucket.h"

/* A cache line each. */
struct clock {
	__u64 sold;
	__u64 unused[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

SEC("xdp")
int bucket_shared(struct xdp_md *ctx)
{
	__u32 index = bucket_of(ctx);
	struct clock *clock = bpf_map_lookup_elem(&clocks, &index);
	__u64 cost = time_of(ctx), now = bpf_ktime_get_ns(), at;

	if (!clock)
		return XDP_ABORTED;
	at = *(volatile __u64 *)&clock->sold;
	/* Once for each burst, and not for each frame: that would be another atomic. */
	if ((__s64)(at + 2 * BURST - now) < 0)
		__sync_val_compare_and_swap(&clock->sold, at, now - BURST);
	at = __sync_fetch_and_add(&clock->sold, cost);
	if ((__s64)(at - now) <= (__s64)BURST)
		return go_on();
	__sync_fetch_and_add(&clock->sold, -cost);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
