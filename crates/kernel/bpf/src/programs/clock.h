/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Clocks that say up to when a rate is sold. Several CPUs advance them, one atomic addition each. */
#ifndef CLOCK_H
#define CLOCK_H

#include <linux/types.h>
#include "numbers.h"

#define SECOND 1000000000ULL

static __always_inline __u64 time_for(__u64 bytes, __u64 rate)
{
	return (bytes * SECOND + rate / 2) / max(rate, 1);
}

/* How far `clock` is ahead of `now`; raises it if credit would be older than `burst`. */
static __always_inline __s64 ahead(__u64 *clock, __u64 now, __u64 burst)
{
	__u64 at = *(volatile __u64 *)clock;

	if ((__s64)(at + burst - now) < 0) {
		__u64 lifted = now - burst;

		/* Another CPU that raises it raises it as far. */
		__sync_val_compare_and_swap(clock, at, lifted);
		at = lifted;
	}
	return (__s64)(at - now);
}

#endif
