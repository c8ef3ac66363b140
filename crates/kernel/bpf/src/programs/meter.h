/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a class may send, and the decision of its AQM.
 *
 * A class has a clock: the time up to which its rate is sold. Its lead over now is the *virtual
 * delay*: how long the packet would wait if there were a queue. A CPU buys for a class a batch
 * of bytes at once: it advances the clock of the leaf and of each class above it, one atomic
 * addition each, and then charges packets to its own memory. So the cost of a packet depends
 * neither on the depth of the tree nor on other CPUs. A class that is sold further ahead than
 * its limit sells nothing. Every sale is booked, so the sum is exact under any concurrency. A sale
 * has a bound, since a class is in debt for the last one before its limit.
 *
 * A CPU's credit expires if it was not renewed for a while, so old purchases cannot make a
 * burst.
 */
#ifndef METER_H
#define METER_H

#include "aqm.h"
#include "valve.h"
#include "way.h"

/* Five ticks of a kernel with HZ=250: the clock for credit is up to a tick old. */
#define PURSE_EXPIRED (20 * 1000000ULL)
/* A CPU that returns within this buys a batch, otherwise only what it needs. */
#define BUSY 1000000ULL
/* The longest that a refusal holds on a CPU. */
#define REFUSED_MAX 1000000ULL

/* The place of a borrower in the order at a class: by the priority of the class below it there,
 * and among equals by its place in the order at that one, which is strict for the first eight.
 * A fraction of 2^16. */
static __always_inline __u32 place_of(__u32 prio, __u32 below)
{
	return min(((prio & (PRIORITIES - 1)) << 12) + (below >> 3), 0xffff);
}

/* How far ahead a class may be sold to a borrower: it leaves a half to assured traffic, and of the
 * other half what belongs to those before it. */
static __always_inline __u64 limit_of_borrower(__u64 limit, __u32 place)
{
	return (limit / 2 >> 16) * (0x10000 - place);
}

/* Whether the next class has something to sell. */
__noinline int look(struct way *way)
{
	struct class *upper;
	struct node *node;
	__u64 limit;
	__s64 above;

	if (!next_on(way, &upper, &node))
		return 0;
	above = ahead(&node->clock, way->now, upper->burst);
	limit = upper->limit;
	if (way->borrows) {
		limit = limit_of_borrower(upper->limit, way->place);
		/* Not even its last packet reaches into what is left to others. */
		if (way->place)
			above += time_for(way->want, sold_at(upper));
	}
	if (above > (__s64)limit)
		way->refused = above - limit;
	way->place = place_of(upper->prio, way->place);
	way->at = upper->parent;
	return 0;
}

/* Books the sale at the next class. */
__noinline int book(struct way *way)
{
	struct class *upper;
	struct node *node;

	if (!next_on(way, &upper, &node))
		return 0;
	__sync_fetch_and_add(&node->clock, time_for(way->want, sold_at(upper)));
	way->at = upper->parent;
	return 0;
}

/* Buys `want` bytes for the leaf; nothing if any class on the path refuses. */
static __always_inline int buy(__u32 plan, __u32 leaf, const struct class *class,
			       struct node *node, struct class_slot *slot, __u64 want, __u64 now)
{
	struct way way = { .want = want, .now = now, .plan = plan };
	__s64 delay, own;
	const struct class *lender = class;
	struct node *lending = node;

	/* What a class shares without assured rates is within its assured rate as a whole. */
	if (class->lender) {
		lender = class_of(plan, class->lender);
		lending = node_of(class->lender);
		if (!lender || !lending)
			return FULL;
	}
	__sync_fetch_and_add(&node->offered, slot->offered);
	slot->offered = 0;
	way.at = class->parent;
	for (int level = 1; level < LEVELS_MAX && way.at; level++)
		refresh(&way);
	own = ahead(&lending->own, now, lender->burst);
	delay = ahead(&node->clock, now, class->burst);
	slot->delay = delay > 0 ? delay : 0;
	slot->borrows = class->parent && own > (__s64)class->limit;
	if (delay > (__s64)class->limit)
		way.refused = delay - class->limit;
	way.at = class->parent;
	way.place = place_of(class->prio, 0);
	way.borrows = slot->borrows;
	for (int level = 1; level < LEVELS_MAX && way.at && !way.refused; level++)
		look(&way);
	if (delay > (__s64)(class->limit / 8) || way.refused)
		*(volatile __u64 *)&node->unsatisfied_at = now;
	if (way.refused) {
		slot->refused_until = now + min(way.refused, REFUSED_MAX);
		return FULL;
	}
	__sync_fetch_and_add(&node->clock, time_for(want, rate_of(class, node)));
	if (class->parent && !slot->borrows)
		__sync_fetch_and_add(&lending->own, time_for(want, lender->rate));
	way.at = class->parent;
	for (int level = 1; level < LEVELS_MAX && way.at; level++)
		book(&way);
	return SEND;
}

/* Sells `bytes` to the leaf, whatever has been sold: all classes on its way wait longer for it. */
static __always_inline void sell_anyway(__u32 plan, __u32 leaf, const struct class *class,
					__u64 bytes)
{
	struct way way = { .want = bytes, .plan = plan, .at = class->parent };
	struct node *node = node_of(leaf);

	if (class->rules == FLOWVALVE) {
		charge_anyway(plan, leaf, bytes);
		return;
	}
	if (!node)
		return;
	__sync_fetch_and_add(&node->clock, time_for(bytes, rate_of(class, node)));
	for (int level = 1; level < LEVELS_MAX && way.at; level++)
		book(&way);
}

/* The verdict by FlowValve's rules. */
static __always_inline int meter_by_label(__u32 plan, __u32 leaf, struct class_slot *slot,
					  __u64 cost)
{
	int got = pass_valve(plan, leaf, cost);

	if (got == NO_TOKENS)
		return FULL;
	slot->borrows = got == LENT_TOKENS;
	return SEND;
}

/* The verdict on a packet of `leaf` that is charged `cost` bytes. */
static __always_inline int meter(__u32 plan, __u32 leaf, const struct class *class,
				 struct class_slot *slot, __u64 cost)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct node *node;
	__u64 want = cost;

	if (cost > SALE_MAX)
		return FULL;
	if (class->rules == FLOWVALVE)
		return meter_by_label(plan, leaf, slot, cost);
	slot->offered += cost;
	/* Signed: the coarse clock may be behind the purchase. */
	if (slot->credit >= (__s64)cost && slot->delay <= class->target &&
	    (__s64)(now - slot->bought) < (__s64)PURSE_EXPIRED) {
		slot->credit -= cost;
		return SEND;
	}
	node = node_of(leaf);
	if (!node)
		return FULL;
	now = bpf_ktime_get_ns();
	if (slot->credit < (__s64)cost || (__s64)(now - slot->bought) > (__s64)PURSE_EXPIRED) {
		if ((__s64)(now - slot->refused_until) < 0)
			return FULL;
		if (now - slot->bought < BUSY)
			want += rate_of(class, node) * class->batch / SECOND;
		if (now - slot->bought > PURSE_EXPIRED)
			slot->credit = 0;
		want -= min(slot->credit, cost);
		if (buy(plan, leaf, class, node, slot, want, now) == FULL)
			return FULL;
		slot->credit += want;
		slot->bought = now;
	}
	if (is_wanted(class, &node->aqm, slot->delay, now))
		return MARK_OR_DROP;
	slot->credit -= cost;
	return SEND;
}

#endif
