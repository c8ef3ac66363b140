/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which server a recorded connection is at.
 *
 * A row is a cache line of eight words. A word has 36 bits of a connection's hash, the time when it
 * was used last, and the server. So a look-up touches one line of a row, a change is one atomic
 * exchange, and no lock is taken.
 *
 * The first sixteenth of the rows is the front, of 1 MiB: a connection is recorded there while its
 * row has room, and among the others only then. So as many connections as most boxes have are close
 * to each other, in a nearer cache than the whole table. What has been silent for longer than a
 * record of TCP counts leaves room in the front; what counts for longer is never there. A connection
 * that finds no room at all takes the place of the one of its row that has been silent for the
 * longest time.
 *
 * The hash has a secret: without it, connections that share a row cannot be chosen. Two connections
 * of one row are taken for each other with a probability of 2^-36.
 *
 * Cost: a cache line of the front; one more of the rest for a connection that is not there.
 */
#ifndef CONNECTIONS_H
#define CONNECTIONS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define WAYS 8
#define SERVER_MASK 0xffff
#define TIME_SHIFT 16
#define TIME_MASK 0xfff
#define TAG_SHIFT 28
/* A unit of time is 2^32 nanoseconds, or 4.3 s: ages are known up to 4.9 h. */
#define TIME_UNIT_SHIFT 32
/* A sixteenth is the front. For how many units records of it count: 15 minutes. */
#define FRONT_SHIFT 4
#define FRONT_MOST 209

struct row {
	__u64 ways[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} connections SEC(".maps");

/* A power of two, less one. Set before the program is loaded. */
const volatile __u32 rows_mask = 0;
const volatile __u64 connections_key[2] = {};

/* The clock that is a tick old costs next to nothing, and a unit is many ticks. */
static __always_inline __u32 time_now(void)
{
	return bpf_ktime_get_coarse_ns() >> TIME_UNIT_SHIFT & TIME_MASK;
}

/* The rows of the front, less one. */
static __always_inline __u32 front_mask(void)
{
	return rows_mask >> FRONT_SHIFT;
}

static __always_inline struct row *front_row(__u64 hash)
{
	__u32 number = hash & front_mask();

	return bpf_map_lookup_elem(&connections, &number);
}

/* By the bits that are not in the word. */
static __always_inline struct row *back_row(__u64 hash)
{
	__u32 front = front_mask() + 1;
	__u64 below = hash & ((1ULL << TAG_SHIFT) - 1);
	__u32 number = front + (below * (rows_mask + 1 - front) >> TAG_SHIFT);

	return bpf_map_lookup_elem(&connections, &number);
}

static __always_inline __u64 record_of(__u64 hash, __u32 now, __u32 server)
{
	return hash >> TAG_SHIFT << TAG_SHIFT | (__u64)now << TIME_SHIFT | server;
}

/* How many units ago the record was used, less than TIME_MASK. */
static __always_inline __u32 age(__u64 record, __u32 now)
{
	__u32 units = (now - (__u32)(record >> TIME_SHIFT)) & TIME_MASK;

	/* Another CPU may have used it since `now` was read, in the next unit. */
	return units == TIME_MASK ? 0 : units;
}

/* Whether the record is of the connection `hash`. */
static __always_inline int is_of(__u64 record, __u64 hash)
{
	return record & SERVER_MASK && record >> TAG_SHIFT == hash >> TAG_SHIFT;
}

/* The server of the connection `hash` in this row, or 0. It is used now. */
static __always_inline __u32 recorded_in(struct row *row, __u64 hash, __u32 now, __u32 most)
{
	if (!row)
		return 0;
	for (int i = 0; i < WAYS; i++) {
		__u64 record = *(volatile __u64 *)&row->ways[i];

		if (!is_of(record, hash))
			continue;
		if (age(record, now) > most)
			return 0;
		/* If another CPU has put something else there, that stays. */
		if (age(record, now))
			__sync_val_compare_and_swap(&row->ways[i], record,
						    record_of(hash, now, record & SERVER_MASK));
		return record & SERVER_MASK;
	}
	return 0;
}

/* The server of the connection `hash`, or 0 if it is not recorded, or has been silent for more than
 * `most` units. It is used now. */
static __always_inline __u32 recorded(__u64 hash, __u32 now, __u32 most)
{
	__u32 server = recorded_in(front_row(hash), hash, now, most);

	return server ? server : recorded_in(back_row(hash), hash, now, most);
}

/* Records in this row that the connection `hash` is at `server`, in the place of what has been
 * silent for at least `least` units. Whether there was one. */
static __always_inline int put_in(struct row *row, __u64 hash, __u32 now, __u32 server, __u32 least)
{
	__u64 oldest = 0;
	__u32 at = 0, oldest_age = 0;

	if (!row)
		return 0;
	for (int i = 0; i < WAYS; i++) {
		__u64 record = *(volatile __u64 *)&row->ways[i];
		__u32 its_age = !(record & SERVER_MASK) ? TIME_MASK + 1 : age(record, now);

		if (is_of(record, hash))
			its_age = TIME_MASK + 2;
		if (its_age >= oldest_age) {
			oldest_age = its_age;
			oldest = record;
			at = i;
		}
	}
	if (oldest_age < least)
		return 0;
	__sync_val_compare_and_swap(&row->ways[at & (WAYS - 1)], oldest,
				    record_of(hash, now, server));
	return 1;
}

/* Records that the connection `hash` is at `server`, where it counts for `most` units. What the
 * rest may still have of it is older, and stands behind it. */
static __always_inline void put_record(__u64 hash, __u32 now, __u32 server, __u32 most)
{
	if (most > FRONT_MOST || !put_in(front_row(hash), hash, now, server, FRONT_MOST + 1))
		put_in(back_row(hash), hash, now, server, 0);
}

#endif
