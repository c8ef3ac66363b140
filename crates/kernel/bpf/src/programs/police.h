/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rate limits of a filter: for all its packets together, or for each source, destination or
 * flow.
 *
 * An account is one word: the time up to which its rate is sold. A packet advances it by its
 * cost in time, and conforms if the result is not later than now; unused time up to the burst
 * is kept as credit. So an account that was not charged for the time of its burst equals a new
 * one, and can be forgotten. A blocked account is sold up to the end of the block. Packets that
 * exceed write nothing.
 *
 * Accounts by key are in a set-associative table with rows of WAYS. It has a fixed size, and
 * keys are hashed with a secret. A new key replaces the account of its row that is sold up to
 * the earliest time: the least recently used, without debt; never a blocked one. Spoofed
 * addresses could fill all rows this way, so the rate of new keys is limited (history-based
 * filtering: Peng, Leckie and Ramamohanarao 2003): existing accounts survive a flood of spoofed
 * addresses, and only other new keys compete with it.
 *
 * Races: two CPUs may charge an account at once (compare and swap). If one replaces an account
 * while another charges it, a packet is charged to the wrong one.
 */
#ifndef POLICE_H
#define POLICE_H

#include "packet.h"
#include "siphash.h"

/* Times are in parts of a nanosecond, so that a short packet at a high rate has a cost. */
#define TICKS_SHIFT 6
/* Fractions of a tick per byte. */
#define BYTE_SHIFT 12
#define WAYS 8
#define SALE_TRIES 4

#define COUNTERS_MAX 96

/* The key of an account. */
#define FOR_ALL 0
#define FOR_SOURCE 1
#define FOR_DESTINATION 2
#define FOR_FLOW 3

/* The result for a packet. */
#define CONFORMS 0
#define EXCEEDS 1
#define IS_BLOCKED 2
#define IS_NEW 3

struct police {
	__u64 per_byte;		/* ticks, in parts */
	__u64 per_packet;	/* ticks */
	__u64 burst;		/* ticks */
	__u64 block;		/* ticks; 0 for none */
	__u64 per_newcomer;	/* ticks */
	__u64 newcomers;	/* as many at once, in ticks */
	__u32 rows;		/* a power of two */
	__u32 longest;		/* bytes; 0 for any */
	__s32 per_frame;
	__u32 minimum;
	__u32 account;
	__u32 who;
};

struct account {
	__u64 tag;		/* the key's hash; 0 if unused */
	__u64 sold;
};

struct row {
	struct account ways[WAYS];
};

/* On a cache line of its own. */
struct common {
	__u64 sold;
	__u64 newcomers;
	__u64 reserved[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTERS_MAX);
	__type(key, __u32);
	__type(value, struct common);
} commons SEC(".maps");

struct rows {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct row));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, COUNTERS_MAX);
	__type(key, __u32);
	__array(values, struct rows);
} accounts SEC(".maps");

const volatile __u64 secret[2];

/* The earliest time up to which an account with the clock `sold` may count as sold. One that was
 * never charged has all of its burst, also on a machine that is up for less time than that. */
static __always_inline __u64 sold_up_to(__u64 sold, __u64 burst, __u64 now)
{
	return !sold || (__s64)(now - burst - sold) > 0 ? now - burst : sold;
}

/* Whether an account covers `first`, the cost of a packet's first frame; charges `cost`, that of
 * all its frames. So what the kernel has merged is not refused because of its length: the
 * account goes into debt for it. */
static __always_inline int sell(__u64 *account, __u64 first, __u64 cost, __u64 burst, __u64 now)
{
#pragma unroll
	for (int i = 0; i < SALE_TRIES; i++) {
		__u64 before = *(volatile __u64 *)account;
		__u64 from = sold_up_to(before, burst, now);

		if ((__s64)(from + first - now) > 0)
			return 0;
		if (__sync_val_compare_and_swap(account, before, from + cost) == before)
			return 1;
	}
	/* Other CPUs were faster each time. Conforms, and may put the account into debt. */
	__sync_fetch_and_add(account, cost);
	return 1;
}

