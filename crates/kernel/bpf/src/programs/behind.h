/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The one program behind a gate. The kernel empties the array when no process has it open any more. */
#ifndef BEHIND_H
#define BEHIND_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} behind SEC(".maps");

#endif
