/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Numbers compared. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u64 min(__u64 one, __u64 other)
{
	return one < other ? one : other;
}

static __always_inline __u64 max(__u64 one, __u64 other)
{
	return one > other ? one : other;
}

#endif
