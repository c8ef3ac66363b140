/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What became of a port's packets. */
#ifndef TOTALS_H
#define TOTALS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Of a port, on one CPU. Every packet is in exactly one of these, but for the last. */
struct totals {
	__u64 to_self;			/* addressed to this box, given to its kernel */
	__u64 sent_packets;
	__u64 sent_bytes;
	__u64 dropped_bytes;
	__u64 limit_drops;		/* the virtual queue was full */
	__u64 aqm_drops;
	__u64 unclassified_drops;
	__u64 port_gone_drops;		/* the other port takes no frames */
	__u64 filter_drops;		/* a filter said so */
	__u64 lost_behind;		/* of those sent: dropped on the way to another CPU */
};

/* What left by the tree's own way, and what the kernel sent (tree_slow_path). */
#define SLOW_PATH 1

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

#endif
