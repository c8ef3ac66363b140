/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Shapes what this host sends through a port by a tree of classes, with departure times.
 *
 * The program is attached at the tcx egress of the port, where packets still stand for several frames
 * (GSO), and works on the maps of the port's `tree`. Each packet is classified and gets the earliest
 * time at which its flow, its class and the classes above have room for it (depart.h). `fq` holds it
 * until then. Without `fq` below, times would hold nothing: then the tree polices (judge.h), as
 * tree_slow_path does.
 *
 * What the sender asked itself (SO_TXTIME, SO_MAX_PACING_RATE, TCP's own pacing) is kept: the later
 * time counts. A time that is not of the monotonic clock is none.
 *
 * Network control of the box (sender.h) departs at once, up to its part of the rate of its class. What
 * is not IP departs at once, too, since the kernel keeps no time for it; it is booked.
 *
 * Non-goals: filters at egress; order among flows at equal times, which fq has.
 */
#ifndef STAMP_H
#define STAMP_H

#define TCX
#define DEPARTURES
#include "class_at_egress.h"
#include "control.h"
#include "count.h"
#include "depart.h"
#include "frame.h"
#include "host_hash.h"
#include "mark.h"
#include "overhead.h"
#include "segments.h"
#include "terms.h"
#include "trips.h"

/* The clock of the times that fq keeps. */
#define MONOTONIC 1
/* No sender asks for a later time than that, in ns; a time of another clock is later. */
#define ASKED_MAX (10 * SECOND)

/* The time that the sender asked for; 0 for none. */
static __always_inline __u64 asked(struct __sk_buff *ctx, __u64 now)
{
	__u64 time = ctx->tstamp;

	return time > now && time < now + ASKED_MAX ? time : 0;
}

/* Sets the departure of a packet of a class with a rate. Returns whether there is one; else it counts
 * as dropped. Not inlined: what classifies needs the rest of the stack. */
static __noinline int set_departure(struct __sk_buff *ctx, struct departure *packet,
				    const struct class *class, struct class_slot *slot,
				    struct totals *total)
{
	struct size size = { packet->bytes, packet->packets };
	__s64 cost = charge_of(size, class->per_frame, class->minimum, class->framing);
	struct node *node = node_of(packet->leaf);
	struct flow_clock *flow;
	int answer;

	packet->cost = cost;
	packet->now = bpf_ktime_get_ns();
	packet->asked = asked(ctx, packet->now);
	flow = flow_clock_of(packet->leaf, bpf_get_hash_recalc(ctx), packet->now);
	packet->host = NO_HOST;
	if (class->hosts != FLOWS_ALONE)
		packet->host = find_host(packet->leaf, host_hash(ctx, class->hosts), packet->now);
	if (!node || !flow)
		return 0;
	/* Not even asked for: it would take the room of all others. */
	if (is_cut_too_fine(ctx, size) || cost > SALE_MAX) {
		slot->limit_drops += size.packets;
		return drop(total, &total->limit_drops, size) != DROPPED;
	}
	__sync_fetch_and_add(&node->offered, cost);
	packet->is_control =
		sender_of(ctx) == CONTROL && take_of_tree_for_control(cost, class->rate);
	packet->at_once = packet->is_control;
	answer = judge_delay(packet, class, node, flow);
	if (answer == MARK_OR_DROP && !packet->at_once) {
		if (!mark(ctx)) {
			slot->aqm_drops += size.packets;
			return drop(total, &total->aqm_drops, size) != DROPPED;
		}
		slot->marked += size.packets;
	}
	if ((answer == FULL && !packet->at_once) ||
	    !depart(class, node, flow, slot, packet)) {
		slot->limit_drops += size.packets;
		return drop(total, &total->limit_drops, size) != DROPPED;
	}
	if (packet->at > packet->now)
		bpf_skb_set_tstamp(ctx, packet->at, MONOTONIC);
	return 1;
}

/* What a program does with a packet: its verdict. */
static __always_inline int stamp_packet(struct __sk_buff *ctx)
{
	__u32 zero = 0, slow_path = SLOW_PATH, said, number, leaf;
	struct totals *total = bpf_map_lookup_elem(&totals, &slow_path);
	__u32 *current = bpf_map_lookup_elem(&in_force, &zero);
	struct departure *packet = departing_here();
	struct class_slot *slot;
	struct class *class;
	struct size size;

	if (!total || !current || !packet)
		return TC_ACT_UNSPEC;
	reach_headers(ctx);
	size = size_of(ctx);
	said = *(volatile __u32 *)current;
	number = said & NUMBER_MASK;
	leaf = class_at_egress(ctx, said);
	if (leaf >= FILTERED) {
		drop(total, leaf == FILTERED ? &total->filter_drops : &total->unclassified_drops,
		     size);
		return TC_ACT_SHOT;
	}
	class = class_of(number, leaf);
	slot = bpf_map_lookup_elem(&class_slots, &leaf);
	if (!class || !slot) {
		drop(total, &total->unclassified_drops, size);
		return TC_ACT_SHOT;
	}
	packet->plan = number;
	packet->leaf = leaf;
	packet->bytes = size.bytes;
	packet->packets = size.packets;
	packet->at = 0;
	if (class->rate && !set_departure(ctx, packet, class, slot, total))
		return TC_ACT_SHOT;
	/* What waits for its time has not begun its trip. */
	if (said & HAS_LINES)
		see(ctx, LEAVES_HERE, max(packet->at, bpf_ktime_get_ns()));
	count_sent(total, slot, size);
	return TC_ACT_UNSPEC;
}

#endif
