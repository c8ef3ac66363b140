// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * front: filters in the driver, in front of whatever plane's program is behind it.
 *
 * Filters are terms, asked in order; the first that matches says whether the frame is
 * dropped or passes. A term is a few look-ups in sets, each of which has to say yes (or
 * no, where it is negated). Terms are constants: the kernel knows them when it loads the
 * program, and takes out what they do not ask for. So a program has just the look-ups
 * of its filters, and other filters are another program.
 *
 * What is not dropped goes on to the plane's program by a tail call. Frames for the box
 * itself go there at once.
 *
 * Non-goals: rates, marks, classes.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "packet.h"
#include "self.h"
#include "sets.h"

#define TERMS_MAX 32
#define LOOK_UPS_MAX 4
/* The last counter is of all that is dropped. */
#define COUNTERS_MAX 33
#define ALL_DROPPED (COUNTERS_MAX - 1)

struct look_up {
	__u16 set;
	__u8 how;		/* 0 for none */
	__u8 is_negated;
};

struct term {
	struct look_up look_ups[LOOK_UPS_MAX];
	__be16 ether_type;	/* 0 for any */
	__u8 drops;
	__u8 counter;		/* COUNTERS_MAX for none */
	__u32 is_used;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

const volatile struct term terms[TERMS_MAX];
const volatile __u32 reads_ports = 0;
const volatile __u32 is_multi_buffer = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS_MAX);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

/* The plane's program. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} plane SEC(".maps");

static __always_inline void count(__u32 number, __u32 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &number);

	/* A slot belongs to one CPU, so plain additions are enough. */
	if (counter) {
		counter->packets += 1;
		counter->bytes += bytes;
	}
}

static __always_inline int matches(struct packet *packet, int term)
{
	if (terms[term].ether_type && terms[term].ether_type != packet->ether_type)
		return 0;
#pragma unroll
	for (int i = 0; i < LOOK_UPS_MAX; i++) {
		if (!terms[term].look_ups[i].how)
			break;
		if (!!is_in_set(packet, terms[term].look_ups[i].set, terms[term].look_ups[i].how) ==
		    !!terms[term].look_ups[i].is_negated)
			return 0;
	}
	return 1;
}

/* Whether the frame is dropped. */
static __always_inline int is_dropped(struct packet *packet)
{
#pragma unroll
	for (int i = 0; i < TERMS_MAX; i++) {
		if (!terms[i].is_used)
			break;
		if (!matches(packet, i))
			continue;
		if (terms[i].counter < ALL_DROPPED)
			count(terms[i].counter, packet->bytes);
		if (terms[i].drops)
			count(ALL_DROPPED, packet->bytes);
		return terms[i].drops;
	}
	return 0;
}

SEC("xdp")
int front(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) <= data_end && !is_for_self(eth)) {
		struct packet packet = {};

		packet.bytes = is_multi_buffer ? bpf_xdp_get_buff_len(ctx) : data_end - data;
		read_packet(&packet, data, data_end, reads_ports);
		if (is_dropped(&packet))
			return XDP_DROP;
	}
	bpf_tail_call(ctx, &plane, 0);
	/* There is always one behind it. */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
