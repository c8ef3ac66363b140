// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * front: filters in the driver, or (front_tcx) at tcx, in front of a plane's program.
 *
 * Filters are terms, tested in order. A term has conditions (headers under masks, words of the
 * frame, look-ups in sets), which must all hold, and up to STEPS_MAX actions. Several terms may
 * form one filter: then one of them must match.
 *
 * Terms are constants, so other filters need another program. The verifier knows them in each
 * round of the loop over terms, goes only where they lead, and the kernel removes what none of
 * them needs. The first term's conditions are compiled by themselves.
 *
 * The loop must not be unrolled. With code for each term the program has 12,400 instructions
 * instead of 4,500. Packets take as long, and the verifier goes through as many, but loading
 * takes up to seven times as long: the kernel moves the rest of a program for each piece that it
 * removes, and Linux 7.3 follows pointers through all of a function, also through what is behind
 * constants that are not set. Objects for fewer terms would be short only for who has few.
 *
 * Frames that are not dropped continue to the plane's program by a tail call. Frames for the
 * box itself, if it has an address there, go there at once.
 *
 * Filters hand the mark and the priority that they set to a tree behind them (handed.h). Workers
 * evaluate the filters again themselves.
 *
 * Non-goals: classes.
 */
#include "frame.h"
#include "handed.h"
#include "packet.h"
#include "plane.h"
#include "police.h"
#include "self.h"
#include "sets.h"

#define TERMS_MAX 32
#define LOOK_UPS_MAX 4
#define SELECTORS_MAX 4
#define STEPS_MAX 3

/* What happens to a packet. */
#define PASS 0
#define DROP 1
#define CONTINUE 2
#define PIPE 3

/* The action of a step. */
#define DECIDE 1
#define POLICE 2
#define EDIT 3

struct look_up {
	__u16 set;
	__u8 how;		/* 0 for none */
	__u8 is_negated;
};

/* Four bytes of the frame. */
struct selector {
	__be32 value;
	__be32 mask;
	__s16 offset;
	__u8 is_behind_ip;	/* from the transport layer on, else from the network layer on, */
	__u8 is_in_carrier;	/* which then is what is behind all tags, also where IP is in it */
	__u8 is_used;
	__u8 reserved[3];
};

struct step {
	__u8 kind;		/* 0 for none */
	__u8 conform;
	__u8 exceed;
	__u8 counter;		/* COUNTERS_MAX for none */
	__u32 mark;
	__u32 mark_mask;
	__u32 priority;
	__u32 priority_mask;	/* all bits or none */
	__u32 reserved;
	struct police police;
};

struct term {
	/* Bits of the packet's words, and their required values. */
	__u64 values[PACKET_WORDS];
	__u64 masks[PACKET_WORDS];
	struct look_up look_ups[LOOK_UPS_MAX];
	struct selector selectors[SELECTORS_MAX];
	struct step steps[STEPS_MAX];
	/* The first and the last, in host order; unused if the last is 0. */
	__u16 source_ports[2];
	__u16 destination_ports[2];
	__u32 mark;
	__u32 mark_mask;
	__u8 has_more;		/* the next term is of the same filter */
	__u8 reserved[7];
};

struct counter {
	__u64 packets;
	__u64 bytes;
	__u64 drops;
	__u64 overlimits;
	__u64 blocked;
	__u64 newcomers;
};

const volatile struct term terms[TERMS_MAX];
const volatile __u32 terms_count = 0;
const volatile __u32 reads_transport = 0;
/* Whether what is behind reads `handed`. */
const volatile __u32 hands_over = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS_MAX);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

/* All that is dropped. A process that takes over goes on counting there. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counter);
} dropped SEC(".maps");

__noinline int count(__u32 number, __u32 bytes, __u32 packets, __u32 is_dropped, __u32 said)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &number);

	/* A slot belongs to one CPU, so plain additions are enough. */
	if (!counter)
		return 0;
	counter->packets += packets;
	counter->bytes += bytes;
	counter->drops += is_dropped ? packets : 0;
	if (said != CONFORMS) {
		counter->overlimits += packets;
		counter->blocked += said == IS_BLOCKED ? packets : 0;
		counter->newcomers += said == IS_NEW ? packets : 0;
	}
	return 0;
}

static __always_inline void count_dropped(__u32 bytes, __u32 packets)
{
	__u32 zero = 0;
	struct counter *counter = bpf_map_lookup_elem(&dropped, &zero);

	if (!counter)
		return;
	counter->packets += packets;
	counter->bytes += bytes;
	counter->drops += packets;
}

/* The result of the policer in step `step` of term `term` for `packet`. */
__noinline int police(struct packet *packet, __u32 term, __u32 step)
{
	if (!packet || term >= TERMS_MAX || step >= STEPS_MAX)
		return CONFORMS;
	return police_packet(packet, &terms[term].steps[step].police);
}

