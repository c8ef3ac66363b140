/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What filters in front of a tree have set, for the tree behind them.
 *
 * `front` writes it before each tail call, and the tree reads it in the same pass. No other
 * frame comes between the two on a CPU, so one entry for each CPU is enough. It is no
 * metadata of the frame, since not every driver has room for that.
 */
#ifndef HANDED_H
#define HANDED_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct handed {
	__u32 mark;
	__u32 priority;		/* a class, its major number in the upper half; or below 16 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handed);
} handed SEC(".maps");

static __always_inline struct handed *handed_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&handed, &zero);
}

#endif
