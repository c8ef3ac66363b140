/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The route that a frame takes, for the filters of the port where it leaves (terms.h).
 *
 * A router writes it before the tail call, where filters ask for it, and the tree reads it in the
 * same pass. No other frame comes between the two on a CPU, so one entry for each CPU is enough. On
 * the stack of so many calls there is no room for it.
 */
#ifndef HAND_ROUTE_H
#define HAND_ROUTE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "taken.h"

/* Made by user space where there is a router. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct taken);
} route_taken SEC(".maps");

static __always_inline struct taken *route_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&route_taken, &zero);
}

#endif
