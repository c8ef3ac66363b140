/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The near future of a class: how much of its rate is given away when.
 *
 * One clock that says up to when a rate is sold is a FIFO: who comes later departs later. A calendar
 * has room between: time is divided into slots, each with as many bytes as the rate has in that
 * time. A packet gets the first bytes that are free from a given time on. So flows and classes with
 * different delays share one rate, whose sum stays exact: no byte is given away twice. What has no
 * room before the calendar ends is owed, and is taken from the next packet's.
 *
 * A slot has a number, which grows with time, and its place is used again after a round. So an entry
 * has the number beside its sum, and what an old number says is nothing. Several CPUs change
 * entries, each with one compare-and-swap.
 *
 * The same slots count flows (busy.h).
 */
#ifndef CALENDAR_H
#define CALENDAR_H

#include "clock.h"
#include "tree.h"

#define SLOTS 128
/* The shortest slot lasts 2^20 ns. */
#define SLOT_SHIFT 20
#define SLOT_SHIFT_MAX 28
/* How often a CPU tries to change an entry that others change, too. */
#define TRIES 4
#define NONE (~0ULL)
/* What is owed is forgotten for so much time at once, in ns: so no rate overflows. */
#define SINCE_MAX (1ULL << 36)

/* Each entry: the slot's number in the upper half, and a sum. */
struct calendar {
	__u64 taken[SLOTS];		/* bytes */
	__u64 busy[SLOTS];		/* time of flows, in 2^-20 of a slot */
	__u64 owed;			/* bytes, */
	__u64 owed_from;		/* of the time from here on */
	__u64 early;			/* up to when what departs before its bytes has used its part */
	__u64 until;			/* when the last packet departs that waits for the class, */
	__u64 even;			/* and when there last was none */
	__u64 more;			/* by how much flows get more than their shares, in 2^-10 */
	__u64 adapted;			/* the last slot of which that is learnt */
	__u64 waits;			/* the least wait for it in this epoch, in ns */
	__u64 flooded;			/* when a flood was refused last (flood.h), */
	__u64 longest;			/* and the longest packet that was */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct calendar);
} calendars SEC(".maps");

static __always_inline struct calendar *calendar_of(__u32 class)
{
	return bpf_map_lookup_elem(&calendars, &class);
}

/* How long a slot lasts of a class that sells for a `span`, which is its burst and its limit: so
 * long that the calendar goes back for one and ahead for the other, and an eighth remains. A global
 * function, so that the verifier does not follow each of its ways to the end of the program. */
__noinline __u32 slot_shift(__u64 span)
{
	__u32 shift = SLOT_SHIFT;

	for (int i = 0; i < SLOT_SHIFT_MAX - SLOT_SHIFT; i++)
		shift += span >> shift > SLOTS * 7 / 8;
	return shift;
}

static __always_inline __u32 sum_in(__u64 entry, __u64 slot)
{
	return entry >> 32 == (__u32)slot ? (__u32)entry : 0;
}

/* Bytes that are wanted of a class, from some time on. */
struct booking {
	__u64 want;			/* of this packet */
	__u64 now;
	__u64 from;			/* not before that */
	__u64 latest;			/* nothing begins after that */
	__u64 rate;			/* bytes per second */
	__u64 slot;			/* the one looked at */
	__u64 last;			/* the last one that had bytes for it */
	__u64 end;			/* of the calendar, as a slot */
	__u64 left;			/* bytes still wanted, with those that are owed */
	__u64 start;			/* where the packet begins; NONE if nowhere */
	__u32 class;
	__u32 shift;
};

/* What a CPU is at. In a map and not on the stack: the verifier follows what is on the stack through
 * all turns of a loop. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct booking);
} bookings SEC(".maps");

static __always_inline struct booking *booking_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bookings, &zero);
}

/* Whether the packet begins in this slot and not in that of its own time, although it has some of its
 * bytes there: less than half of them, and none in between. The sum of a slot does not say which part
 * of it is taken, so each of several packets may find bytes there. If all of them began there, long
 * packets would depart together whose bytes are far apart. */
static __always_inline int begins_later(const struct booking *of, __u64 slot)
{
	__u64 own = of->from >> of->shift;

	return of->start != NONE && of->start >> of->shift == own && of->last == own &&
	       slot > own + 1 && of->left > of->want / 2;
}

/* Takes what is free in the next slot. */
static long take_slot(__u32 index, void *unused)
{
	struct booking *of = booking_here();
	struct calendar *calendar;
	__u64 slot, begins, room, before, offset, free, taken;
	__u64 *entry;
	int later;

	if (!of)
		return 1;
	calendar = calendar_of(of->class);
	slot = of->slot;
	if (!calendar || !of->left || slot >= of->end)
		return 1;
	begins = slot << of->shift;
	later = begins_later(of, slot);
	if ((of->start == NONE || later) && begins > of->latest) {
		of->start = NONE;
		return 1;
	}
	room = (of->rate << of->shift) / SECOND;
	entry = &calendar->taken[slot & (SLOTS - 1)];
	/* The part of the slot that is before the packet's time is not for it. */
	offset = of->from > begins ? of->rate * (of->from - begins) / SECOND : 0;
	for (int i = 0; i < TRIES; i++) {
		__u64 was = *(volatile __u64 *)entry;

		before = sum_in(was, slot);
		free = max(before, offset);
		free = room > free ? room - free : 0;
		if (!free)
			break;
		taken = min(free, of->left);
		if (__sync_val_compare_and_swap(entry, was, slot << 32 | (before + taken)) != was)
			continue;
		if (later)
			of->start = begins + time_for(before, of->rate);
		/* The packet begins behind what is owed. In the slot of its own time it need not
		 * wait for others, which are spread over it. */
		if (of->start == NONE && of->left - taken < of->want) {
			__u64 owed = of->left > of->want ? of->left - of->want : 0;

			of->start = begins + time_for(max(before, offset) + owed, of->rate);
		}
		of->left -= taken;
		of->last = slot;
		break;
	}
	of->slot = slot + 1;
	return 0;
}

/* Owes bytes of the time behind the calendar. */
static __always_inline void owe(struct calendar *calendar, const struct booking *of, __u64 bytes)
{
	*(volatile __u64 *)&calendar->owed_from = of->end << of->shift;
	__sync_fetch_and_add(&calendar->owed, bytes);
}

/* Takes what is owed, but for what the class had time for since. */
static __always_inline __u64 take_owed(struct calendar *calendar, const struct booking *of)
{
	__u64 since = of->now - min(of->now, *(volatile __u64 *)&calendar->owed_from);
	__u64 owed = *(volatile __u64 *)&calendar->owed;

	if (owed)
		owed = __sync_lock_test_and_set(&calendar->owed, 0);
	since = min(since, SINCE_MAX) >> 10;
	return owed - min(owed, since * of->rate / (SECOND >> 10));
}

/* Takes the first bytes that are free for what this CPU books, and sets where they begin. A global
 * function, so that the verifier looks at it once and not at each call. */
__noinline int book_bytes(void)
{
	struct booking *of = booking_here();
	struct calendar *calendar;

	if (!of)
		return 0;
	of->start = NONE;
	calendar = calendar_of(of->class);
	if (!calendar)
		return 0;
	of->left = of->want + take_owed(calendar, of);
	of->slot = of->from >> of->shift;
	bpf_loop(SLOTS, take_slot, 0, 0);
	/* A packet that does not leave owes nothing. */
	if (of->start == NONE)
		of->left -= min(of->left, of->want);
	if (of->left)
		owe(calendar, of, of->left);
	return 0;
}

#endif
