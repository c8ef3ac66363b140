/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Filters of a tree that no key under a mask can say: terms.
 *
 * A term makes tests. A test compares a number of the packet, and its outcome leads to another
 * test, or ends the term. So a term may be any expression of `and`, `or` and `not`, and no test
 * is made twice.
 *
 * Rules and terms have ranks in common, and the best of both decides. The terms of a scope are
 * in the order of their ranks, and are asked up to the best rule's. They are in a map, as rules
 * are, so that they change with the plan.
 *
 * Where a plan has terms, packet.h reads the headers, once for terms and rules. Other plans do
 * not pay for that.
 *
 * Non-goals: sets, policers, and what filters set. These are for filters in front (front.bpf.c).
 *
 * src/tree/term.rs says the same in Rust.
 */
#ifndef TERMS_H
#define TERMS_H

#include "find_class.h"
#include "hand_route.h"
#include "packet.h"
#include "segments.h"
#include "tree.h"

#define TERMS_MAX 64
#define TESTS_MAX 32
/* The most actions of a term, and the most that are counted, number 0 included, which is none. */
#define ACTIONS_MAX 3
#define COUNTED_MAX (TERMS_MAX * ACTIONS_MAX + 1)

/* In the place of the next test: the term matches, or does not. */
#define MATCHES 0xff
#define FAILS 0xfe

/* Where the number of a test is. */
enum number {
	/* A word of the packet, as it is there. */
	WORD,
	/* In the frame, from the start of a layer. */
	AT_LINK,
	AT_NETWORK,
	AT_TRANSPORT,
	/* Of the packet. */
	SOURCE_PORT,
	DESTINATION_PORT,
	MARK,
	LENGTH,
	ETHER_TYPE,
	TAG,
	PRIORITY,
	AT_CARRIER,
	/* Of the route that it takes: the last ones. */
	REALMS,
	METRIC,
};

enum relation {
	EQUAL,
	LESS,
	GREATER,
};

/* What a term does. */
enum does {
	ASSIGNS,	/* a class */
	DEFAULTS,	/* as if no filter matched */
	DROPS,
	CONTINUES,	/* counts, and leaves it to others */
};

struct test {
	__u64 value;
	__u64 mask;			/* after the shift */
	__s16 offset;			/* in a frame; of a word, which */
	__u8 number;
	__u8 size;			/* of it in a frame: 1, 2 or 4 bytes, */
	__u8 is_little_endian;		/* with the least significant one first */
	__u8 shift;			/* to the right; below 64 */
	__u8 relation;
	__u8 then;			/* the next test if it holds, */
	__u8 otherwise;			/* and if not */
	__u8 reserved[7];
};

struct term {
	__u32 rank;
	__u32 class;
	__u16 actions[ACTIONS_MAX];	/* that count it; 0 for none */
	__u8 first;			/* test, or MATCHES, or FAILS */
	__u8 does;
	struct test tests[TESTS_MAX];
};

struct acted {
	__u64 packets;
	__u64 bytes;
};

