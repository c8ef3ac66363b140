/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * When a packet departs: the earliest departure time that its flow, its class and the classes above
 * leave it. Somebody behind holds it until then (`fq`).
 *
 * A packet gets the first bytes of its class's calendar that are free from when its flow has used
 * up its share. So flows are spaced at their fair shares while they are many, and each takes what is
 * free when they are few. What borrows gets the first bytes after that which are free at each class
 * above; what a class has assured does not wait there, since it is never given away for long: the
 * shares of classes see to that (lend.h). If assured rates do not fit, shares alone would not hold
 * the ceiling: classes whose packets are few and far between seem to want nothing in turn. So a
 * class above lets what is assured or early go ahead of its bytes only so far, and then refuses it.
 *
 * *Flows that pause.* At exact shares, what a flow leaves free when it pauses would be lost: packets
 * of others have later times already. So flows get slightly more than their shares. Then packets
 * wait for room, and some of them waits for each byte that becomes free.
 *
 * *Sparse flows.* A small packet of a flow that has used less than its share departs at once,
 * though its bytes are booked where there is room: those behind it wait for it. What departs so
 * early is bounded by a part of the class's rate, so a flood of new flows waits as others do.
 *
 * *Floods.* What has a time already keeps it. So the longer flows wait that fill their queues whatever
 * the AQM says, the later others get their first bytes. Such flows have less room (flood.h), and
 * beside them longer packets, too, depart early of flows that have used less than their shares.
 *
 * *Hosts.* A class may share its rate among hosts first (dual-srchost and dual-dsthost of CAKE). Then
 * a flow's share is that of its host by the number of the host's flows.
 *
 * Packets of a flow keep their order, but for what the sender asks. Their delay is bounded by the
 * class's limit: what would wait longer is dropped. The AQM looks at the same delay, for each flow
 * by itself.
 *
 * Non-goals: order among flows at equal times, which `fq` has; taking back a departure time. A flow
 * that begins gets its share once what others have booked before has left.
 */
#ifndef DEPART_H
#define DEPART_H

#include "aqm.h"
#include "busy.h"
#include "calendar.h"
#include "flood.h"
#include "flow_clock.h"
#include "host_load.h"
#include "span.h"
#include "way.h"

/* A packet up to this charge may depart early. */
#define SPARSE_MAX 1600
/* The part of a rate that packets may depart early with, and how far ahead it is sold, in ns. */
#define EARLY_PART 2
#define EARLY_AHEAD (5 * 1000000ULL)
/* Beside a flood a longer packet, of so much time of the rate at most, departs early, too, if its bytes
 * are free so soon, in ns. A part of what may depart early is left to small packets. */
#define LONGER_MAX (1 * 1000000ULL)
#define SOON (16 * 1000000ULL)
#define LEFT_TO_SPARSE (EARLY_AHEAD / 2)
/* A packet that waits no longer than that does not wait, in ns. */
#define WAITS 200000ULL
/* A class wants more whose packets have waited for so long, in ns, and for eight of them. */
#define ALL_ALONG (16 * 1000000ULL)

/* A packet that finds room later than its share begins costs its flow nothing up to here, in ns or in
 * full frames, whichever is longer, and up to half of the limit. */
#define LATE_MAX (4 * 1000000ULL)
#define LATE_FRAMES 12

/* The part of the way from its share to the whole rate that a flow gets more at most, if its packets
 * find room at once; and what all flows of a class get, in 2^-10, as long as bytes of it are lost. */
#define SOON_PART 2
#define MORE_MAX 512
/* By so much of the bytes of a slot that were lost it grows, and by so much it falls in a slot once
 * packets wait for room. */
#define MORE_GROWS 64
#define MORE_FALLS 8

/* A packet that departs. */
struct departure {
	__u32 plan;
	__u32 leaf;			/* its class */
	__u32 host;			/* its host's entry (host_load.h), or NO_HOST */
	__u32 bytes;			/* what it is on the wire, */
	__u32 packets;			/* and in how many frames */
	__u64 cost;
	__u64 now;
	__u64 asked;			/* the sender's own departure time, or 0 */
	__u64 from;			/* when its flow's share begins */
	__u64 late;			/* how long it waits for room after that and what is asked, in ns */
	__u64 at;			/* when it departs */
	int at_once;			/* whether it waits for nothing */
	int is_control;			/* whether no class above refuses it */
	struct way way;			/* on which it is */
};

