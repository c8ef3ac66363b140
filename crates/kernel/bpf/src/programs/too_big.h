/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Answers a packet that does not fit into the way to its server: "fragmentation needed" (RFC 792,
 * 1191) and "packet too big" (RFC 4443). So a client finds out by itself how long its packets may
 * be (RFC 1191, 8201).
 *
 * The frame becomes the answer: headers in front of the packet, which is cut off behind what is
 * quoted of it. It comes from the service's address, and leaves by the way by which the packet came.
 *
 * *Who gets none.* What may be fragmented: a router would, but of one frame XDP makes no two. What
 * no error may be sent about: ICMP, fragments but the first, senders that are no single host (RFC
 * 1122, 3.2.2). What the way would not take at 1280 bytes either: no sender of IPv6 goes below. And
 * what is longer than the port's own MTU: no such frame came from a wire, but a sender on this
 * machine leaves it to the device to cut it up. Its frames may be short enough, and if not, the
 * sender repeats one of them.
 *
 * *How many.* As many as the kernel sends of all its ICMP (icmp_msgs_per_sec, icmp_msgs_burst), on
 * all CPUs together. A packet above that reads one word, and writes none.
 */
#ifndef TOO_BIG_H
#define TOO_BIG_H

#include "balance.h"
#include "clock.h"
#include "martian.h"
#include "own_header.h"
#include "packet.h"

#define ANSWERS_PER_SECOND 1000
#define ANSWERS_AT_ONCE 50
/* What an answer quotes: with its headers as much as each host takes, 576 bytes (RFC 1812, 4.3.2.3),
 * and in IPv6 the smallest MTU. Where a way takes less, packets may be shorter: these get none. */
#define QUOTED_V4 548
#define QUOTED_V6 1232
#define IPV6_MTU_MIN 1280
/* "Internetwork control", as the kernel's errors have it. */
#define ERROR_CLASS_V4 0xc0
/* The most bytes that bpf_csum_diff() takes. */
#define SUM_MAX 512

/* ICMP's header in both families. In IPv4 the MTU has two bytes, behind two that are zero. */
struct too_big {
	__u8 type;
	__u8 code;
	__u16 check;
	__be32 mtu;
};

struct answer_v4 {
	struct iphdr ip;
	struct too_big error;
	__u8 quoted[QUOTED_V4];
};

struct answer_v6 {
	struct ipv6hdr ip;
	struct too_big error;
	__u8 quoted[QUOTED_V6];
};

/* Up to when answers are sold. */
__u64 answers_clock = 0;

/* Whether one more may be sent now. Several CPUs may find so at once: each sends one. */
static __always_inline int may_answer(void)
{
	__u64 each = SECOND / ANSWERS_PER_SECOND;

	if (ahead(&answers_clock, bpf_ktime_get_ns(), (ANSWERS_AT_ONCE - 1) * each) > 0)
		return 0;
	__sync_fetch_and_add(&answers_clock, each);
	return 1;
}

/* Adds `bytes` bytes, a multiple of four that the compiler knows, to a sum. */
static __always_inline __u32 summed(void *at, __u32 bytes, __u32 sum)
{
#pragma unroll
	for (__u32 from = 0; from < bytes; from += SUM_MAX)
		sum = bpf_csum_diff(0, 0, at + from, min(bytes - from, SUM_MAX), sum);
	return sum;
}

/* Whether the way's MTU can be told to the sender of a packet of `bytes` bytes. */
static __always_inline int is_answerable(struct context *ctx, const struct packet *packet,
					 __u32 bytes, __u32 mtu)
{
	const __be32 *source = (const void *)packet->source;
	__u32 of_port = bytes;

	if (packet->has & PACKET_ICMP ||
	    (packet->has & PACKET_FRAGMENT && !(packet->has & PACKET_FIRST)))
		return 0;
	if (packet->ip == 4) {
		struct iphdr *ip = part(ctx, sizeof(struct ethhdr), QUOTED_V4);

		if (!ip || !(ip->frag_off & DONT_FRAGMENT) || is_martian_v4(*source))
			return 0;
	} else if (!part(ctx, sizeof(struct ethhdr), QUOTED_V6) || mtu < IPV6_MTU_MIN ||
		   is_martian_v6(source)) {
		return 0;
	}
	return !bpf_check_mtu(ctx, 0, &of_port, 0, 0);
}

