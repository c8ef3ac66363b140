// SPDX-License-Identifier: GPL-2.0 OR MIT
/* bucket-locked: a token bucket of all CPUs under a spin lock. */
#include "bucket.h"

/* A cache line each. */
struct clock {
	struct bpf_spin_lock lock;
	__u64 sold;
	__u64 unused[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

SEC("xdp")
int bucket_locked(struct xdp_md *ctx)
{
	__u32 index = bucket_of(ctx);
	struct clock *clock = bpf_map_lookup_elem(&clocks, &index);
	__u64 cost = time_of(ctx), now = bpf_ktime_get_ns();
	int full;

	if (!clock)
		return XDP_ABORTED;
	bpf_spin_lock(&clock->lock);
	full = is_full(&clock->sold, cost, now);
	bpf_spin_unlock(&clock->lock);
	return full ? XDP_DROP : go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
