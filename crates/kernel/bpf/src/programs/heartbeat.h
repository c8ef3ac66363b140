/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether the worker of a queue is alive.
 *
 * Each worker writes the time of its last step into its own cell of a map that user space maps.
 * A worker that hangs or is stopped writes nothing. So if a cell is older than a bound, its
 * frames bypass the worker, even while all of user space sleeps.
 *
 * Non-goals: why a worker is silent, waking it.
 */
#ifndef HEARTBEAT_H
#define HEARTBEAT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* As many queues as a port may have. */
#define QUEUES_MAX 256

/* A cache line for each worker, so that no worker's writing costs another's frames. */
struct heart {
	__u64 beat;		/* CLOCK_MONOTONIC in ns; 0 if no worker serves the queue */
	__u64 user_space[7];	/* messages of workers to the rest of their process */
};

/* Made by user space, one for both ports: a worker serves the same queue of both. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct heart);
} heartbeats SEC(".maps");

/* Set before the program is loaded: how old a beat may be, in ns; what becomes of the
 * frames of a worker without one; and whether this kernel has the cheaper clock. */
const volatile __u64 stalled_after = ~0ULL >> 1;
const volatile __u32 stalled_action = XDP_PASS;
const volatile __u32 has_coarse_clock = 0;

static __always_inline int is_stalled(__u32 queue)
{
	const struct heart *heart = bpf_map_lookup_elem(&heartbeats, &queue);
	__u64 beat, now;

	if (!heart)
		return 0;
	beat = *(const volatile __u64 *)&heart->beat;
	if (!beat)
		return 0;
	/* The bound is many ticks, so a clock of one tick is precise enough. */
	now = has_coarse_clock ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
	/* Signed: the coarse clock may be behind the beat. */
	return (__s64)(now - beat) > (__s64)stalled_after;
}

#endif