/* Of each plan. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * TERMS_MAX);
	__type(key, __u32);
	__type(value, struct term);
} terms SEC(".maps");

/* What each action saw. An action keeps its number from plan to plan. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTED_MAX);
	__type(key, __u32);
	__type(value, struct acted);
} acted SEC(".maps");

/* A number of `size` bytes at `at` in the frame, or NONE if it is shorter. */
static __always_inline __u64 number_at(struct context *ctx, __u32 at, __u32 size,
				       int is_little_endian)
{
	__u8 *bytes;

	/* An offset before the frame wraps to a large number, so it is outside, too. */
	if (at > OFFSET_MASK)
		return NONE;
	if (size == 1) {
		bytes = part(ctx, at, 1);
		return bytes ? bytes[0] : NONE;
	}
	if (size == 2) {
		bytes = part(ctx, at, 2);
		if (!bytes)
			return NONE;
		return is_little_endian ? bytes[1] << 8 | bytes[0] : bytes[0] << 8 | bytes[1];
	}
	bytes = part(ctx, at, 4);
	if (!bytes)
		return NONE;
	return is_little_endian ?
		       (__u32)bytes[3] << 24 | bytes[2] << 16 | bytes[1] << 8 | bytes[0] :
		       (__u32)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

/* The number that `test` compares and that is no word, or NONE if the packet has none. */
static __always_inline __u64 number_of(struct context *ctx, const struct packet *packet,
				       const struct test *test)
{
	const struct taken *route = test->number >= REALMS ? route_here() : 0;
	__u32 from = 0;

	switch (test->number) {
	case SOURCE_PORT:
		return bpf_ntohs(packet->source_port);
	case DESTINATION_PORT:
		return bpf_ntohs(packet->destination_port);
	case MARK:
		return packet->mark;
	case LENGTH:
		/* Of each frame, on average. */
		return packet->bytes / packets_of(packet);
	case ETHER_TYPE:
		return behind_tags(packet);
	case TAG:
		return packet->has & PACKET_TAG ? bpf_ntohs(packet->tag) : NONE;
	case PRIORITY:
		return packet->priority;
	case REALMS:
		return route ? route->realms : NONE;
	case METRIC:
		return route && route->metric != NO_METRIC ? route->metric : NONE;
	case AT_NETWORK:
		from = packet->network;
		break;
	case AT_CARRIER:
		from = packet->behind_tags;
		break;
	case AT_TRANSPORT:
		if (!packet->transport)
			return NONE;
		from = packet->transport;
	}
	return number_at(ctx, from + test->offset, test->size, test->is_little_endian);
}

/* What comes after `test`. A global function, as in find_class.h. */
__noinline __u32 after(struct context *ctx, struct packet *packet, struct test *test)
{
	__u64 number;
	__u32 word;
	int holds;

	if (!packet || !test)
		return FAILS;
	if (test->number == WORD) {
		word = test->offset;
		if (word >= PACKET_WORDS)
			return FAILS;
		holds = (packet->words[word] & test->mask) == test->value;
		return holds ? test->then : test->otherwise;
	}
	number = number_of(ctx, packet, test);
	/* A comparison with what the packet does not have does not hold. */
	if (number == NONE)
		return test->otherwise;
	number = (number >> (test->shift & 63)) & test->mask;
	if (test->relation == LESS)
		holds = number < test->value;
	else if (test->relation == GREATER)
		holds = number > test->value;
	else
		holds = number == test->value;
	return holds ? test->then : test->otherwise;
}

/* Whether the packet matches the term. A global function, as in find_class.h. */
__noinline int matches(struct context *ctx, struct packet *packet, struct term *term)
{
	__u32 at;

	if (!packet || !term)
		return 0;
	at = term->first;
	for (int i = 0; i < TESTS_MAX; i++) {
		if (at >= TESTS_MAX)
			break;
		at = after(ctx, packet, &term->tests[at]);
	}
	return at == MATCHES;
}

/* Counts the packet for the action `number`. */
__noinline int count_acted(__u32 number, __u32 bytes, __u32 packets)
{
	struct acted *counted = bpf_map_lookup_elem(&acted, &number);

	/* A slot belongs to one CPU, so plain additions are enough. */
	if (number && counted) {
		counted->packets += packets;
		counted->bytes += bytes;
	}
	return 0;
}

/* What `count` terms, the first of which is `from`, say of a packet, if they come before the rule
 * `best`: a class, or NONE if none does. Else `best`. */
__noinline __u64 find_term(struct context *ctx, struct packet *packet, __u32 from, __u32 count,
			   __u64 best)
{
	if (!packet)
		return NOWHERE;
	for (__u32 i = 0; i < TERMS_MAX && i < count; i++) {
		__u32 index = from + i;
		struct term *term = bpf_map_lookup_elem(&terms, &index);

		if (!term || term->rank > best >> 32)
			break;
		if (!matches(ctx, packet, term))
			continue;
#pragma unroll
		for (int action = 0; action < ACTIONS_MAX; action++)
			if (term->actions[action])
				count_acted(term->actions[action], packet->bytes,
					    packets_of(packet));
		if (term->does == CONTINUES)
			continue;
		if (term->does == DROPS)
			return FILTERED;
		return term->does == ASSIGNS ? term->class : NONE;
	}
	return best;
}

/* What rules compare of a packet. */
static __always_inline void key_of(const struct packet *packet, struct key *key)
{
	if (packet->ip == 6) {
		__builtin_memcpy(key->source, packet->source, 16);
		__builtin_memcpy(key->destination, packet->destination, 16);
	} else {
		__builtin_memcpy(key->source + 12, packet->source, 4);
		__builtin_memcpy(key->destination + 12, packet->destination, 4);
	}
	key->source_port = packet->source_port;
	key->destination_port = packet->destination_port;
	key->ether_type = packet->ether_type;
	key->protocol = packet->protocol;
	key->traffic_class = packet->traffic_class;
	key->ip = packet->ip;
	key->has = !!(packet->has & PACKET_PORTS) | packet->carrier << CARRIER_SHIFT;
	key->mark = packet->mark;
}

/* The class, or scope, of a packet in the scope `at`, by rules and terms. */
__noinline __u32 find_in_full(struct context *ctx, struct packet *packet, __u32 number, __u32 at,
			      struct key *key)
{
	struct plan *plan = bpf_map_lookup_elem(&plans, &number);
	__u32 index = number * SCOPES_MAX + (at & (SCOPES_MAX - 1));
	const struct scope *scope = bpf_map_lookup_elem(&scopes, &index);
	__u64 best;

	if (!plan || !scope || !packet || !key)
		return NOWHERE;
	if (is_named(scope, packet->priority))
		return find_named(number, packet->priority, scope->unknown);
	best = best_rule(number, plan, scope, at & (SCOPES_MAX - 1), key);
	best = find_term(ctx, packet, number * TERMS_MAX + scope->term, scope->terms, best);
	if (best != NONE)
		return best;
	return scope->otherwise[priority_of(packet->traffic_class, packet->priority) & 15];
}

/* The class of a frame under the plan `number`. Filters in front have set `mark` and `set`, its
 * priority; 0 where they have not. */
__noinline __u32 classify_in_full(struct context *ctx, __u32 number, __u32 mark, __u32 set)
{
	struct size size = size_of(ctx);
	struct packet packet = {};
	struct key key = {};
	__u32 class = SCOPE;

	packet.bytes = size.bytes;
	packet.packets = size.packets;
	packet.mark = mark;
	packet.priority = set;
	read_packet(ctx, &packet, 1);
	key_of(&packet, &key);
	for (int i = 0; i < SCOPES_DEEP && is_scope(class); i++)
		class = find_in_full(ctx, &packet, number, class, &key);
	return is_scope(class) ? NOWHERE : class;
}

#endif
