/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * When a class divides its rate among the classes below it: once per epoch, by the first CPU that
 * gets the class's try-lock (FlowValve). The others continue with the previous shares.
 *
 * How it divides is share_out.h's or lend.h's, which also say what a `struct sharing` has.
 */
#ifndef DIVISION_H
#define DIVISION_H

#include "clock.h"
#include "tree.h"

#define EPOCH (2 * 1000000ULL)
/* State that was not refreshed for this long is outdated. */
#define EXPIRED (16 * EPOCH)
/* A lock that is held for this long is abandoned. */
#define LOST (64 * EPOCH)
/* The rounds in which children of a priority are served; each satisfies some. */
#define ROUNDS 4

/* A division under way. */
struct sharing;

/* In a map and not on the stack: the verifier follows what is on the stack, and would
 * never come to an end with sums over any number of children. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sharing);
} sharings SEC(".maps");

static __always_inline struct sharing *sharing(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sharings, &zero);
}

static __always_inline void end_division(struct node *node)
{
	__sync_lock_test_and_set(&node->locked, 0);
}

/* Takes the lock of a class. Returns whether this CPU has it, and a division is due. */
static __always_inline int begin_division(struct node *node, __u64 now)
{
	__u64 locked = *(volatile __u64 *)&node->locked;

	if (locked && now - locked < LOST)
		return 0;
	if (__sync_val_compare_and_swap(&node->locked, locked, now) != locked)
		return 0;
	if ((__s64)(now - node->refreshed) >= (__s64)EPOCH)
		return 1;
	/* Another CPU has just done it, perhaps with a clock slightly ahead. */
	end_division(node);
	return 0;
}

#endif