/* The packet that a CPU is at. Not on the stack, of which the divisions of classes need most. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct departure);
} departing SEC(".maps");

static __always_inline struct departure *departing_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&departing, &zero);
}

/* Sets up a booking at a class with a rate. It may use what was free for as long as its burst. */
static __always_inline void set_up(struct booking *of, __u32 number, const struct class *class,
				   __u64 rate, __u64 now)
{
	of->class = number;
	of->now = now;
	of->rate = rate;
	of->shift = shift_of(class);
	of->latest = now + class->limit;
	of->end = ((now - credit_of(class)) >> of->shift) + SLOTS;
}

/* Whether a packet departs for which a class above has no bytes before its limit. What is assured or
 * early does while the class owes no more than it sells in the time that a change of shares takes.
 * If the assured rates fit, it does not come to owe more; if not, its ceiling has to hold. */
static __always_inline int may_owe(const struct departure *packet, const struct booking *of)
{
	if (packet->is_control)
		return 1;
	return (packet->at_once || !packet->way.borrows) &&
	       of->left <= of->rate / (SECOND / SHARED_MAX);
}

/* Books at the next class above; what borrows departs no earlier than its bytes there. What is
 * refused takes no bytes further above. */
__noinline int book_above(struct departure *packet)
{
	struct booking *of = booking_here();
	struct calendar *calendar;
	struct class *upper;
	struct node *node;
	struct way *way;
	__u64 wait;

	if (!packet || !of)
		return 0;
	way = &packet->way;
	if (!next_on(way, &upper, &node))
		return 0;
	calendar = calendar_of(way->at);
	if (!calendar)
		return 0;
	set_up(of, way->at, upper, sold_at(upper), way->now);
	/* What is free before now is credit, and what is free after it is not. */
	of->from = packet->at > way->now ? packet->at : way->now - credit_of(upper);
	book_bytes();
	wait = min(of->start, of->latest);
	wait -= min(wait, packet->at + WAITS);
	/* Who comes for later than others sees what is sold. */
	if (wait < *(volatile __u64 *)&calendar->waits)
		*(volatile __u64 *)&calendar->waits = wait;
	if (of->start == NONE && !may_owe(packet, of)) {
		way->refused = 1;
		way->at = 0;
		return 0;
	}
	if (of->start == NONE)
		owe(calendar, of, packet->cost);
	else if (way->borrows)
		packet->at = max(packet->at, of->start);
	way->at = upper->parent;
	return 0;
}

/* Whether a packet of the class `leaf` and the flow `flow` may depart, by how long that flow's
 * packets wait. Nothing is booked yet. */
static __always_inline int judge_delay(struct departure *packet, const struct class *class,
				       struct node *node, struct flow_clock *flow)
{
	__u64 now = packet->now, most = reach_of(class), delay;
	int is_flood = is_flood_of(class, &flow->aqm, now);
	int waits = flow->last > now;

	if (is_flood)
		most = reach_of_flood(packet->plan, packet->leaf, flow->aqm.count, now);
	packet->from = max(now - credit_of(class), flow->finish);
	/* A flow of which nothing waits has room for a packet: if it is dropped, its sender may have
	 * no reason to try again for long. And one packet is no queue (CoDel). */
	if (!waits && !has_used_share(packet->host, now + most))
		packet->from = min(packet->from, now + most);
	delay = max(max(packet->from, flow->last), now) - now;
	if (packet->cost > SALE_MAX || delay > most) {
		*(volatile __u64 *)&node->unsatisfied_at = now;
		note_refused(packet->leaf, packet->cost, is_flood ? flow : 0, now);
		return FULL;
	}
	/* Packets of other hosts, which are spread further ahead, may leave it no room before. It is not
	 * their delay. */
	if (packet->host != NO_HOST)
		delay = max(packet->from, now) - now;
	return is_wanted(class, &flow->aqm, waits ? delay : 0, now) ? MARK_OR_DROP : SEND;
}

