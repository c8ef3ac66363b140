/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Flows of classes, and up to when each has used its share.
 *
 * A flow that has used its share of the class's rate up to a time in the future is *busy* until
 * then; its next packet gets no earlier place. The share is the rate divided by the number of busy
 * flows (calendar.h). A flow below its share is busy for a part of the time only, and counts for
 * that part: so shares and what small flows leave together are the rate, whatever the flows are.
 *
 * The table has sets of four. A flow that finds no entry free in its set is one with another flow
 * there: both have one share.
 */
#ifndef FLOW_CLOCK_H
#define FLOW_CLOCK_H

#include "tree.h"

#define FLOW_SETS 2048
#define FLOWS_IN_SET 4

struct flow_clock {
	__u64 finish;			/* up to when it has used its share */
	__u64 name;			/* its class, in the upper half, and its hash */
	struct aqm aqm;
	__u64 last;			/* when its last packet departs, unless its sender asks for later */
};

struct flow_set {
	struct flow_clock of[FLOWS_IN_SET];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_SETS);
	__type(key, __u32);
	__type(value, struct flow_set);
} flow_clocks SEC(".maps");

/* A hash of a class. Half of the golden ratio: hashes of a class and of another are spread alike. */
static __always_inline __u32 spread(__u32 leaf, __u32 hash)
{
	return (hash ^ leaf * 0x9e3779b1) * 0x9e3779b1;
}

/* The clock of the flow `hash` of a class. */
static __always_inline struct flow_clock *flow_clock_of(__u32 leaf, __u32 hash, __u64 now)
{
	__u32 number = spread(leaf, hash) >> 21;
	struct flow_set *set = bpf_map_lookup_elem(&flow_clocks, &number);
	__u64 name = (__u64)leaf << 32 | hash;
	struct flow_clock *oldest;

	if (!set)
		return 0;
	oldest = &set->of[0];
	for (int i = 0; i < FLOWS_IN_SET; i++) {
		struct flow_clock *flow = &set->of[i];

		if (flow->name == name)
			return flow;
		if ((__s64)(flow->finish - oldest->finish) < 0)
			oldest = flow;
	}
	if ((__s64)(oldest->finish - now) < 0) {
		__builtin_memset(&oldest->aqm, 0, sizeof(oldest->aqm));
		oldest->name = name;
	}
	return oldest;
}

#endif
