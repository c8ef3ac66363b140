// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree: polices the packets from one port to the other by a tree of classes, in the driver, or
 * (tree_tcx) at tcx.
 *
 * Frames for the box itself go up the stack, if it has an address there. All others are
 * classified, metered by the tree, and leave through the other port at once, or with the other
 * VLAN's tag; they are marked or dropped if their class is sold too far ahead. Nothing waits here.
 *
 * There are two programs: `tree`, and `tree_behind` for what has met filters that set a mark
 * or a priority (handed.h).
 *
 * Non-goals: queues, pacing, fairness between the flows of a class.
 */
#include "find_class.h"
#include "frame.h"
#include "handed.h"
#include "mark.h"
#include "meter.h"
#include "other_port.h"
#include "retag.h"
#include "segments.h"
#include "self.h"
#include "terms.h"

static __always_inline int send(struct context *ctx, struct totals *total,
				struct class_slot *slot, struct size size)
{
	int action = other_protocol ? retag(ctx) : redirect();

	if (action != DROPPED) {
		total->sent_packets += size.packets;
		total->sent_bytes += size.bytes;
		slot->bytes += size.bytes;
		if (slot->borrows)
			slot->borrowed_packets += size.packets;
		else
			slot->own_packets += size.packets;
	} else {
		total->port_gone_drops += size.packets;
		total->dropped_bytes += size.bytes;
	}
	return action;
}

static __always_inline int drop(struct totals *total, __u64 *reason, struct size size)
{
	*reason += size.packets;
	total->dropped_bytes += size.bytes;
	return DROPPED;
}

/* The bytes that a class is charged for. Frames of a merged packet count as equally long. */
static __always_inline __s64 charge_of(const struct class *class, struct size size)
{
	__s64 cost = (__s64)size.bytes + (__s64)class->per_frame * size.packets;
	__s64 least = (__s64)class->minimum * size.packets;

	if (cost < least)
		cost = least;
	if (class->framing) {
		__u64 packets = size.packets, frame = ((__u64)cost + packets - 1) / packets;

		if (class->framing == ATM)
			return (frame + 47) / 48 * 53 * packets;
		return cost + (frame + 63) / 64 * packets;
	}
	return cost;
}

static __always_inline int police(struct context *ctx, int is_behind)
{
	__u32 zero = 0, said, number, leaf;
	struct totals *total = bpf_map_lookup_elem(&totals, &zero);
	__u32 *current = bpf_map_lookup_elem(&in_force, &zero);
	struct size size;
	struct ethhdr *eth;
	struct handed set = {};
	struct class *class;
	struct class_slot *slot;
	__s64 cost;

	if (!total || !current)
		return FAILED;
	reach_headers(ctx);
	size = size_of(ctx);
	eth = data_of(ctx);
	if ((void *)(eth + 1) <= data_end_of(ctx) && is_for_self(eth)) {
		total->to_self += size.packets;
		return TO_BOX;
	}
	said = *(volatile __u32 *)current;
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
	if (leaf >= FILTERED)
		return drop(total, leaf == FILTERED ? &total->filter_drops :
						      &total->unclassified_drops, size);
	class = class_of(number, leaf);
	slot = bpf_map_lookup_elem(&seats, &leaf);
	if (!class || !slot)
		return drop(total, &total->unclassified_drops, size);
	if (!class->rate)
		return send(ctx, total, slot, size);

	cost = charge_of(class, size);
	/* Not even asked for: it would put all classes on its way into debt. */
	switch (is_cut_too_fine(ctx, size) ? FULL : meter(number, leaf, class, slot, cost)) {
	case FULL:
		slot->limit_drops += size.packets;
		return drop(total, &total->limit_drops, size);
	case MARK_OR_DROP:
		if (!mark(ctx)) {
			slot->aqm_drops += size.packets;
			return drop(total, &total->aqm_drops, size);
		}
		slot->credit -= cost;
		slot->marked += size.packets;
	}
	return send(ctx, total, slot, size);
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
