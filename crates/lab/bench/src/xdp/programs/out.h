/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where a frame goes that is not dropped: in a test run nowhere. Live frames leave by a port, as
 * those of the XDP plane do.
 */
#ifndef OUT_H
#define OUT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifdef LIVE

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} port SEC(".maps");

static __always_inline int go_on(void)
{
	return bpf_redirect_map(&port, 0, XDP_ABORTED);
}

#else

static __always_inline int go_on(void)
{
	return XDP_PASS;
}

#endif
#endif
