// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * to_ifb: which packets that arrive at a port a filter of clsact redirects to the port's ifb, where
 * they are shaped like what leaves: all, while a process of Narrows runs.
 *
 * A filter stays when its process ends; the kernel empties the array when no process has it open any
 * more, and then the filter redirects nothing.
 *
 * Source: net/sched/cls_bpf.c (the answers of a program that is no action).
 */
#include "behind.h"

/* The filter does not match, or does. */
#define NONE 0
#define ALL (-1)

SEC("tc")
int narrows_to_ifb(struct __sk_buff *ctx)
{
	bpf_tail_call(ctx, &behind, 0);
	return NONE;
}

SEC("tc")
int all_to_ifb(struct __sk_buff *ctx)
{
	return ALL;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
