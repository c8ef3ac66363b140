/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Round trips beyond a port whose line somebody follows, by the time stamps of TCP (RFC 7323).
 *
 * A segment that leaves through the port with a stamp that its connection has not had before is timed.
 * The segment that brings the stamp back ends the trip. So data is timed until it is acknowledged, and
 * an acknowledgement until data comes that answers it. A retransmission has a newer stamp, so nothing is
 * ambiguous. One that echoes a later stamp shows that the timed one will not be echoed any more.
 *
 * At most one segment of a connection is timed at once, and a hundred in a second. What is timed is in a
 * table by connection, where the first stays as long as its trip may take. Programs on several CPUs may
 * write a place at the same time: then it holds a stamp of one connection and the name of another, and no
 * answer fits. All of this is sampling.
 *
 * Where nobody follows a line, a packet costs the test of a bit that is read anyway.
 *
 * Non-goals: losses; segments in tunnels, PPPoE and MPLS, behind extension headers of IPv6, and those
 * whose stamps do not come first, as RFC 7323 (appendix A) has it and all common stacks send them.
 */
#ifndef TRIPS_H
#define TRIPS_H

#include "find_class.h"
#include "frame.h"
#include "lines.h"

/* A trip that takes longer is none, in ns. */
#define TRIP_MAX (4 * 1000000000ULL)
/* A connection is timed again after so long, in ns. */
#define TIMED_EVERY (10 * 1000000ULL)

/* The option of time stamps, behind two that say nothing. */
struct stamps {
	__be32 kind;
	__be32 value;
	__be32 echo;
};

#define STAMPS_FIRST bpf_htonl(0x0101080a)

struct tcp_start {
	__be16 ports[2];
	__be32 sequence;
	__be32 acknowledged;
	__u8 offset;			/* in words, in the upper half */
	__u8 flags;
	__be16 rest[3];
};

#define TCP_SYN 2
#define TCP_RST 4

static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

static __always_inline __u64 host_of(const __u8 *address)
{
	const __u64 *words = (const __u64 *)address;

	return mixed(mixed(0, words[0]), words[1]);
}

/* The option of a segment of TCP, if it has it. */
static __always_inline struct stamps *stamps_of(struct context *ctx, const struct network *network,
						const struct key *key)
{
	void *data = data_of(ctx), *data_end = data_end_of(ctx);
	struct tcp_start *tcp;
	struct stamps *stamps;
	__u32 at = network->at & 63;

	if (network->ip == 4) {
		struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > data_end)
			return 0;
		at += (ip->ihl & 15) * 4;
	} else {
		at += sizeof(struct ipv6hdr);
	}
	tcp = data + (at & 127);
	if ((void *)(tcp + 1) > data_end || tcp->flags & (TCP_SYN | TCP_RST))
		return 0;
	stamps = (void *)(tcp + 1);
	if ((void *)(stamps + 1) > data_end || tcp->offset >> 4 < 8)
		return 0;
	return stamps->kind == STAMPS_FIRST ? stamps : 0;
}

/* A segment with this stamp leaves at `at`. */
static __always_inline void leaves(struct awaited *place, __u32 connection, __u32 stamp, __u64 at)
{
	int is_new = (__s32)(stamp - place->newest) > 0;

	if (place->connection != connection) {
		if (at < place->left + TRIP_MAX)
			return;
		/* Others of the same stamp may have left before. */
		place->is_open = 0;
		place->connection = connection;
		place->newest = stamp;
		place->left = at - TIMED_EVERY;
		return;
	}
	if (!is_new)
		return;
	place->newest = stamp;
	if (at < place->left + (place->is_open ? TRIP_MAX : TIMED_EVERY))
		return;
	place->is_open = 0;
	place->stamp = stamp;
	place->left = at;
	place->is_open = 1;
}

/* A segment that echoes this stamp arrives at `at`. */
static __always_inline void answers(struct line *line, struct awaited *place, __u64 host,
				    __u32 connection, __u32 echo, __u64 at)
{
	__u64 time, who;
	__s32 later;

	if (!place->is_open || place->connection != connection)
		return;
	later = echo - place->stamp;
	if (later < 0)
		return;
	place->is_open = 0;
	if (later) {
		place->left = at - TIMED_EVERY;
		return;
	}
	time = (at - place->left) / 1000;
	if (at < place->left || time > TRIP_MAX / 1000)
		return;
	who = host >> (TRIP_TIME_BITS + TRIP_CONNECTION_BITS) << TRIP_CONNECTION_BITS |
	      connection >> (32 - TRIP_CONNECTION_BITS);
	line->trips[__sync_fetch_and_add(&line->next, 1) & (TRIPS_MAX - 1)] =
		who << TRIP_TIME_BITS | (time ? time : 1);
}

/* A packet passes a port whose line may be followed: `where` is LEAVES_HERE, or the device at which it
 * has arrived. It leaves, or arrives, at `at`. */
__noinline int see(struct context *ctx, __u32 where, __u64 at)
{
	struct line_map *map = bpf_map_lookup_elem(&lines, &where);
	__u32 zero = 0, connection;
	struct network network = {};
	struct key key = {};
	struct awaited *place;
	struct stamps *stamps;
	struct line *line;
	__u64 remote, hash;

	line = map ? bpf_map_lookup_elem(map, &zero) : 0;
	if (!line)
		return 0;
	read_headers(&key, &network, data_of(ctx), data_end_of(ctx));
	if (!network.ip || key.protocol != IPPROTO_TCP || !key.has)
		return 0;
	stamps = stamps_of(ctx, &network, &key);
	if (!stamps)
		return 0;
	if (where == LEAVES_HERE) {
		remote = host_of(key.destination);
		hash = mixed(remote, host_of(key.source));
		hash = mixed(hash, (__u64)key.destination_port << 16 | key.source_port);
	} else {
		remote = host_of(key.source);
		hash = mixed(remote, host_of(key.destination));
		hash = mixed(hash, (__u64)key.source_port << 16 | key.destination_port);
	}
	connection = hash >> 32;
	place = &line->awaited[hash & (AWAITED_MAX - 1)];
	if (where == LEAVES_HERE)
		leaves(place, connection, bpf_ntohl(stamps->value), at);
	else
		answers(line, place, remote, connection, bpf_ntohl(stamps->echo), at);
	return 0;
}

#endif
