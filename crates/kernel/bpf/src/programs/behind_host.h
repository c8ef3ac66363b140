/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What is behind a tree at a host's port; empty if frames go up the stack there. */
#ifndef BEHIND_HOST_H
#define BEHIND_HOST_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} behind_host SEC(".maps");

#endif
