/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a port's queues and `slow_path` know of each other. src/slow_path/share.rs says the same in
 * Rust.
 */
#ifndef SLOW_PATH_H
#define SLOW_PATH_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Two cache lines: what the program writes, and what user space does. */
struct share {
	__u64 sent_packets;
	__u64 sent_bytes;
	__u64 dropped_packets;
	__u64 dropped_bytes;
	__u64 charged;			/* what was sent, as the limit counts it, in bytes */
	__u64 clock;			/* up to when its part of the rate is used */
	__u64 control_clock;		/* and control's */
	__u64 unused;

	__u64 rate;			/* of the port, in bytes per second; 0 if nothing is charged */
	__s32 per_frame;		/* the limit's overhead (overhead.h) */
	__u16 minimum;
	__u16 framing;
	__u64 waiting_at;		/* when packets last waited at the limit */
	__u64 claimed;			/* of `charged`, what queues have charged; theirs alone */
	__u64 reserved[4];
};

/* Made by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct share);
} shares SEC(".maps");

#endif
