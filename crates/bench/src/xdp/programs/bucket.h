/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the token buckets that `tree` is measured beside have in common: a rate, and
 * which bucket a frame belongs to.
 */
#ifndef BUCKET_H
#define BUCKET_H

#include "out.h"

#define SECOND 1000000000ULL
/* Credit after a pause, and how far a bucket may be sold ahead, in ns. */
#define BURST 1000000ULL
/* A bucket for each CPU that is to have its own. */
#define BUCKETS 64
/* Where the lower byte of a UDP packet's destination port is, behind an IPv4 header. */
#define CHOICE 37

/* In bytes a second. Set before the program is loaded. */
const volatile __u64 rate = 1;

/* Which bucket: what the frame says, so that CPUs can share one or have each their own. */
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

/* A bucket as the time up to which its rate is sold. Charges `cost`, or says that it is full. */
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
