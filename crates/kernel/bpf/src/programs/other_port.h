/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The other port, and how frames get there: at XDP into its driver, at tcx into its qdisc.
 */
#ifndef OTHER_PORT_H
#define OTHER_PORT_H

#include "frame.h"

#ifndef TCX

/* At 0. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} other_port SEC(".maps");

/* Drops the frame if there is no other port. */
static __always_inline int redirect(void)
{
	return bpf_redirect_map(&other_port, 0, XDP_DROP);
}

#else

/* At 0; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} other_port SEC(".maps");

static __always_inline int redirect(void)
{
	__u32 zero = 0, *port = bpf_map_lookup_elem(&other_port, &zero);

	return port && *port ? bpf_redirect(*port, 0) : TC_ACT_SHOT;
}

#endif

#endif
