/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Leads a frame to what takes all that leaves through the port that it leaves through.
 *
 * Included behind what decides about that: `find_way`, `take_way` and LEAVES.
 */
#ifndef CHOOSE_H
#define CHOOSE_H

#include "outcomes.h"
#include "segments.h"
#ifdef TELLS_ROUTE
#include "hand_route.h"
#endif

/* Made by user space: what takes frames that leave through each port. Then the same for those that
 * have met filters that set a mark or a priority (handed.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2 * PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} takers SEC(".maps");

/* Hands on what filters of the tree ask of the route. */
static __always_inline void hand_on(const struct way *way)
{
#ifdef TELLS_ROUTE
	struct taken *to = way->asks ? route_here() : 0;

	if (to)
		*to = way->taken;
#endif
}

static __always_inline int choose(struct context *ctx, __u32 first)
{
	struct way way = {};
	int outcome = find_way(ctx, &way);
	struct size size = size_of(ctx);
	__s64 packets = size.packets, bytes = size.bytes;

	if (outcome == LEAVES && !take_way(ctx, &way))
		outcome = NO_ROOM;
	count_outcome(outcome, packets);
	if (outcome == LEAVES) {
		count_outcome(LEAVING_BYTES, bytes);
		hand_on(&way);
		bpf_tail_call(ctx, &takers, first + way.port);
		/* Still here: the kernel gets it as it was. */
		take_way(ctx, &way);
		count_outcome(LEAVES, -packets);
		count_outcome(LEAVING_BYTES, -bytes);
		count_outcome(NOBODY, packets);
	}
	return outcome == BLACKHOLE ? DROPPED : TO_BOX;
}

#endif
