/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Control's part of the rates of a tree (sender.h). */
#ifndef CONTROL_H
#define CONTROL_H

#include "sender.h"

/* Up to when control's part of its class's rate is used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} control_clock SEC(".maps");

/* Takes `cost` bytes of control's part of `rate`. Returns whether they are there. */
static __always_inline int take_of_tree_for_control(__u64 cost, __u64 rate)
{
	__u32 zero = 0;
	__u64 *clock = bpf_map_lookup_elem(&control_clock, &zero);

	return clock && take_for_control(clock, cost, rate);
}

#endif