/* Whether a packet departs before the time of its bytes. */
static __always_inline int is_early(struct calendar *calendar, const struct class *class,
				    const struct flow_clock *flow,
				    const struct departure *packet, __u64 start, __u64 rate)
{
	__u64 now = packet->now, lasts;
	__s64 left = 0;

	if ((__s64)(flow->finish - now) > 0)
		return 0;
	if (packet->cost > SPARSE_MAX || (__s64)(flow->last - now) > 0) {
		if (!is_flooded(calendar, now) || start > now + SOON ||
		    packet->cost > rate / (SECOND / LONGER_MAX) ||
		    has_used_share(packet->host, now))
			return 0;
		left = LEFT_TO_SPARSE;
	}
	lasts = time_for(packet->cost, rate / EARLY_PART);
	/* A rate that is next to none may be another one soon. */
	if (lasts > class->limit || ahead(&calendar->early, now, EARLY_AHEAD) > -left)
		return 0;
	__sync_fetch_and_add(&calendar->early, lasts);
	return 1;
}

/* Once a slot: flows of the class get more if bytes of the slot before are lost, and less if packets
 * wait for room. What is lost of a class that borrows is not lost to those beside it. */
static __always_inline void adapt_more(struct calendar *calendar, const struct class *class,
				       const struct departure *packet, __u64 rate, __u32 shift,
				       __u64 late_max)
{
	__u64 slot = (packet->now >> shift) - 1, room, taken, more;

	if (class->parent || *(volatile __u64 *)&calendar->adapted == slot)
		return;
	*(volatile __u64 *)&calendar->adapted = slot;
	more = *(volatile __u64 *)&calendar->more;
	room = (rate << shift) / SECOND;
	if (!room)
		return;
	taken = sum_in(calendar->taken[slot & (SLOTS - 1)], slot);
	if (packet->late > late_max / 2)
		more -= min(more, more / MORE_FALLS + 1);
	else if (taken < room)
		more += (room - taken) * MORE_GROWS / room;
	*(volatile __u64 *)&calendar->more = min(more, MORE_MAX);
}

/* The time that the packet takes of its flow's share, in ns, where so many flows share the rate. It
 * is shorter than that for a flow that waits for its share: by what the class has found out, and the
 * more so the sooner the packet departs. What waits for longer leaves bytes to others until then. */
static __always_inline __u64 share_taken(const struct calendar *calendar, const struct class *class,
					 const struct departure *packet, __u64 flows, __u64 rate,
					 __u32 shift, __u64 late_max)
{
	__u64 lasts = time_for(packet->cost * (flows >> 10) >> (SLOT_SHIFT - 10), rate);
	__u64 waits = packet->from - min(packet->from, packet->now), alone, soon, part;

	/* A low rate may be a higher one soon. */
	lasts = min(lasts, (__u64)SLOTS << shift);
	if (!waits)
		return lasts;
	alone = time_for(packet->cost, rate);
	if (lasts <= alone || has_used_share(packet->host, packet->from))
		return lasts;
	part = (lasts - alone) / 1024 * *(const volatile __u64 *)&calendar->more;
	soon = min(2 * lasts, limit_of(class) / 2);
	if (packet->late < late_max && waits < soon)
		part += (lasts - alone) / SOON_PART * ((late_max - packet->late) >> 10) /
			((late_max >> 10) + 1) * ((soon - waits) >> 10) / ((soon >> 10) + 1);
	return max(lasts - min(lasts, part), alone);
}

/* Uses up so much of the flow's share. */
static __always_inline void use_share(struct flow_clock *flow, struct calendar *calendar,
				      __u32 leaf, const struct class *class,
				      const struct departure *packet, __u64 begins, __u64 rate,
				      __u32 shift)
{
	__u64 now = packet->now, flows = busy_in(leaf, now >> shift, begins >> shift);
	__u64 late_max = max(LATE_MAX, LATE_FRAMES * time_for(SPARSE_MAX, rate)), lasts;
	struct busy *busy = busy_here();

	if (!busy)
		return;
	busy->host = packet->host;
	busy->load = load_of_host(packet->host, now >> shift, begins >> shift);
	busy->bytes = packet->cost * (flows >> 10) >> (SLOT_SHIFT - 10);
	/* As many shares as there are hosts, and this host's in as many parts. */
	flows = (flows >> 10) * (busy->load >> 10);
	late_max = min(late_max, class->limit / 2);
	adapt_more(calendar, class, packet, rate, shift, late_max);
	lasts = share_taken(calendar, class, packet, flows, rate, shift, late_max);
	busy->class = leaf;
	busy->shift = shift;
	busy->end = (now >> shift) + SLOTS - 8;
	busy->from = max(now, flow->finish);
	flow->finish = max(packet->from, begins - late_max) + lasts;
	/* Of a flow below its share, too, the time counts that its packet takes. */
	busy->until = max(flow->finish, busy->from + lasts);
	count_busy();
	use_host_share(now, rate);
}

