/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The judgement of a port's tree on a packet of a class: whether it may leave now.
 */
#ifndef JUDGE_H
#define JUDGE_H

#include "count.h"
#include "mark.h"
#include "meter.h"
#include "overhead.h"
#include "terms.h"

/* Charges a packet of the class `leaf`, or of none, to it. Returns its slot if it may leave; else
 * the packet counts as dropped. */
static __always_inline struct class_slot *charge(struct context *ctx, struct totals *total,
						 __u32 number, __u32 leaf, struct size size)
{
	struct class *class;
	struct class_slot *slot;
	__s64 cost;

	if (leaf >= FILTERED) {
		drop(total, leaf == FILTERED ? &total->filter_drops : &total->unclassified_drops,
		     size);
		return 0;
	}
	class = class_of(number, leaf);
	slot = bpf_map_lookup_elem(&class_slots, &leaf);
	if (!class || !slot) {
		drop(total, &total->unclassified_drops, size);
		return 0;
	}
	if (!class->rate)
		return slot;

	cost = charge_of(size, class->per_frame, class->minimum, class->framing);
	/* Not even asked for: it would put all classes on its way into debt. */
	switch (is_cut_too_fine(ctx, size) ? FULL : meter(number, leaf, class, slot, cost)) {
	case FULL:
		slot->limit_drops += size.packets;
		drop(total, &total->limit_drops, size);
		return 0;
	case MARK_OR_DROP:
		if (!mark(ctx)) {
			slot->aqm_drops += size.packets;
			drop(total, &total->aqm_drops, size);
			return 0;
		}
		slot->credit -= cost;
		slot->marked += size.packets;
	}
	return slot;
}

#endif
