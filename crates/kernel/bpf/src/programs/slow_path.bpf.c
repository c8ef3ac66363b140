// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * slow_path: bounds and counts what the kernel itself sends through a port that has queues.
 *
 * It is attached at the tcx egress of the port, which AF_XDP does not pass. What it lets pass is
 * written down, and the workers charge it to the port's limit: so both together keep to it. It
 * drops what would starve the queues. While packets wait there, the kernel has half of the rate,
 * else all of it.
 *
 * Within the kernel's part the box goes before strangers (sender.h): their flood uses up what they
 * may have, which is less. Nothing waits here.
 *
 * Non-goals: classes, and fairness among what the kernel sends.
 */
#define TCX
#include "clock.h"
#include "frame.h"
#include "overhead.h"
#include "segments.h"
#include "sender.h"
#include "slow_path.h"

#define MS 1000000ULL
/* The kernel's part of the rate while packets wait, and how long it is after one did. */
#define PART 2
#define WAITING (10 * MS)
/* How far ahead its part may be sold to strangers, and to the box; and at least so many full frames. */
#define STRANGERS_AHEAD (5 * MS)
#define BOX_AHEAD (50 * MS)
#define STRANGERS_FRAMES 2
#define BOX_FRAMES 8
#define FRAME 1514

/* Whether a packet may be sent that takes `cost` bytes. */
static __always_inline int admit(struct __sk_buff *ctx, struct share *share, __u64 cost)
{
	__u64 now = bpf_ktime_get_ns(), part = share->rate, most;
	enum sender sender = sender_of(ctx);

	/* Signed: packets may wait since a moment ago. */
	if ((__s64)(now - *(volatile __u64 *)&share->waiting_at) < (__s64)WAITING)
		part /= PART;
	if (sender != CONTROL || !take_for_control(&share->control_clock, cost, share->rate)) {
		most = sender == STRANGER ?
			       max(STRANGERS_AHEAD, time_for(STRANGERS_FRAMES * FRAME, part)) :
			       max(BOX_AHEAD, time_for(BOX_FRAMES * FRAME, part));
		if (ahead(&share->clock, now, 0) > (__s64)most)
			return 0;
	}
	__sync_fetch_and_add(&share->clock, time_for(cost, part));
	return 1;
}

SEC("tc")
int slow_path(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	struct share *share = bpf_map_lookup_elem(&shares, &zero);
	struct size size;
	__s64 cost;

	if (!share)
		return TC_ACT_UNSPEC;
	reach_headers(ctx);
	size = size_of(ctx);
	if (share->rate) {
		cost = charge_of(size, share->per_frame, share->minimum, share->framing);
		if (is_cut_too_fine(ctx, size) || cost < 0 || !admit(ctx, share, cost)) {
			__sync_fetch_and_add(&share->dropped_packets, size.packets);
			__sync_fetch_and_add(&share->dropped_bytes, size.bytes);
			return TC_ACT_SHOT;
		}
		__sync_fetch_and_add(&share->charged, cost);
	}
	__sync_fetch_and_add(&share->sent_packets, size.packets);
	__sync_fetch_and_add(&share->sent_bytes, size.bytes);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