/* Notes whether the class wants more: it does if packets of it have waited for it all along. */
static __always_inline void note_wait(struct calendar *calendar, struct node *node,
				      const struct departure *packet, __u64 start, __u64 rate)
{
	__u64 now = packet->now, until = calendar->until;

	__u64 along = max(ALL_ALONG, 8 * time_for(packet->cost, rate));

	if (until <= now)
		*(volatile __u64 *)&calendar->even = now;
	if (start == NONE || (until > now && now - calendar->even > along))
		*(volatile __u64 *)&node->unsatisfied_at = now;
	if (start != NONE && start > max(now, packet->asked) + WAITS)
		*(volatile __u64 *)&calendar->until = max(until, start);
}

/* Books a packet and sets its departure. Returns whether there is one. */
static __always_inline int depart(const struct class *class, struct node *node,
				  struct flow_clock *flow, struct class_slot *slot,
				  struct departure *packet)
{
	__u32 plan = packet->plan, leaf = packet->leaf, shift;
	__u64 now = packet->now, rate, start, credit;
	struct way *way = &packet->way;
	struct booking *booking = booking_here();
	struct calendar *calendar = calendar_of(leaf);
	struct node *lending = node;
	const struct class *lender = class;

	if (!calendar || !booking)
		return 0;
	if (class->lender) {
		lender = class_of(plan, class->lender);
		lending = node_of(class->lender);
		if (!lender || !lending)
			return 0;
	}
	way->now = now;
	way->plan = plan;
	way->refused = 0;
	way->at = class->parent;
	for (int level = 1; level < LEVELS_MAX && way->at; level++)
		refresh(way);
	rate = rate_of(class, node);
	booking->want = packet->cost;
	/* What is asked for later than a calendar goes is booked as late as it goes. */
	booking->from = max(packet->from, min(packet->asked, now + class->limit / 2));
	set_up(booking, leaf, class, rate, now);
	/* Where a rate is shared it changes: less is booked ahead of that than the calendar goes. */
	booking->latest = now + limit_of(class);
	book_bytes();
	start = booking->start;
	shift = booking->shift;
	note_wait(calendar, node, packet, start, rate);
	if (!packet->at_once)
		packet->at_once = is_early(calendar, class, flow, packet, start, rate);
	packet->late = packet->at_once ? 0 : start - min(start, booking->from);
	if (start == NONE && !packet->at_once)
		return 0;
	if (start == NONE) {
		/* What waits leaves no room: later packets make some. */
		owe(calendar, booking, packet->cost);
		start = now;
	}
	packet->at = max(now, start);
	/* What is assured by then is not borrowed, though more of it comes now. Nor is what the
	 * calendar gives at once of a slot. */
	credit = lender->burst + (1ULL << shift);
	way->borrows = class->parent && ahead(&lending->own, now, credit) >
						(__s64)(packet->at - now);
	slot->borrows = way->borrows;
	way->at = class->parent;
	for (int level = 1; level < LEVELS_MAX && way->at; level++)
		book_above(packet);
	if (way->refused)
		return 0;
	if (class->parent && !way->borrows)
		__sync_fetch_and_add(&lending->own, time_for(packet->cost, lender->rate));
	flow->last = max(packet->at_once ? now : packet->at, flow->last);
	packet->at = max(flow->last, packet->asked);
	use_share(flow, calendar, leaf, class, packet, packet->at_once ? packet->from : start,
		  rate, shift);
	slot->delay = packet->at - now;
	return 1;
}

#endif
