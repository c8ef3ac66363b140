/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* How a tree counts what it sends and drops. */
#ifndef COUNT_H
#define COUNT_H

#include "frame.h"
#include "segments.h"
#include "tree.h"

static __always_inline void count_sent(struct totals *total, struct class_slot *slot,
				       struct size size)
{
	total->sent_packets += size.packets;
	total->sent_bytes += size.bytes;
	slot->bytes += size.bytes;
	if (slot->borrows)
		slot->borrowed_packets += size.packets;
	else
		slot->own_packets += size.packets;
}

static __always_inline int drop(struct totals *total, __u64 *reason, struct size size)
{
	*reason += size.packets;
	total->dropped_bytes += size.bytes;
	return DROPPED;
}

#endif
