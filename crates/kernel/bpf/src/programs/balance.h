/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Services, their rings, and their servers, as the program of a balancer looks them up.
 *
 * User space changes them while the program runs. A service is replaced as a whole, and so is its
 * ring. The servers are there twice: user space writes the half that is not in force, and then says
 * that it is. So no packet ever meets half of a change.
 *
 * crates/core/balance says what they mean; src/balance.rs writes them.
 */
#ifndef BALANCE_H
#define BALANCE_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define SERVICES_MAX 512
#define SERVERS_MAX 4096
/* The slots of a ring. */
#define SLOTS 65537
#define PORTS_MAX 64

/* What a service does. */
#define BY_TURNS 1	/* servers take turns; else the client's hash decides */
#define HASHES_PORT 2	/* the client's port counts, too */
#define PERSISTS 4	/* connections of one client are one */
#define ONE_PACKET 8	/* each packet is a connection */
/* Where the server's id is in connection ids of QUIC: so many octets of QUIC-LB, or as Katran has
 * it; 0 if they name none. */
#define QUIC_FORMAT(flags) ((flags) >> 8 & 0x1f)
#define QUIC_KATRAN 16

/* How packets reach a server. */
#define BY_ROUTE 1
#define BY_IP 2
#define BY_GUE 3

/* Where the way to a server leads. */
#define WAY_OUT 1	/* through a port: the addresses of its first hop are known */
#define WAY_LOCAL 2	/* up this box's own stack */

struct service_key {
	__u8 address[16];	/* IPv4 in the first four bytes, the rest zeros */
	__be16 port;
	__u8 protocol;
	__u8 ip;		/* 4 or 6 */
};

struct service {
	__u32 number;
	__u32 flags;
	__u32 slots;		/* of its ring that are in use; 0 without a server */
	__u32 silence;		/* after which a record counts no more, in its units of time */
	__be64 mask[2];		/* of a client's address */
};

/* A slot: the server of new connections, that of those that are not recorded, and whether some
 * are. */
#define NOW(slot) ((slot) & 0xffff)
#define BEFORE(slot) ((slot) >> 16 & 0x7fff)
#define RECORDS(slot) ((slot) >> 31)

/* A cache line. */
struct server {
	__u16 service;		/* one more than its number; 0 if there is no such server */
	__u8 forward;
	__u8 ip;		/* the family of its address: 4 or 6 */
	__u8 way;		/* 0 if it is not known */
	__u8 leaves;		/* the number of the port through which the way leads */
	__be16 port;		/* of GUE */
	__u16 mtu;		/* of the way there */
	__u8 macs[12];		/* the Ethernet addresses on the way, to and from */
	__u8 reserved2[2];
	__u8 from[16];		/* the tunnel's ends */
	__u8 to[16];
	__u8 reserved3[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES_MAX);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SERVICES_MAX + 1);	/* the last is no service's */
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Both halves. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * (SERVERS_MAX + 1));
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

/* The half that is in force: 0 or 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} servers_half SEC(".maps");

/* What is counted of a service, and of a server. A slot belongs to one CPU. */
struct balanced {
	__u64 connections;
	__u64 packets;
	__u64 bytes;
	__u64 turns;		/* of a service: the next slot of its ring, if servers take turns */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICES_MAX);
	__type(key, __u32);
	__type(value, struct balanced);
} service_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVERS_MAX + 1);
	__type(key, __u32);
	__type(value, struct balanced);
} server_counts SEC(".maps");

/* What becomes of a frame. src/balance.rs says the same in Rust. */
enum fate {
	BALANCED,	/* leaves towards a server, through the port where it came in */
	ANSWERED,	/* longer than the way to the server takes: its sender is told */
	REDIRECTED,	/* leaves towards a server, through another port */
	LOCAL,		/* goes on: its server is this box itself */
	ELSEWHERE,	/* of no service: goes on */
	FRAGMENT,	/* goes on: a fragment, which may be of a service for certain ports */
	UNRECORDED,	/* goes on: of a connection that nobody knows, where servers take turns */
	NO_SERVER,	/* dropped: the service has none for it */
	NO_WAY,		/* dropped: the Ethernet address on the way to the server is not known */
	TOO_BIG,	/* dropped: longer than the way to the server takes, and not answered */
	EXPIRED,	/* dropped: TTL or hop limit are used up */
	NO_HEADROOM,	/* dropped: the driver leaves no room for headers in front of it */
	PORT_GONE,	/* dropped: nothing is sent to the port on the way to the server */
	FATES,
};

/* What is counted at each port: the frames of each fate that came in there, those that left there
 * and came in elsewhere, and those that were to be led by a connection id: that names a server, or
 * not. */
#define FROM_OTHERS FATES
#define BY_ID (FATES + 1)
#define NOT_BY_ID (FATES + 2)
#define COUNTED (FATES + 3)

/* The port at which frames arrive, by number. Set before the program is loaded. */
const volatile __u32 arrives_at = 0;

struct fated {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PORTS_MAX * COUNTED);
	__type(key, __u32);
	__type(value, struct fated);
} fates SEC(".maps");

static __always_inline void count_at(__u32 port, __u32 what, __u64 bytes)
{
	__u32 at = port * COUNTED + what;
	struct fated *fated = bpf_map_lookup_elem(&fates, &at);

	if (fated) {
		fated->packets++;
		fated->bytes += bytes;
	}
}

static __always_inline void count_fate(__u32 fate, __u64 bytes)
{
	count_at(arrives_at, fate, bytes);
}

/* The server `number` of the service `service`, if there is one. */
static __always_inline struct server *server_of(__u32 number, __u32 service)
{
	__u32 zero = 0, at;
	__u64 *half = bpf_map_lookup_elem(&servers_half, &zero);
	struct server *server;

	if (!half || !number)
		return 0;
	at = (*(volatile __u64 *)half & 1) * (SERVERS_MAX + 1) + number;
	server = bpf_map_lookup_elem(&servers, &at);
	return server && server->service == service + 1 ? server : 0;
}

/* The slot `at` of the ring of `service`. */
static __always_inline __u32 slot_of(__u32 service, __u32 at)
{
	void *ring = bpf_map_lookup_elem(&rings, &service);
	__u32 *slot;

	if (!ring)
		return 0;
	slot = bpf_map_lookup_elem(ring, &at);
	return slot ? *(volatile __u32 *)slot : 0;
}

#endif
