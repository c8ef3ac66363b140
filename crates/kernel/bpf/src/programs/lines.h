/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a port's programs share with user space about the lines that somebody follows (trips.h).
 * src/trips.rs says the layout in Rust.
 */
#ifndef LINES_H
#define LINES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TRIPS_MAX 512
#define AWAITED_MAX 2048
/* A trip is in microseconds below these bits, a hash of its connection above, and one of its host above
 * that. */
#define TRIP_TIME_BITS 24
#define TRIP_CONNECTION_BITS 16

/* The ports whose lines are followed: that where packets of this program leave, and those where they
 * arrive by the index of their device. */
#define LEAVES_HERE 0
#define LINES_MAX 64

/* A segment that is timed. */
struct awaited {
	__u64 left;			/* when it left */
	__u32 connection;
	__u32 stamp;			/* its stamp */
	__u32 newest;			/* the newest of the connection */
	__u32 is_open;			/* whether it awaits its answer */
};

struct line {
	__u64 next;			/* trips that there have been */
	__u64 unused[7];
	__u64 trips[TRIPS_MAX];		/* the newest */
	struct awaited awaited[AWAITED_MAX];
};

/* Made by user space. */
struct line_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct line));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, LINES_MAX);
	__type(key, __u32);
	__array(values, struct line_map);
} lines SEC(".maps");

#endif
