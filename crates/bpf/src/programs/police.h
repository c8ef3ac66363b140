/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Up to which rate packets conform: all of a filter together, or those of each source,
 * destination or flow by themselves.
 *
 * An account is one word: the time up to which its rate is sold. A packet sells its cost in
 * time; it conforms if that ends no later than now, and as much as the burst lasts may have
 * been saved up. So an account that has not been charged for as long as its burst lasts is
 * as good as a new one: to forget it loses nothing. One that is blocked is sold up to the end
 * of the block. A flood that exceeds writes nothing.
 *
 * Accounts of many are in a table of rows of WAYS. It has a fixed size, and keys are hashed
 * with a secret. Who comes without an account gets that of the row which was sold up to the
 * earliest time: least recently used, or in no debt; never a blocked one. As spoofed
 * addresses could take all rows so, newcomers have a rate of their own (history-based
 * filtering: Peng, Leckie and Ramamohanarao 2003): who has an account keeps it, however many
 * addresses a flood invents, and only those who come meanwhile compete with it.
 *
 * Races: two CPUs may charge an account at once (compare and swap). One may take an account
 * while another charges it: a packet is then charged to the wrong one.
 */
#ifndef POLICE_H
#define POLICE_H

#include "packet.h"
#include "siphash.h"

/* Times are in parts of a nanosecond, so that a short packet at a high rate has a cost. */
#define TICKS_SHIFT 6
/* Ticks for a byte are counted in so many parts. */
#define BYTE_SHIFT 12
#define WAYS 8
#define SALE_TRIES 4

#define COUNTERS_MAX 97

/* For whom there is an account. */
#define FOR_ALL 0
#define FOR_SOURCE 1
#define FOR_DESTINATION 2
#define FOR_FLOW 3

/* What is said of a packet. */
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
	__u64 tag;		/* of whom; 0 for nobody */
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

/* What was sold up to `sold` may still be sold from there on. */
static __always_inline __u64 sold_up_to(__u64 sold, __u64 burst, __u64 now)
{
	return (__s64)(now - burst - sold) > 0 ? now - burst : sold;
}

/* Whether `cost` is sold of an account. */
static __always_inline int sell(__u64 *account, __u64 cost, __u64 burst, __u64 now)
{
#pragma unroll
	for (int i = 0; i < SALE_TRIES; i++) {
		__u64 before = *(volatile __u64 *)account;
		__u64 after = sold_up_to(before, burst, now) + cost;

		if ((__s64)(after - now) > 0)
			return 0;
		if (__sync_val_compare_and_swap(account, before, after) == before)
			return 1;
	}
	/* Others were faster each time. It is sold, and they will pay for it. */
	__sync_fetch_and_add(account, cost);
	return 1;
}

/* Of whom a packet is. */
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
		/* Of an IPv6 source its first half: the other is anybody's to choose. */
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
					__u64 cost, __u64 now)
{
	__u64 sold = *(volatile __u64 *)account;

	/* Only a block is sold further than now. */
	if ((__s64)(sold - now) > 0)
		return IS_BLOCKED;
	if (sell(account, cost, police->burst, now))
		return CONFORMS;
	if (police->block)
		__sync_val_compare_and_swap(account, sold, now + police->block);
	return EXCEEDS;
}

static __always_inline int police_newcomer(struct row *row, const volatile struct police *police,
					   struct common *common, __u64 tag, __u64 cost,
					   __u64 now)
{
	struct account *account = &row->ways[0];
	__u64 sold = *(volatile __u64 *)&account->sold;

	if (cost > police->burst)
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
	if ((__s64)(sold - now) > 0 ||
	    !sell(&common->newcomers, police->per_newcomer, police->newcomers, now))
		return IS_NEW;
	/* Whoever is faster has it, and this packet is charged to nobody. */
	if (__sync_val_compare_and_swap(&account->sold, sold, now - police->burst + cost) == sold)
		*(volatile __u64 *)&account->tag = tag;
	return CONFORMS;
}

/* What is said of `packet`, which costs `cost`, by the account of whom it is of. */
static __always_inline int police_each(const struct packet *packet,
				       const volatile struct police *police,
				       struct common *common, __u64 cost, __u64 now)
{
	__u64 tag = tag_of(packet, police->who);
	__u32 number = police->account, at = (tag >> 32) & (police->rows - 1);
	void *rows = bpf_map_lookup_elem(&accounts, &number);
	struct row *row = rows ? bpf_map_lookup_elem(rows, &at) : 0;

	if (!row)
		return CONFORMS;
	for (int i = 0; i < WAYS; i++)
		if (*(volatile __u64 *)&row->ways[i].tag == tag)
			return police_known(&row->ways[i].sold, police, cost, now);
	return police_newcomer(row, police, common, tag, cost, now);
}

static __always_inline int police_packet(const struct packet *packet,
					 const volatile struct police *police)
{
	__u64 bytes = (__s64)packet->bytes + police->per_frame, cost, now;
	__u32 number = police->account;
	struct common *common;

	if ((__s64)bytes < police->minimum)
		bytes = police->minimum;
	if (police->longest && bytes > police->longest)
		return EXCEEDS;
	cost = (bytes * police->per_byte >> BYTE_SHIFT) + police->per_packet;
	common = bpf_map_lookup_elem(&commons, &number);
	if (!cost || !common)
		return CONFORMS;
	now = bpf_ktime_get_ns() << TICKS_SHIFT;
	if (police->who != FOR_ALL)
		return police_each(packet, police, common, cost, now);
	return sell(&common->sold, cost, police->burst, now) ? CONFORMS : EXCEEDS;
}

#endif
