// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * router: routes a frame as the kernel would, in the driver, or (router_tcx) at tcx.
 *
 * The frame continues by a tail call in what takes all that leaves through a port: its tree, which
 * sends it. What is not routed here goes to the kernel as it arrived (route.h). So does what leaves
 * through a port where nothing takes it.
 *
 * There are two programs: `router`, and `router_behind` for what has met filters that set a mark or
 * a priority (handed.h).
 *
 * Non-goals: shaping; drops other than a blackhole's.
 */
#include "route.h"

/* Made by user space: what takes frames that leave through each port. Then the same for those that
 * have met such filters. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2 * PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} takers SEC(".maps");

static __always_inline int route(struct context *ctx, __u32 first)
{
	struct way way = {};
	int outcome = find_way(ctx, &way);
	__s64 packets = size_of(ctx).packets;

	if (outcome == ROUTED && !take_way(ctx, &way))
		outcome = SHORT;
	count_outcome(outcome, packets);
	if (outcome == ROUTED) {
		bpf_tail_call(ctx, &takers, first + way.port);
		/* Still here: the kernel gets it as it was. */
		take_way(ctx, &way);
		count_outcome(ROUTED, -packets);
		count_outcome(NOBODY, packets);
	}
	return outcome == BLACKHOLE ? DROPPED : TO_BOX;
}

SEC(HOOK)
int router(struct context *ctx)
{
	return route(ctx, 0);
}

SEC(HOOK)
int router_behind(struct context *ctx)
{
	return route(ctx, PORTS_MAX);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
