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
 *
 * AQM: CoDel's law on the virtual delay (K. Nichols, V. Jacobson; RFC 8289). A delay
 * above the target costs one packet, then one more each interval / sqrt(count) until
 * it is below. There are two differences, because a virtual queue delays no packet: the first
 * drop does not wait for an interval, since a slow start needs more room than there is; and
 * nothing is dropped while the delay falls. See docs/xdp.md.
 */
#ifndef METER_H
#define METER_H

#include "clock.h"
#include "share_out.h"

/* Five ticks of a kernel with HZ=250: the clock for credit is up to a tick old. */
#define PURSE_EXPIRED (20 * 1000000ULL)
/* A CPU that returns within this buys a batch, otherwise only what it needs. */
#define BUSY 1000000ULL
/* The longest that a refusal holds on a CPU. */
#define REFUSED_MAX 1000000ULL
#define COUNT_MAX 0xffff
/* The most bytes that are sold at once: what the longest packet that the kernel merges, of
 * 512 KiB, has on the wire, and what a link adds to its frames. */
#define SALE_MAX (1 << 21)

enum answer {
	SEND,
	MARK_OR_DROP,			/* the AQM signals congestion to the sender */
	FULL,				/* the virtual queue is full */
};

/* The rate at which a class may send now, in bytes per second. */
static __always_inline __u64 rate_of(const struct class *class, const struct node *node)
{
	__u64 grant = *(volatile __u64 *)&node->grant;

	return class->parent && grant ? min(grant, class->ceil) : class->rate;
}

/* The rate at which a class above sells: the ceiling below the root, since the class below it keeps
 * to its share. */
static __always_inline __u64 sold_at(const struct class *upper)
{
	return upper->parent ? upper->ceil : upper->rate;
}

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

/* A way from a leaf to the root. */
struct way {
	__u64 want;
	__u64 now;
	__u64 refused;			/* how far ahead a class on it is sold beyond its limit, in ns */
	__u32 plan;
	__u32 at;			/* the next class on it; 0 behind the root */
	__u32 place;
	__u32 borrows;
};

/* The next class on the way; 0 if it is not there, and then the way ends. */
static __always_inline int next_on(struct way *way, struct class **class, struct node **node)
{
	if (!way)
		return 0;
	*class = class_of(way->plan, way->at);
	*node = node_of(way->at);
	if (*class && *node)
		return 1;
	way->at = 0;
	return 0;
}

/* Steps along the way. They are global functions, so that the verifier looks at each by itself
 * and not once for each class on a way. */

/* Divides the rate of the next class if that is due. */
__noinline int refresh(struct way *way)
{
	struct class *upper;
	struct node *node;

	if (!next_on(way, &upper, &node))
		return 0;
	if ((__s64)(way->now - *(volatile __u64 *)&node->refreshed) > (__s64)EPOCH)
		share_out(way->plan, way->at, way->now);
	way->at = upper->parent;
	return 0;
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

	if (!node)
		return;
	__sync_fetch_and_add(&node->clock, time_for(bytes, rate_of(class, node)));
	for (int level = 1; level < LEVELS_MAX && way.at; level++)
		book(&way);
}

/* A step of Newton's method towards 1 / sqrt(count), as a fraction of 2^32 (sch_codel). */
static __always_inline __u32 inverse_root(__u32 inverse, __u32 count)
{
	__u64 square = ((__u64)inverse * inverse) >> 32;
	__u64 value = (3ULL << 32) - count * square;

	return (value >> 2) * inverse >> 31;
}

/* Whether the AQM signals with this packet. At most one CPU gets a yes for each due time. */
static __always_inline int is_wanted(const struct class *class, struct node *node, __u64 delay,
				     __u64 now)
{
	__u64 next = *(volatile __u64 *)&node->aqm_next;
	__u64 count = node->aqm_count;
	__u32 inverse;

	if (delay <= class->target) {
		if (next)
			*(volatile __u64 *)&node->aqm_next = 0;
		return 0;
	}
	if (!next) {
		/* At once, but for what the last one may not have been answered yet. Soon after
		 * it the count goes on from where it was enough. */
		__u64 since = now - node->aqm_last;

		next = since < class->interval ? node->aqm_last + class->interval : now;
		count = since < 16 * class->interval && count > 2 ? count - 2 : 0;
		if (__sync_val_compare_and_swap(&node->aqm_next, 0, next) != 0)
			return 0;
		node->aqm_count = count;
	}
	if ((__s64)(now - next) < 0)
		return 0;
	/* Senders have responded: the virtual queue drains. Waiting for it costs no latency. */
	if (count && delay < node->aqm_delay) {
		if (__sync_val_compare_and_swap(&node->aqm_next, next, now + class->interval) ==
		    next)
			node->aqm_delay = delay;
		return 0;
	}
	count = min(count + 1, COUNT_MAX);
	inverse = count == 1 ? ~0U : inverse_root(node->aqm_inverse, count);
	if (__sync_val_compare_and_swap(&node->aqm_next, next,
					now + (class->interval * inverse >> 32)) != next)
		return 0;
	node->aqm_count = count;
	node->aqm_inverse = inverse;
	node->aqm_last = now;
	node->aqm_delay = delay;
	return 1;
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
	if (is_wanted(class, node, slot->delay, now))
		return MARK_OR_DROP;
	slot->credit -= cost;
	return SEND;
}

#endif
