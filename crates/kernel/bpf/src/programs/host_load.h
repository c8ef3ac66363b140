/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How many flows of a host are busy, in classes that share among hosts first and then among the
 * flows of each host.
 *
 * The number is the host's *load*, CAKE's word (sch_cake.c, `srchost_bulk_flow_count`). Each of its
 * flows has a weight of one by that, so a host has one share of the rate, however many flows it has.
 * The class counts flows by their weights (calendar.h), and its sum is the number of busy hosts.
 *
 * The table has sets of four. A host that finds no entry free in its set is one with another host
 * there: both have one share.
 */
#ifndef HOST_LOAD_H
#define HOST_LOAD_H

#include "calendar.h"
#include "flow_clock.h"
#include "tree.h"

#define HOST_SETS 128
#define HOSTS_IN_SET 4
#define HOSTS (HOST_SETS * HOSTS_IN_SET)
/* In the place of a host: the class has no use for it. */
#define NO_HOST 0xffffffff

struct host_load {
	__u64 name;			/* its class, in the upper half, and its hash */
	__u64 until;			/* up to when its flows are busy, */
	__u64 finish;			/* and up to when it has used its share */
	__u64 busy[SLOTS];		/* time of its flows, as in a calendar of the class */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOSTS);
	__type(key, __u32);
	__type(value, struct host_load);
} host_loads SEC(".maps");

static __always_inline struct host_load *host_load_of(__u32 host)
{
	return bpf_map_lookup_elem(&host_loads, &host);
}

/* Whether a host has used its share up to this time. A global function, so that the verifier looks at
 * it once, and not on each way that leads to it. */
__noinline int has_used_share(__u32 host, __u64 time)
{
	struct host_load *load = host_load_of(host);

	return load && (__s64)(load->finish - time) > 0;
}

/* The entry of the host `hash` of a class. A global function: what calls it has little stack left. */
__noinline __u32 find_host(__u32 leaf, __u32 hash, __u64 now)
{
	__u32 first = (spread(leaf, hash) >> 25) * HOSTS_IN_SET, oldest = first;
	__u64 name = (__u64)leaf << 32 | hash, least = ~0ULL;
	struct host_load *load;

	for (__u32 host = first; host < first + HOSTS_IN_SET; host++) {
		load = host_load_of(host);
		if (!load)
			return NO_HOST;
		if (load->name == name)
			return host;
		if (load->until < least) {
			least = load->until;
			oldest = host;
		}
	}
	load = host_load_of(oldest);
	if (load && least < now)
		load->name = name;
	return oldest;
}

#endif
