/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * When an AQM signals congestion: CoDel's law on a delay that is known when a packet arrives
 * (K. Nichols, V. Jacobson; RFC 8289).
 *
 * A delay above the target costs one packet, then one more each interval / sqrt(count) until it is
 * below. There are two differences, because no packet has waited yet: the first drop does not wait
 * for an interval, since a slow start needs more room than there is; and nothing is dropped while
 * the delay falls. See docs/xdp.md.
 */
#ifndef AQM_H
#define AQM_H

#include "tree.h"

#define COUNT_MAX 0xffff

/* A step of Newton's method towards 1 / sqrt(count), as a fraction of 2^32 (sch_codel). */
static __always_inline __u32 inverse_root(__u32 inverse, __u32 count)
{
	__u64 square = ((__u64)inverse * inverse) >> 32;
	__u64 value = (3ULL << 32) - count * square;

	return (value >> 2) * inverse >> 31;
}

/* Whether the AQM signals with this packet. At most one CPU gets a yes for each due time. */
static __always_inline int is_wanted(const struct class *class, struct aqm *aqm, __u64 delay,
				     __u64 now)
{
	__u64 next = *(volatile __u64 *)&aqm->next;
	__u64 count = aqm->count;
	__u32 inverse;

	if (delay <= class->target) {
		if (next)
			*(volatile __u64 *)&aqm->next = 0;
		return 0;
	}
	if (!next) {
		/* At once, but for what the last one may not have been answered yet. Soon after
		 * it the count goes on from where it was enough. */
		__u64 since = now - aqm->last;

		next = since < class->interval ? aqm->last + class->interval : now;
		count = since < 16 * class->interval && count > 2 ? count - 2 : 0;
		if (__sync_val_compare_and_swap(&aqm->next, 0, next) != 0)
			return 0;
		aqm->count = count;
	}
	if ((__s64)(now - next) < 0)
		return 0;
	/* Senders have responded: the virtual queue drains. Waiting for it costs no latency. */
	if (count && delay < aqm->delay) {
		if (__sync_val_compare_and_swap(&aqm->next, next, now + class->interval) ==
		    next)
			aqm->delay = delay;
		return 0;
	}
	count = min(count + 1, COUNT_MAX);
	inverse = count == 1 ? ~0U : inverse_root(aqm->inverse, count);
	if (__sync_val_compare_and_swap(&aqm->next, next,
					now + (class->interval * inverse >> 32)) != next)
		return 0;
	aqm->count = count;
	aqm->inverse = inverse;
	aqm->last = now;
	aqm->delay = delay;
	return 1;
}

#endif
