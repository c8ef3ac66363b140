/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Flows that do not heed the AQM, and how little room they have.
 *
 * A class's limit is room for flows that send less when the AQM signals. A flow that goes on as before
 * is a *flood*: it fills its room for as long as it lasts. A queue that is served in turn can bear that,
 * since a flow that begins has its turn at once. Departure times cannot: bytes that floods have booked
 * are not there for a connection, which has its first ones behind them, takes that for its own delay,
 * and slows down. So packets of a flood depart less far ahead the longer it ignores signals, and what
 * would depart later is dropped.
 *
 * Some flows cannot send less, such as connections at their least windows. So there is always room for
 * a few of the longest packets.
 */
#ifndef FLOOD_H
#define FLOOD_H

#include "busy.h"
#include "calendar.h"
#include "flow_clock.h"
#include "span.h"
#include "way.h"

/* A flow with more signals in a row does not heed them. */
#define HEEDED_MAX 16
/* With each further one it has less room, by this part of what others have, */
#define ROOM_FALLS 24
/* but always twice the AQM's target, and room for so many of the longest packets. */
#define ROOM_PACKETS 8
/* A class is flooded until so long after a flood was refused, in ns. */
#define FLOODED (1 * SECOND)

/* Whether signals of the AQM have not helped lately. */
static __always_inline int is_flood_of(const struct class *class, const struct aqm *aqm, __u64 now)
{
	return aqm->count > HEEDED_MAX && now - aqm->last < 16 * class->interval;
}

/* How far ahead packets depart of a flood with so many signals, by its share. A global function, so
 * that the verifier does not follow each of its ways to the end of the program. */
__noinline __u64 reach_of_flood(__u32 plan, __u32 leaf, __u64 count, __u64 now)
{
	struct class *class = class_of(plan, leaf);
	struct calendar *calendar = calendar_of(leaf);
	struct node *node = node_of(leaf);
	__u64 most, least, flows, lasts;
	__u32 shift;

	if (!class || !calendar || !node)
		return 0;
	most = reach_of(class);
	shift = shift_of(class);
	flows = busy_in(leaf, now >> shift, now >> shift);
	lasts = time_for(calendar->longest * (flows >> 10) >> (SLOT_SHIFT - 10),
			 rate_of(class, node));
	least = max(class->target * 2, min(lasts, most) * ROOM_PACKETS);
	count -= min(count, HEEDED_MAX);
	return min(most, max(least, most - min(most, most / ROOM_FALLS * count)));
}

/* Whether floods of the class were refused lately. */
static __always_inline int is_flooded(const struct calendar *calendar, __u64 now)
{
	return now - *(const volatile __u64 *)&calendar->flooded < FLOODED;
}

/* Notes that a packet of the class is refused, of this flow if it is a flood. */
__noinline int note_refused(__u32 leaf, __u64 cost, struct flow_clock *flood, __u64 now)
{
	struct calendar *calendar = calendar_of(leaf);

	if (!calendar)
		return 0;
	if (cost > calendar->longest || (flood && !is_flooded(calendar, now)))
		*(volatile __u64 *)&calendar->longest = cost;
	if (flood) {
		*(volatile __u64 *)&calendar->flooded = now;
		/* It is one for longer: without signals it would have its room back. */
		*(volatile __u64 *)&flood->aqm.last = now;
	}
	return 0;
}

#endif