/* Whether the four bytes at `at` are `value` under `mask`. */
__noinline int has_word(struct context *ctx, __u32 at, __u32 value, __u32 mask)
{
	__be32 *word = at > OFFSET_MASK ? 0 : part(ctx, at, 4);

	return word && !((*word ^ value) & mask);
}

static __always_inline int is_within(__be16 port, const volatile __u16 *range)
{
	__u16 number = bpf_ntohs(port);

	return range[0] <= number && number <= range[1];
}

static __always_inline int matches(struct context *ctx, struct packet *packet, int term,
				   int is_first)
{
#pragma unroll
	for (int i = 0; i < PACKET_WORDS; i++)
		if (terms[term].masks[i] &&
		    (packet->words[i] & terms[term].masks[i]) != terms[term].values[i])
			return 0;
	if (terms[term].source_ports[1] &&
	    !is_within(packet->source_port, terms[term].source_ports))
		return 0;
	if (terms[term].destination_ports[1] &&
	    !is_within(packet->destination_port, terms[term].destination_ports))
		return 0;
	if (terms[term].mark_mask && (packet->mark & terms[term].mark_mask) != terms[term].mark)
		return 0;
#pragma unroll
	for (int i = 0; i < SELECTORS_MAX; i++) {
		__u32 base;

		if (!terms[term].selectors[i].is_used)
			break;
		base = packet->network;
		if (terms[term].selectors[i].is_in_carrier)
			base = packet->behind_tags;
		if (terms[term].selectors[i].is_behind_ip) {
			base = packet->transport;
			if (!base)
				return 0;
		}
		/* An offset before the frame wraps to a large number, so it is outside, too. */
		if (!has_word(ctx, base + terms[term].selectors[i].offset,
			      terms[term].selectors[i].value, terms[term].selectors[i].mask))
			return 0;
	}
#pragma unroll
	for (int i = 0; i < LOOK_UPS_MAX; i++) {
		__u32 set = terms[term].look_ups[i].set, how = terms[term].look_ups[i].how, is_in;

		if (!how)
			break;
		is_in = is_first && !i ? is_in_set_at_once(packet, set, how) :
					 is_in_set(packet, set, how);
		if (!!is_in == !!terms[term].look_ups[i].is_negated)
			return 0;
	}
	return 1;
}

/* What happens to a packet that matches the term. */
static __always_inline int act(struct packet *packet, int term)
{
#pragma unroll
	for (int i = 0; i < STEPS_MAX; i++) {
		int said = CONFORMS, control;

		if (!terms[term].steps[i].kind)
			break;
		if (terms[term].steps[i].kind == POLICE)
			said = police(packet, term, i);
		if (terms[term].steps[i].kind == EDIT) {
			packet->mark = (packet->mark & ~terms[term].steps[i].mark_mask) |
				       terms[term].steps[i].mark;
			packet->priority = (packet->priority & ~terms[term].steps[i].priority_mask) |
					   terms[term].steps[i].priority;
		}
		control = said == CONFORMS ? terms[term].steps[i].conform :
					     terms[term].steps[i].exceed;
		if (terms[term].steps[i].counter < COUNTERS_MAX)
			count(terms[term].steps[i].counter, packet->bytes, packets_of(packet),
			      control == DROP, said);
		if (control != PIPE)
			return control;
	}
	return PASS;
}

/* Whether the frame is dropped. */
static __always_inline int is_dropped(struct context *ctx, struct packet *packet)
{
	/* By itself, as its look-up is longer than a call, and most programs have one term. */
	int is_it = terms_count && matches(ctx, packet, 0, 1), control;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < TERMS_MAX && i < terms_count; i++) {
		if (i)
			is_it = is_it || matches(ctx, packet, i, 0);
		if (terms[i].has_more || !is_it)
			continue;
		is_it = 0;
		control = act(packet, i);
		if (control != CONTINUE)
			return control == DROP;
	}
	return 0;
}

SEC(HOOK)
int front(struct context *ctx)
{
	struct ethhdr *eth;

	reach_headers(ctx);
	eth = data_of(ctx);
	if ((void *)(eth + 1) <= data_end_of(ctx) && !is_for_self(eth, data_end_of(ctx))) {
		struct size size = size_of(ctx);
		struct packet packet = {};

		packet.bytes = size.bytes;
		packet.packets = size.packets;
		if (is_cut_too_fine(ctx, size))
			packet.has = PACKET_CUT_TOO_FINE;
		read_packet(ctx, &packet, reads_transport);
		if (is_dropped(ctx, &packet)) {
			count_dropped(size.bytes, size.packets);
			return DROPPED;
		}
		if (hands_over) {
			struct handed *to = handed_here();

			if (to) {
				to->mark = packet.mark;
				to->priority = packet.priority;
			}
		}
	}
	bpf_tail_call(ctx, &plane, 0);
	/* There is always one behind it. */
	return TO_BOX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
