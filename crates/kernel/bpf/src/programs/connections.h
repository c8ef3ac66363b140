/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which server a recorded connection is at.
 *
 * A row is a cache line of eight words. A word has 36 bits of a connection's hash, the time when it
 * was used last, and the server. So a look-up touches one line, a change is one atomic exchange,
 * and no lock is taken. A connection that finds no room in its row takes the place of the one that
 * has been silent for the longest time.
 *
 * The hash has a secret: without it, connections that share a row cannot be chosen. Two connections
 * of one row are taken for each other with a probability of 2^-36.
 *
 * Cost: one cache line.
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

static __always_inline __u32 time_now(void)
{
	return bpf_ktime_get_ns() >> TIME_UNIT_SHIFT & TIME_MASK;
}

static __always_inline struct row *row_of(__u64 hash)
{
	__u32 number = hash & rows_mask;

	return bpf_map_lookup_elem(&connections, &number);
}

static __always_inline __u64 record_of(__u64 hash, __u32 now, __u32 server)
{
	return hash >> TAG_SHIFT << TAG_SHIFT | (__u64)now << TIME_SHIFT | server;
}

/* How many units ago the record was used, at most TIME_MASK. */
static __always_inline __u32 age(__u64 record, __u32 now)
{
	return (now - (__u32)(record >> TIME_SHIFT)) & TIME_MASK;
}

/* The server of the connection `hash`, or 0 if it is not recorded, or has been silent for more than
 * `most` units. It is used now. */
static __always_inline __u32 recorded(__u64 hash, __u32 now, __u32 most)
{
	struct row *row = row_of(hash);

	if (!row)
		return 0;
	for (int i = 0; i < WAYS; i++) {
		__u64 record = *(volatile __u64 *)&row->ways[i];

		if (!(record & SERVER_MASK) || record >> TAG_SHIFT != hash >> TAG_SHIFT)
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

/* Records that the connection `hash` is at `server`. */
static __always_inline void put_record(__u64 hash, __u32 now, __u32 server)
{
	struct row *row = row_of(hash);
	__u64 oldest = 0;
	__u32 at = 0, oldest_age = 0;

	if (!row)
		return;
	for (int i = 0; i < WAYS; i++) {
		__u64 record = *(volatile __u64 *)&row->ways[i];
		__u32 its_age = !(record & SERVER_MASK) ? TIME_MASK + 1 : age(record, now) + 1;

		if (record & SERVER_MASK && record >> TAG_SHIFT == hash >> TAG_SHIFT)
			its_age = TIME_MASK + 2;
		if (its_age > oldest_age) {
			oldest_age = its_age;
			oldest = record;
			at = i;
		}
	}
	__sync_val_compare_and_swap(&row->ways[at & (WAYS - 1)], oldest,
				    record_of(hash, now, server));
}

#endif
