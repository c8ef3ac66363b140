/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where the kernel's bridge would send a frame, and how it leaves.
 *
 * The bridge learns, ages, floods, and speaks to other bridges. User space keeps its table here, by
 * the bridge's own announcements. So only what the bridge has nothing to learn from is forwarded
 * here: a frame to one station, which is known at one port, from a station that is known at the
 * port where the frame arrives. Everything else goes to the bridge as it arrived, which learns,
 * floods or drops as if there were no program.
 *
 * Two steps, as in route.h: `find_way` decides and changes nothing, `take_way` then takes a tag off
 * or puts one on, where a port is in the frame's VLAN without tags.
 *
 * Entries age in the bridge, which does not see these frames. So a station that sent one is marked,
 * and user space tells the bridge. The mark is written once each time, not for each frame.
 *
 * Source: net/bridge/br_input.c, br_forward.c, br_vlan.c; IEEE 802.1Q, 8.6.
 *
 * Non-goals: flooding, learning, multicast, netfilter, several tags.
 */
#ifndef SWITCH_H
#define SWITCH_H

#include "outcomes.h"
#include "put_tag.h"
#include "segments.h"

/* The outcome of a frame that leaves through a port. */
#define LEAVES SWITCHED

#define STATIONS_MAX 131072

/* What is known of a port. */
enum {
	FORWARDS = 1,		/* in the bridge's and every other way it can */
	IS_ISOLATED = 2,	/* from others that are */
	IS_SPECIAL = 4,		/* the bridge does more there than to forward */
};

struct member {
	__u32 flags;
	__u32 mtu;
	__u32 pvid;		/* of frames without a tag; 0 for none */
	__be16 tag_type;	/* of the bridge; 0 if it does not look at tags */
	__u16 padding;
};

/* The ports that are in a VLAN and forward it, and those of them where it has no tags, as bits. */
struct vlan {
	__u64 members;
	__u64 untagged;
};

/* Somebody in a VLAN, which is 0 in a bridge that does not look at tags. */
struct station {
	__u8 mac[ETH_ALEN];
	__u16 vid;
};

/* In the place of a port: it is this box, or behind a device that is no port. */
#define AT_BOX 0xfffffffe
#define ELSEWHERE 0xffffffff

struct place {
	__u32 port;
	__u32 was_heard;	/* since user space has looked */
};

/* Made by user space, as are the next two, for all ports: by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VIDS);
	__type(key, __u32);
	__type(value, struct vlan);
} bridge_vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STATIONS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct station);
	__type(value, struct place);
} stations SEC(".maps");

/* How a frame leaves. `take_way` leaves here the way back. */
struct way {
	__u32 port;
	__u32 retags;		/* whether it leaves with `tag` in the place of what it has */
	__u32 is_tagged;
	struct tag tag;
};

static __always_inline int is_in(__u64 ports, __u32 port)
{
	return ports >> (port & (PORTS_MAX - 1)) & 1;
}

static __always_inline int is_of_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* The bytes behind the Ethernet header, without a tag beside the packet; 0 of what is to be cut. */
#ifndef TCX
static __always_inline __u32 bytes_behind(struct xdp_md *ctx)
{
	return size_of(ctx).bytes - sizeof(struct ethhdr);
}
#else
static __always_inline __u32 bytes_behind(struct __sk_buff *ctx)
{
	return ctx->gso_size ? 0 : ctx->len - sizeof(struct ethhdr);
}
#endif

/* Whether the frame is too long for `leaves`. The outermost tag does not count, as in the kernel,
 * whether the bridge looks at it or not. */
static __always_inline int is_too_long(struct context *ctx, const struct member *leaves)
{
	__u32 bytes = bytes_behind(ctx);
	struct tag *within;
	__be16 beside;

	if (bytes <= leaves->mtu)
		return 0;
	tag_beside(ctx, &beside);
	within = beside ? 0 : tag_within(ctx);
	return !within || !is_of_vlan(within->type) || bytes - TAG_BYTES > leaves->mtu;
}

/* Finds out where a frame leaves, and changes nothing but its source's mark. Returns what becomes
 * of it. */
static __always_inline int find_way(struct context *ctx, struct way *way)
{
	struct station station = {};
	struct member *arrives, *leaves;
	struct place *from, *to;
	__u32 number = arrives_at, vid = 0, both;
	int is_tagged = 0, is_untagged_there;
	struct tag tag = {};
	struct ethhdr *eth;
	struct vlan *vlan;

	reach_headers(ctx);
	eth = data_of(ctx);
	if ((void *)(eth + 1) > data_end_of(ctx))
		return SHORT;
	if (eth->h_dest[0] & 1)
		return GROUP;
	arrives = bpf_map_lookup_elem(&members, &number);
	if (!arrives || !(arrives->flags & FORWARDS))
		return NOT_FORWARDING;
	if (arrives->tag_type) {
		tag = outermost_tag(ctx);
		is_tagged = tag.type == arrives->tag_type;
		if (!is_tagged && is_of_vlan(tag.type))
			return OTHER_TAG;
		vid = is_tagged ? bpf_ntohs(tag.control) & VID_MASK : arrives->pvid;
		if (!vid)
			return is_tagged ? OTHER_TAG : NOT_IN_VLAN;
	}
	vlan = bpf_map_lookup_elem(&bridge_vlans, &vid);
	if (!vlan || !is_in(vlan->members, number))
		return NOT_IN_VLAN;
	eth = data_of(ctx);
	if ((void *)(eth + 1) > data_end_of(ctx))
		return SHORT;
	station.vid = vid;
	__builtin_memcpy(station.mac, eth->h_source, ETH_ALEN);
	from = bpf_map_lookup_elem(&stations, &station);
	if (!from)
		return UNKNOWN_SOURCE;
	if (from->port != number)
		return from->port == AT_BOX ? OWN_SOURCE : MOVED;
	__builtin_memcpy(station.mac, eth->h_dest, ETH_ALEN);
	to = bpf_map_lookup_elem(&stations, &station);
	if (!to)
		return UNKNOWN;
	way->port = to->port;
	if (way->port == number)
		return SAME_PORT;
	if (way->port >= PORTS_MAX)
		return way->port == AT_BOX ? FOR_BOX : OTHER_PORT;
	leaves = bpf_map_lookup_elem(&members, &way->port);
	if (!leaves || !(leaves->flags & FORWARDS))
		return NOT_FORWARDING;
	if (!is_in(vlan->members, way->port))
		return NOT_IN_VLAN;
	both = arrives->flags & leaves->flags;
	if (both & IS_ISOLATED)
		return ISOLATED;
	if ((arrives->flags | leaves->flags) & IS_SPECIAL)
		return SPECIAL;
	if (is_too_long(ctx, leaves))
		return TOO_LONG;
	is_untagged_there = is_in(vlan->untagged, way->port);
	way->is_tagged = is_tagged;
	way->retags = arrives->tag_type && is_tagged == is_untagged_there;
	if (way->retags && !is_tagged) {
		way->tag.type = arrives->tag_type;
		way->tag.control = bpf_htons(vid);
	}
	if (!from->was_heard)
		from->was_heard = 1;
	return SWITCHED;
}

/* Lets the frame leave by `way`, which then is the way back: done twice, it changes nothing.
 * Returns whether it did; if not, the frame is as it was. */
static __always_inline int take_way(struct context *ctx, struct way *way)
{
	if (!way->retags)
		return 1;
	if (!put_tag(ctx, way->is_tagged, &way->tag))
		return 0;
	way->is_tagged = !way->is_tagged;
	return 1;
}

#endif
