// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree_slow_path: charges what the kernel itself sends through a port to the port's tree.
 *
 * It is attached at the tcx egress of the port, and works on the maps of the port's `tree`. What
 * the tree has sent passes (seal.h). All else is classified, metered by the same tree, and marked
 * or dropped in the same way: the box's own packets, and those that it forwards because no program
 * in a driver does, such as packets with IP options.
 *
 * Filters of the port where a packet came in have not seen it. The mark and the priority that the
 * kernel has for it count instead, as they do for a qdisc of the kernel. So do its realms; what the
 * metric of its route is the kernel does not say.
 *
 * Network control of the box (sender.h) is charged and never refused, up to its part of the rate of
 * its class. A flood that leaves no room keeps no routing protocol from its peers.
 *
 * Non-goals: priority for anything else; a class can have that.
 */
#define TCX
#include "class_at_egress.h"
#include "control.h"
#include "find_class.h"
#include "frame.h"
#include "judge.h"
#include "seal.h"
#include "segments.h"
#include "terms.h"
#include "trips.h"

/* Sells to control without asking. Returns its slot if it is control, within its part. */
static __always_inline struct class_slot *charge_control(struct __sk_buff *ctx, __u32 number,
							 __u32 leaf, struct size size)
{
	struct class_slot *slot = bpf_map_lookup_elem(&class_slots, &leaf);
	struct class *class = class_of(number, leaf);
	__s64 cost;

	if (!slot || leaf >= CLASSES_MAX || !class || !class->rate ||
	    sender_of(ctx) != CONTROL)
		return 0;
	cost = charge_of(size, class->per_frame, class->minimum, class->framing);
	if (!take_of_tree_for_control(cost, class->rate))
		return 0;
	sell_anyway(number, leaf, class, cost);
	return slot;
}

SEC("tc")
int tree_slow_path(struct __sk_buff *ctx)
{
	__u32 zero = 0, slow_path = SLOW_PATH, said, number, leaf;
	struct totals *total = bpf_map_lookup_elem(&totals, &slow_path);
	__u32 *current = bpf_map_lookup_elem(&in_force, &zero);
	struct class_slot *slot;
	struct size size;

	if (take_seal(ctx) || !total || !current)
		return TC_ACT_UNSPEC;
	reach_headers(ctx);
	size = size_of(ctx);
	said = *(volatile __u32 *)current;
	number = said & NUMBER_MASK;
	leaf = class_at_egress(ctx, said);
	slot = charge_control(ctx, number, leaf, size);
	if (!slot)
		slot = charge(ctx, total, number, leaf, size);
	if (!slot)
		return TC_ACT_SHOT;
	if (said & HAS_LINES)
		see(ctx, LEAVES_HERE, bpf_ktime_get_ns());
	count_sent(total, slot, size);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
