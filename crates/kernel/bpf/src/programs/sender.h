/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Who makes the kernel send a packet.
 *
 * A packet that came in at a device, and the kernel forwards it, is a stranger's, and so is an error
 * that a stranger's packet has caused (RFC 792, RFC 4443): a flood of either is theirs. All else is
 * the box's own. Of that, neighbour discovery, the groups that the box is in or asks for, and what is
 * marked as network control (CS6 and CS7, RFC 4594: BGP, OSPF, BFD, IGMP) is what keeps the box
 * connected. MLD (RFC 2710, 3810) says of groups of IPv6 what IGMP says, and has no mark. Errors are
 * marked so, too, and are not among it. Where a packet came in is the kernel's to say, so nothing in
 * a packet from outside makes it control.
 *
 * Control may always be sent, up to an eighth of a rate. Answers can bear the marks of questions: so
 * it has a bound, too.
 */
#ifndef SENDER_H
#define SENDER_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include "clock.h"
#include "frame.h"

enum sender {
	STRANGER,
	BOX,
	CONTROL,
};

/* Control's part of a rate, and how far ahead it may be sold to it. */
#define CONTROL_PART 8
#define CONTROL_AHEAD (50 * 1000000ULL)

/* The precedence from which on a packet is network control. */
#define NETWORK_CONTROL 0xc0
/* Errors of ICMP. */
#define DEST_UNREACH 3
#define SOURCE_QUENCH 4
#define REDIRECT 5
#define TIME_EXCEEDED 11
#define PARAMETER_PROBLEM 12
/* Types of ICMPv6: the first that is no error, and those of neighbour discovery. */
#define FIRST_INFORMATION 128
#define FIRST_OF_DISCOVERY 133
#define LAST_OF_DISCOVERY 137
/* Those of MLD. */
#define LISTENER_QUERY 130
#define LISTENER_REPORT 131
#define LISTENER_DONE 132
#define LISTENER_REPORT_2 143

static __always_inline int is_error_v4(__u8 type)
{
	return type == DEST_UNREACH || type == SOURCE_QUENCH || type == REDIRECT ||
	       type == TIME_EXCEEDED || type == PARAMETER_PROBLEM;
}

static __always_inline enum sender sender_v4(struct __sk_buff *ctx)
{
	__u32 at = LINK_HEADER;
	struct iphdr *ip = data_of(ctx) + at;
	__u8 *type;

	if ((void *)(ip + 1) > data_end_of(ctx))
		return BOX;
	if (ip->protocol != IPPROTO_ICMP)
		return ip->tos >= NETWORK_CONTROL ? CONTROL : BOX;
	type = (void *)ip + (ip->ihl & 15) * 4;
	if ((void *)(type + 1) > data_end_of(ctx))
		return STRANGER;
	return is_error_v4(*type) ? STRANGER : BOX;
}

/* Options to each hop, as many as MLD has: they alert routers (RFC 2711). */
struct alert {
	__u8 nexthdr;
	__u8 more;		/* of 8 bytes each */
	__u8 options[6];
};

static __always_inline int is_mld(struct __sk_buff *ctx, struct alert *alert)
{
	__u8 *type = (void *)(alert + 1);

	if ((void *)(type + 1) > data_end_of(ctx))
		return 0;
	if (alert->nexthdr != IPPROTO_ICMPV6 || alert->more)
		return 0;
	return *type == LISTENER_QUERY || *type == LISTENER_REPORT || *type == LISTENER_DONE ||
	       *type == LISTENER_REPORT_2;
}

/* The box's own ICMPv6 has no headers between but for those of MLD. */
static __always_inline enum sender sender_v6(struct __sk_buff *ctx)
{
	struct ipv6hdr *ip = data_of(ctx) + LINK_HEADER;
	__u8 *type = (void *)(ip + 1);

	if ((void *)(type + 1) > data_end_of(ctx))
		return BOX;
	if (ip->nexthdr == IPPROTO_HOPOPTS && is_mld(ctx, (void *)(ip + 1)))
		return CONTROL;
	if (ip->nexthdr != IPPROTO_ICMPV6)
		return (ip->priority << 4) >= NETWORK_CONTROL ? CONTROL : BOX;
	if (*type < FIRST_INFORMATION)
		return STRANGER;
	return *type >= FIRST_OF_DISCOVERY && *type <= LAST_OF_DISCOVERY ? CONTROL : BOX;
}

/* The sender of a packet at egress whose headers are in reach. */
static __always_inline enum sender sender_of(struct __sk_buff *ctx)
{
	if (ctx->ingress_ifindex)
		return STRANGER;
	switch (ctx->protocol) {
	case bpf_htons(ETH_P_ARP):
		return CONTROL;
	case bpf_htons(ETH_P_IP):
		return sender_v4(ctx);
	case bpf_htons(ETH_P_IPV6):
		return sender_v6(ctx);
	}
	return BOX;
}

/* Takes `cost` bytes of control's part of `rate`; `clock` is its own. Returns whether they are there. */
static __always_inline int take_for_control(__u64 *clock, __u64 cost, __u64 rate)
{
	if (ahead(clock, bpf_ktime_get_ns(), 0) > (__s64)CONTROL_AHEAD)
		return 0;
	__sync_fetch_and_add(clock, time_for(cost, rate / CONTROL_PART));
	return 1;
}

#endif
