// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree: polices the packets from one port to the other by a tree of classes, in the driver.
 *
 * Frames for the box itself go up the stack. All others are classified, metered by the tree,
 * and leave through the other port at once; they are marked or dropped if their class is sold
 * too far ahead. Nothing waits here.
 *
 * There are two programs: `tree`, and `tree_behind` for what has met filters that set a mark
 * or a priority (handed.h).
 *
 * Non-goals: queues, pacing, fairness between the flows of a class.
 */
#include "find_class.h"
#include "handed.h"
#include "mark.h"
#include "meter.h"

/* The port's own address, and whether frames may come in several buffers. Set before
 * the program is loaded. */
const volatile __u8 own_mac[ETH_ALEN] = { 2, 0, 0, 0, 0, 1 };
const volatile __u32 multi_buffer = 0;

static __always_inline int is_for_self(const struct ethhdr *eth)
{
	__u8 differs = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		differs |= eth->h_dest[i] ^ own_mac[i];
	return !differs;
}

static __always_inline int send(struct totals *total, struct seat *seat, __u64 bytes)
{
	int action = bpf_redirect_map(&other_port, 0, XDP_DROP);

	if (action == XDP_REDIRECT) {
		total->sent_packets++;
		total->sent_bytes += bytes;
		seat->bytes += bytes;
		if (seat->borrows)
			seat->borrowed_packets++;
		else
			seat->own_packets++;
	} else {
		total->port_gone_drops++;
		total->dropped_bytes += bytes;
	}
	return action;
}

static __always_inline int drop(struct totals *total, __u64 *reason, __u64 bytes)
{
	*reason += 1;
	total->dropped_bytes += bytes;
	return XDP_DROP;
}

static __always_inline int police(struct xdp_md *ctx, int is_behind)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u64 bytes = multi_buffer ? bpf_xdp_get_buff_len(ctx) : data_end - data;
	__u32 zero = 0, number, leaf;
	struct totals *total = bpf_map_lookup_elem(&totals, &zero);
	__u32 *current = bpf_map_lookup_elem(&in_force, &zero);
	struct class *class;
	struct seat *seat;
	__s64 cost;

	if (!total || !current)
		return XDP_ABORTED;
	if (data + ETH_HLEN <= data_end && is_for_self(data)) {
		total->to_self++;
		return XDP_PASS;
	}
	number = *(volatile __u32 *)current & 1;
	if (is_behind) {
		struct handed *from = handed_here();

		if (!from)
			return XDP_ABORTED;
		leaf = classify_edited(ctx, number, from->mark, from->priority);
	} else {
		leaf = classify(ctx, number);
	}
	if (leaf == NOWHERE)
		return drop(total, &total->unclassified_drops, bytes);
	class = class_of(number, leaf);
	seat = bpf_map_lookup_elem(&seats, &leaf);
	if (!class || !seat)
		return drop(total, &total->unclassified_drops, bytes);
	if (!leaf)
		return send(total, seat, bytes);

	cost = (__s64)bytes + class->per_frame;
	if (cost < (__s64)class->minimum)
		cost = class->minimum;
	switch (meter(number, leaf, class, seat, cost)) {
	case FULL:
		seat->limit_drops++;
		return drop(total, &total->limit_drops, bytes);
	case MARK_OR_DROP:
		if (!mark(ctx)) {
			seat->aqm_drops++;
			return drop(total, &total->aqm_drops, bytes);
		}
		seat->credit -= cost;
		seat->marked++;
	}
	return send(total, seat, bytes);
}

SEC("xdp")
int tree(struct xdp_md *ctx)
{
	return police(ctx, 0);
}

SEC("xdp")
int tree_behind(struct xdp_md *ctx)
{
	return police(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
