/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How far a class's calendar goes back, for what was free, and ahead, for what waits.
 */
#ifndef SPAN_H
#define SPAN_H

#include "calendar.h"
#include "tree.h"

/* How far ahead packets depart whose classes share a rate with others, in ns, whatever the limit. A
 * change of shares takes so long, and so much those that have a rate assured may be ahead of it. */
#define SHARED_MAX (25 * 1000000ULL)

/* What was free longer ago than this is no credit, in ns, whatever the burst: a calendar does not go
 * back for more, and a slot of it has a sum of 32 bits. */
#define CREDIT_MAX (1ULL << 32)

/* For how long what was free is credit. */
static __always_inline __u64 credit_of(const struct class *class)
{
	return min(class->burst, CREDIT_MAX);
}

/* How far ahead packets of a class depart. */
static __always_inline __u64 limit_of(const struct class *class)
{
	return class->parent ? min(class->limit, SHARED_MAX) : class->limit;
}

/* How far ahead they depart by their flows' shares. The rest of the limit is for what departs later
 * than its share begins. */
static __always_inline __u64 reach_of(const struct class *class)
{
	return limit_of(class) / 4 * 3;
}

/* How long a slot of the class lasts, as in a calendar. */
static __always_inline __u32 shift_of(const struct class *class)
{
	return slot_shift(credit_of(class) + class->limit);
}

#endif
