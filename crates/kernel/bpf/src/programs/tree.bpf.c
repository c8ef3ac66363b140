// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree: polices the packets from one port to the other by a tree of classes, in the driver, or
 * (tree_tcx) at tcx.
 *
 * Frames for the box itself go up the stack, if it has an address there. All others are
 * classified, metered by the tree, and leave through the other port at once, or with the other
 * VLAN's tag; they are marked or dropped if their class is sold too far ahead. Nothing waits here.
 * At a host's port all frames are for the box, and count as sent. What hands them to other CPUs
 * may be behind it (receive_on).
 *
 * There are two programs: `tree`, and `tree_behind` for what has met filters that set a mark
 * or a priority (handed.h).
 *
 * Non-goals: queues, pacing, fairness between the flows of a class.
 */
#include "behind_host.h"
#include "find_class.h"
#include "frame.h"
#include "handed.h"
#include "judge.h"
#include "other_port.h"
#include "retag.h"
#include "seal.h"
#include "segments.h"
#include "self.h"
#include "terms.h"
#include "trips.h"

/* Whether what arrives is for the box itself, and leaves through no port: a host's port. Set before
 * the program is loaded. */
const volatile __u8 leads_to_box = 0;

static __always_inline int send(struct context *ctx, struct totals *total,
				struct class_slot *slot, struct size size)
{
	int action = other_protocol ? retag(ctx) : redirect();

	if (action == DROPPED)
		return drop(total, &total->port_gone_drops, size);
	count_sent(total, slot, size);
	put_seal(ctx);
	return action;
}

static __always_inline int police(struct context *ctx, int is_behind)
{
	__u32 zero = 0, said, number, leaf;
	struct totals *total = bpf_map_lookup_elem(&totals, &zero);
	__u32 *current = bpf_map_lookup_elem(&in_force, &zero);
	struct size size;
	struct ethhdr *eth;
	struct handed set = {};
	struct class_slot *slot;

	if (!total || !current)
		return FAILED;
	reach_headers(ctx);
	size = size_of(ctx);
	said = *(volatile __u32 *)current;
	if (leads_to_box) {
		if (said & HAS_LINES)
			see(ctx, ctx->ingress_ifindex, bpf_ktime_get_ns());
		total->sent_packets += size.packets;
		total->sent_bytes += size.bytes;
		bpf_tail_call(ctx, &behind_host, 0);
		return TO_BOX;
	}
	eth = data_of(ctx);
	if ((void *)(eth + 1) <= data_end_of(ctx) && is_for_self(eth, data_end_of(ctx))) {
		total->to_self += size.packets;
		return TO_BOX;
	}
	if (said & HAS_LINES)
		see(ctx, ctx->ingress_ifindex, bpf_ktime_get_ns());
	number = said & NUMBER_MASK;
	if (is_behind) {
		struct handed *from = handed_here();

		if (!from)
			return FAILED;
		set = *from;
	}
	if (said & HAS_TERMS)
		leaf = RARE;
	else if (is_behind)
		leaf = classify_edited(ctx, number, set.mark, set.priority);
	else
		leaf = classify(ctx, number);
	if (leaf == RARE)
		leaf = classify_in_full(ctx, number, set.mark, set.priority);
	slot = charge(ctx, total, number, leaf, size);
	if (slot && said & HAS_LINES)
		see(ctx, LEAVES_HERE, bpf_ktime_get_ns());
	return slot ? send(ctx, total, slot, size) : DROPPED;
}

SEC(HOOK)
int tree(struct context *ctx)
{
	return police(ctx, 0);
}

SEC(HOOK)
int tree_behind(struct context *ctx)
{
	return police(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
