/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The program behind one that stands in front: it takes the frames that continue. */
#ifndef PLANE_H
#define PLANE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} plane SEC(".maps");

#endif