/* The key of a packet. */
static __always_inline __u64 tag_of(const struct packet *packet, __u32 who)
{
	struct siphash sip = sip_begin(secret[0], secret[1]);
	__u64 words = 2;

	sip_add(&sip, packet->ip);
	if (who == FOR_DESTINATION) {
		sip_add(&sip, packet->words[2]);
		sip_add(&sip, packet->words[3]);
		words = 3;
	} else {
		/* Only the first half of an IPv6 source: a host chooses the other freely. */
		sip_add(&sip, packet->words[0]);
		if (who == FOR_FLOW) {
			sip_add(&sip, packet->words[1]);
			sip_add(&sip, packet->words[2]);
			sip_add(&sip, packet->words[3]);
			sip_add(&sip, packet->words[6]);
			words = 6;
		}
	}
	return sip_end(&sip, words) | 1;
}

static __always_inline int police_known(__u64 *account, const volatile struct police *police,
					__u64 first, __u64 cost, __u64 now)
{
	__u64 sold = *(volatile __u64 *)account;

	/* Only an account that is blocked, or in debt, is sold beyond now. */
	if ((__s64)(sold - now) > 0)
		return police->block ? IS_BLOCKED : EXCEEDS;
	if (sell(account, first, cost, police->burst, now))
		return CONFORMS;
	if (police->block)
		__sync_val_compare_and_swap(account, sold, now + police->block);
	return EXCEEDS;
}

static __always_inline int police_newcomer(struct row *row, const volatile struct police *police,
					   struct common *common, __u64 tag, __u64 first,
					   __u64 cost, __u64 now)
{
	struct account *account = &row->ways[0];
	__u64 sold = *(volatile __u64 *)&account->sold;

	if (first > police->burst)
		return EXCEEDS;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 other = *(volatile __u64 *)&row->ways[i].sold;
		int is_free = !*(volatile __u64 *)&row->ways[i].tag;

		if (is_free || (__s64)(other - sold) < 0) {
			account = &row->ways[i];
			sold = other;
		}
		if (is_free)
			break;
	}
	if ((sold && (__s64)(sold - now) > 0) ||
	    !sell(&common->newcomers, police->per_newcomer, police->per_newcomer,
		  police->newcomers, now))
		return IS_NEW;
	/* If another CPU is faster, this packet is not charged. */
	if (__sync_val_compare_and_swap(&account->sold, sold, now - police->burst + cost) == sold)
		*(volatile __u64 *)&account->tag = tag;
	return CONFORMS;
}

/* The result for `packet`, whose first frame costs `first` and all of them `cost`, by the
 * account of its key. */
static __always_inline int police_each(const struct packet *packet,
				       const volatile struct police *police,
				       struct common *common, __u64 first, __u64 cost, __u64 now)
{
	__u64 tag = tag_of(packet, police->who);
	__u32 number = police->account, at = (tag >> 32) & (police->rows - 1);
	void *rows = bpf_map_lookup_elem(&accounts, &number);
	struct row *row = rows ? bpf_map_lookup_elem(rows, &at) : 0;

	if (!row)
		return CONFORMS;
	for (int i = 0; i < WAYS; i++)
		if (*(volatile __u64 *)&row->ways[i].tag == tag)
			return police_known(&row->ways[i].sold, police, first, cost, now);
	return police_newcomer(row, police, common, tag, first, cost, now);
}

static __always_inline int police_packet(const struct packet *packet,
					 const volatile struct police *police)
{
	__u64 packets = packets_of(packet), cost, first, now;
	/* Of each frame, on average. */
	__u64 bytes = (__s64)(packet->bytes / packets) + police->per_frame;
	__u32 number = police->account;
	struct common *common;

	if (packet->has & PACKET_CUT_TOO_FINE)
		return EXCEEDS;
	if ((__s64)bytes < police->minimum)
		bytes = police->minimum;
	if (police->longest && bytes > police->longest)
		return EXCEEDS;
	first = (bytes * police->per_byte >> BYTE_SHIFT) + police->per_packet;
	cost = first * packets;
	common = bpf_map_lookup_elem(&commons, &number);
	if (!cost || !common)
		return CONFORMS;
	now = bpf_ktime_get_ns() << TICKS_SHIFT;
	if (police->who != FOR_ALL)
		return police_each(packet, police, common, first, cost, now);
	return sell(&common->sold, first, cost, police->burst, now) ? CONFORMS : EXCEEDS;
}

#endif
