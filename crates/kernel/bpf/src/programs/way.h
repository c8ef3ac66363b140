/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The classes from a leaf to the root, which a packet asks one after the other, and their rates. */
#ifndef WAY_H
#define WAY_H

#ifdef DEPARTURES
#include "lend.h"
#else
#include "share_out.h"
#endif

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

#endif
