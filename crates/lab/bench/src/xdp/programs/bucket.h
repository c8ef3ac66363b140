/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The parts that the reference token buckets share: a rate, and the choice of a frame's bucket.
 */
#ifndef BUCKET_H
#define BUCKET_H

#include "out.h"

#define SECOND 1000000000ULL
/* Credit after a pause, and how far a bucket may be sold ahead, in ns. */
#define BURST 1000000ULL
/* A bucket for each CPU, if CPUs have their own. */
#define BUCKETS 64
/* Where the lower byte of a UDP packet's destination port is, behind an IPv4 header. */
#define CHOICE 37

/* In bytes per second. Set before the program is loaded. */
const volatile __u64 rate = 1;

/* The bucket: chosen by the frame, so that CPUs can share one or each have their own. */
static __always_inline __u32 bucket_of(const struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	return data + CHOICE < data_end ? data[CHOICE] & (BUCKETS - 1) : 0;
}

/* How long the frame takes at the rate, in ns. */
static __always_inline __u64 time_of(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	return (__u64)(data_end - data) * SECOND / (rate ? rate : 1);
}

/* A bucket as the time up to which its rate is sold. Charges `cost`, unless it is full. */
static __always_inline int is_full(__u64 *clock, __u64 cost, __u64 now)
{
	if ((__s64)(*clock + BURST - now) < 0)
		*clock = now - BURST;
	if ((__s64)(*clock - now) > (__s64)BURST)
		return 1;
	*clock += cost;
	return 0;
}

#endif