/* Makes a frame of `type` of it that goes back, with `added` bytes in front of the packet, and of
 * both together `bytes`. Where they are, or null. */
static __always_inline void *turned_back(struct context *ctx, __be16 type, __u32 added, __u32 bytes)
{
	struct ethhdr *eth = data_of(ctx), reversed;
	int whole = sizeof(*eth) + bytes;

	if ((void *)(eth + 1) > data_end_of(ctx))
		return 0;
	__builtin_memcpy(reversed.h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(reversed.h_source, eth->h_dest, ETH_ALEN);
	reversed.h_proto = type;
	if (bpf_xdp_adjust_head(ctx, -(int)added) ||
	    bpf_xdp_adjust_tail(ctx, whole - (int)size_of(ctx).bytes))
		return 0;
	eth = data_of(ctx);
	if ((void *)(eth + 1) + bytes > data_end_of(ctx))
		return 0;
	*eth = reversed;
	return eth + 1;
}

static __always_inline int answer_v4(struct context *ctx, const struct packet *packet, __u32 mtu)
{
	struct answer_v4 *answer;
	__u32 behind = sizeof(*answer) - sizeof(answer->ip);

	answer = turned_back(ctx, bpf_htons(ETH_P_IP), sizeof(*answer) - QUOTED_V4, sizeof(*answer));
	if (!answer)
		return 0;
	write_ipv4(&answer->ip, ERROR_CLASS_V4, PROTOCOL_ICMP, behind, packet->destination,
		   packet->source);
	answer->error = (struct too_big){ 3, 4, 0, bpf_htonl(mtu) };
	answer->error.check = folded(summed(&answer->error, behind, 0));
	return 1;
}

static __always_inline int answer_v6(struct context *ctx, const struct packet *packet, __u32 mtu)
{
	struct answer_v6 *answer;
	__u32 behind = sizeof(*answer) - sizeof(answer->ip), sum;

	answer = turned_back(ctx, bpf_htons(ETH_P_IPV6), sizeof(*answer) - QUOTED_V6,
			     sizeof(*answer));
	if (!answer)
		return 0;
	write_ipv6(&answer->ip, 0, 0, PROTOCOL_ICMPV6, behind, packet->destination, packet->source);
	answer->error = (struct too_big){ 2, 0, 0, bpf_htonl(mtu) };
	/* With a pseudo header: addresses, length and protocol (RFC 8200, 8.1). */
	sum = bpf_htons(behind) + bpf_htons(PROTOCOL_ICMPV6);
	sum = summed(&answer->ip.saddr, 2 * sizeof(answer->ip.saddr), sum);
	answer->error.check = folded(summed(&answer->error, behind, sum));
	return 1;
}

/* What becomes of a packet of `bytes` bytes, where the way takes `mtu` bytes of its kind. A global
 * function, which few packets need: the verifier looks at it once. */
__noinline int answer_too_big(struct context *ctx, const struct packet *packet, __u32 bytes, __u32 mtu)
{
	int is_answered;

	if (!ctx || !packet)
		return TOO_BIG;
	if (!is_answerable(ctx, packet, bytes, mtu) || !may_answer())
		return TOO_BIG;
	if (packet->ip == 4)
		is_answered = answer_v4(ctx, packet, mtu);
	else
		is_answered = answer_v6(ctx, packet, mtu);
	return is_answered ? ANSWERED : NO_HEADROOM;
}

#endif
