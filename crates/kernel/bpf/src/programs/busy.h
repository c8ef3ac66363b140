/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How many flows are busy with their shares (flow_clock.h), in each slot of a class's calendar.
 *
 * A slot has the time for which flows are busy in it. So a flow that is busy for half of a slot is
 * half a flow there, and the sum is the number of flows that are busy at that time.
 *
 * Where a class shares among hosts first, each flow counts by its weight, and the sum is the number
 * of hosts. Beside it each host has slots of its own, in which its flows count as flows
 * (host_load.h).
 */
#ifndef BUSY_H
#define BUSY_H

#include "calendar.h"
#include "host_load.h"

/* The slots over which the number of flows is a mean. */
#define LATELY 16
/* One flow, or one host. */
#define ONE (1ULL << SLOT_SHIFT)

/* A flow that is busy from one time to another. */
struct busy {
	__u64 from;
	__u64 until;
	__u64 slot;
	__u64 end;			/* of the calendar, as a slot */
	__u64 load;			/* of its host: one by its weight, as a multiple of 2^-20 */
	__u64 bytes;			/* of the rate, in whose time its host uses up as much of its share */
	__u32 class;
	__u32 shift;
	__u32 host;			/* or NO_HOST */
};

/* In a map for the reason that bookings are. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct busy);
} busy_times SEC(".maps");

static __always_inline struct busy *busy_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&busy_times, &zero);
}

/* Adds to the sum of a slot. A global function: it is looked at once. */
__noinline int add_to(__u64 *entry, __u64 slot, __u64 time)
{
	if (!entry)
		return 0;
	for (int i = 0; i < TRIES; i++) {
		__u64 was = *(volatile __u64 *)entry;
		__u64 is = slot << 32 | (sum_in(was, slot) + time);

		if (__sync_val_compare_and_swap(entry, was, is) == was)
			break;
	}
	return 0;
}

static long add_busy(__u32 index, void *unused)
{
	struct busy *of = busy_here();
	struct calendar *calendar;
	struct host_load *host;
	__u64 slot, begins, ends;
	__u64 length;

	if (!of)
		return 1;
	calendar = calendar_of(of->class);
	slot = of->slot;
	begins = slot << of->shift;
	ends = begins + (1ULL << of->shift);
	if (!calendar || slot >= of->end || begins >= of->until)
		return 1;
	length = min(ends, of->until) - max(begins, of->from);
	length >>= of->shift - SLOT_SHIFT;
	of->slot = slot + 1;
	if (of->host == NO_HOST) {
		add_to(&calendar->busy[slot & (SLOTS - 1)], slot, length);
		return 0;
	}
	add_to(&calendar->busy[slot & (SLOTS - 1)], slot, length * ONE / max(of->load, ONE));
	host = host_load_of(of->host);
	if (host)
		add_to(&host->busy[slot & (SLOTS - 1)], slot, length);
	return 0;
}

/* Counts the flow that this CPU is at in all slots of its time. */
__noinline int count_busy(void)
{
	struct busy *of = busy_here();

	if (!of)
		return 0;
	of->slot = of->from >> of->shift;
	bpf_loop(SLOTS, add_busy, 0, 0);
	return 0;
}

/* Uses up the share of the host whose flow this CPU is at, if hosts count. A host, too, gets more as
 * long as bytes are lost. */
__noinline int use_host_share(__u64 now, __u64 rate)
{
	struct busy *of = busy_here();
	struct calendar *calendar;
	struct host_load *host;
	__u64 time;

	if (!of || of->host == NO_HOST)
		return 0;
	calendar = calendar_of(of->class);
	host = host_load_of(of->host);
	if (!calendar || !host)
		return 0;
	time = time_for(of->bytes, rate);
	time -= time / 1024 * calendar->more;
	*(volatile __u64 *)&host->finish = max(host->finish, now) + time;
	if (of->until > host->until)
		*(volatile __u64 *)&host->until = of->until;
	return 0;
}

/* How many flows are busy, as a multiple of 2^-20, and at least one: as many as there lately were, or
 * those that are known to be in a slot to come. The mean is over several packets: what is busy in
 * the present slot changes with each packet of a small flow. */
static __always_inline __u64 busy_flows(const __u64 *busy, __u64 now, __u64 later)
{
	__u64 lately = 0;

	for (int i = 1; i <= LATELY; i++)
		lately += sum_in(busy[(now - i) & (SLOTS - 1)], now - i);
	lately = max(lately / LATELY, ONE);
	return later > now ? max(lately, sum_in(busy[later & (SLOTS - 1)], later)) : lately;
}

/* The flows of a class, or its hosts. A global function: what calls it has little stack left, and the
 * verifier looks at it once. */
__noinline __u64 busy_in(__u32 class, __u64 now, __u64 later)
{
	struct calendar *calendar = calendar_of(class);

	return calendar ? busy_flows(calendar->busy, now, later) : ONE;
}

/* The flows of a host. */
__noinline __u64 load_of_host(__u32 number, __u64 now, __u64 later)
{
	struct host_load *host = host_load_of(number);

	return host ? busy_flows(host->busy, now, later) : ONE;
}

#endif
