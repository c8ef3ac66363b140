// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * metadata: what it costs to hand a worker the headers of a frame in XDP's metadata area, for
 * src/front/tests/cost.rs. Mode 0 does nothing, 1 makes room and fills it, 2 reads headers, 3 does
 * both, with the hashes that a worker needs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The first constant: cost.rs writes it by its place. */
const volatile __u32 mode = 0;

#include "packet.h"

/* The bytes of what a worker knows of a frame's headers, with a word by which it is known. */
#define ROOM 32

const volatile __u64 factors[4] = { 0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL,
				    0x94d049bb133111ebULL, 0xd6e8feb86659fd93ULL };

static __always_inline __u32 mixed(__u64 sum)
{
	sum ^= sum >> 32;
	sum *= factors[3];
	return sum >> 32;
}

SEC("xdp")
int metadata(struct xdp_md *ctx)
{
	struct packet packet = {};
	__u32 *room;

	if (mode & 2)
		read_packet(ctx, &packet, 1);
	if (!(mode & 1))
		return mode ? packet.protocol : 0;
	/* The kernel does not take the room away between two test runs. */
	if (bpf_xdp_adjust_meta(ctx, (int)(ctx->data - ctx->data_meta) - ROOM))
		return XDP_ABORTED;
	room = (void *)(long)ctx->data_meta;
	if ((void *)room + ROOM > (void *)(long)ctx->data)
		return XDP_ABORTED;
	room[0] = 0x4e415252;
	room[1] = mixed(packet.words[0] * factors[0] + packet.words[1] * factors[1]);
	room[2] = mixed(packet.words[2] * factors[0] + packet.words[3] * factors[1]);
	room[3] = mixed((__u64)room[1] * factors[0] + (__u64)room[2] * factors[1] +
			packet.words[6] * factors[2]);
	room[4] = packet.mark;
	room[5] = packet.priority;
	room[6] = packet.network | (__u32)packet.traffic_class << 16;
	room[7] = packet.transport;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
