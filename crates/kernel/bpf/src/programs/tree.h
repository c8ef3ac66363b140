/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The layout of the maps that user space and `tree` share.
 *
 * A plan configures one port's egress: scopes, masks and rules that find a packet's class, and
 * the classes. There is room for two plans. One is in force; user space writes the other one, and
 * then switches the number of the one in force. A program reads that number once for each
 * packet, so each packet sees one whole plan.
 *
 * A class keeps its number from plan to plan, and with it its credit (`nodes`) and
 * its counters (`class_slots`). Number 0 is no class: packets pass unmetered.
 *
 * src/tree/layout.rs says the same in Rust.
 */
#ifndef TREE_H
#define TREE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lines.h"
#include "numbers.h"
#include "totals.h"

#define CLASSES_MAX 1024
#define MASKS_MAX 32
/* The most bytes of a key that sieve masks, and the bytes of a key that rules can compare. */
#define SIEVES_MAX 8
#define KEY_BYTES 42
/* In the place of a mask: the mark is a class's handle, its major number in the upper half. */
#define BY_NAME MASKS_MAX
/* What has filters or an order of its own: a qdisc, or a class. In a rule's key its number is
 * above that of the mask. */
#define SCOPES_MAX 1024
#define SCOPE_SHIFT 6
/* The most of them on a packet's way. */
#define SCOPES_DEEP 32
/* The most slots behind a rule's own place in which it may be. */
#define PROBES_MAX 8
/* The most classes on a way from a leaf to the root. */
#define LEVELS_MAX 24
/* The most classes on the way in a label, and those that it names. */
#define LABEL_LEVELS 8
#define LENDERS_MAX 32
#define PRIORITIES 16
#define CARRIER_SHIFT 1

/* Instead of a class: such packets are dropped, since no class is theirs, or by a filter. */
#define NOWHERE 0xffffffff
#define FILTERED 0xfffffffe
/* Instead of a class: all headers have to be read (terms.h). */
#define RARE 0xfffffffd

/* The number in force, whether its plan has terms (terms.h), and whether somebody follows the line
 * beyond a port of which packets pass (trips.h). */
#define NUMBER_MASK 1
#define HAS_TERMS 2
#define HAS_LINES 4

/* With this bit, and below RARE, it is not a class but a scope, where the search goes on. */
#define SCOPE 0x80000000

/* The fields of a packet that rules compare, as eight-byte words: masking is six operations. */
struct key {
	union {
		struct {
			__u8 source[16];	/* an IPv4 address in the last four bytes */
			__u8 destination[16];
			__be16 source_port;
			__be16 destination_port;
			__be16 ether_type;	/* behind all tags, or of IP in PPPoE or MPLS */
			__u8 protocol;
			__u8 traffic_class;
			__u8 ip;		/* 4, 6, or 0 for neither */
			__u8 has;		/* ports; from CARRIER_SHIFT on, what IP is in */
			__u16 mask;		/* used by rules */
			__u32 mark;		/* that a filter in front has set */
		};
		__u64 words[6];
		__u8 bytes[48];
	};
};

/* The mask of some rules. */
struct mask {
	struct key bits;
	__u64 first;			/* the least rank of its rules */
};

/* A slot for a rule. */
struct slot {
	struct key key;			/* the packet's fields under its mask */
	__u64 rule;			/* rank and class; 0 if empty */
	__u64 unused;
};

/* A qdisc with classes, or a class with filters: what finds a packet's class there. */
struct scope {
	__u32 masks;			/* a bit for each mask that its rules use */
	__u32 major;			/* of the qdisc whose classes a priority may name; 0 for none */
	__u32 unknown;			/* the class of what names one that is not there */
	__u16 term;			/* the first of its filters that no rule can say, */
	__u16 terms;			/* and how many these are */
	__u32 otherwise[16];		/* the class of packets without a rule, by priority */
};

struct plan {
	__u32 shift;			/* of a hash, to a slot's number */
	__u32 sieves;
	__u8 sieve[SIEVES_MAX];		/* which bytes of a key */
	struct scope outermost;		/* number 0 */
	struct mask by[MASKS_MAX];	/* of all scopes, in the order of `first` */
};

/* Whose rules a class follows. */
enum rules {
	HTB,				/* meter.h, share_out.h */
	FLOWVALVE,			/* valve.h, with a label */
};

/* Whether a class shares its rate among hosts first, and which address is a host's. */
enum hosts {
	FLOWS_ALONE,
	SOURCES,
	DESTINATIONS,
	SOURCES_INSIDE,			/* as it was before network address translation */
	DESTINATIONS_INSIDE,
};

struct class {
	__u64 rate;			/* assured, in bytes per second; 0 if nothing limits it */
	__u64 ceil;			/* never exceeded, in bytes per second */
	__u64 burst;			/* credit after a pause, in ns */
	__u64 limit;			/* how far ahead it may be sold, in ns */
	__u64 target;			/* the target of its AQM's virtual delay, in ns */
	__u64 interval;			/* the time that it gives senders to respond */
	__u32 batch;			/* for how long a busy CPU buys at once, in ns */
	__u32 quantum;			/* its weight among those that borrow */
	__s32 per_frame;		/* added to each frame's length */
	__u16 minimum;			/* the least that a frame is charged, before framing */
	__u8 framing;			/* how the link divides frames (overhead.h) */
	__u8 rules;			/* by which it may send (enum rules) */
	__u32 parent;			/* 0 at the root */
	__u32 child;			/* the first below it, 0 at a leaf */
	__u32 sibling;			/* the next beside it, 0 at the last */
	__u8 prio;
	__u8 hosts;			/* at a leaf, by which address it shares among hosts (enum hosts) */
	__u16 lender;			/* at a leaf, the class whose assured rate is its own; 0 for itself */
};

/* The label of a class under FlowValve's rules (valve.h): the classes on its way, and those from
 * which it borrows. Rates are in bytes per second. */
struct label {
	__u64 burst;			/* bytes that its bucket holds beyond an epoch's, */
	__u64 cburst;			/* and the bucket of its ceiling */
	__u64 promised;			/* the assured rates of the classes below it together */
	__u32 weight;			/* among those beside it with the same priority */
	__u32 is_limited;		/* whether its ceiling is less than what it could borrow */
	__u16 path[LABEL_LEVELS];	/* from the topmost class to itself; 0 behind that */
	__u16 lenders[LENDERS_MAX];	/* in the order in which they are asked; 0 behind the last */
};

/* A token bucket that one CPU fills once an epoch. */
struct bucket {
	__u64 locked;			/* since when a CPU fills it; 0 if none */
	__u64 filled;			/* when it was filled last */
	__u64 rate;			/* how fast it is filled, in bytes per second */
	__s64 tokens;			/* in bytes */
};

/* Of a class under FlowValve's rules, shared by all CPUs. Two cache lines. */
struct valve {
	struct bucket own;		/* what the class may send */
	struct bucket shadow;		/* what it lends */
	struct bucket ceil;		/* the rest of its ceiling, where that limits it */
	__s64 counted;			/* bytes sent in this epoch, of it and of all below it */
	__u64 measured;			/* bytes sent per second, over the last epochs */
	__u64 unused[2];
};

/* When an AQM signals (aqm.h). */
struct aqm {
	__u64 next;			/* when it does next; 0 for never */
	__u64 count;			/* how often it has since the delay is too long */
	__u64 last;			/* when it did last */
	__u64 inverse;			/* 1 / sqrt(count), as a fraction of 2^32 */
	__u64 delay;			/* the delay when it last looked */
};

/* Of a class, shared by all CPUs. Two cache lines: what each purchase writes, and
 * what is written once an epoch. */
struct node {
	__u64 clock;			/* up to when its present rate is sold */
	__u64 own;			/* up to when its assured rate is */
	__u64 offered;			/* bytes that arrived for it, in total */
	__u64 grant;			/* the rate from its parent, in bytes per second */
	__u64 unsatisfied_at;		/* when it last had less than it wanted */
	struct aqm aqm;
	__u64 refreshed;		/* when it last divided its rate among its children */
	__u64 locked;			/* since when a CPU does; 0 if none */
	__u64 seen;			/* `offered` at the parent's last division */
	__u64 demand;			/* of its children together, in bytes per second */
	__u64 want;			/* its demand at the last division, */
	__u64 share;			/* and its share */
};

/* A class's slot of one CPU. */
struct class_slot {
	__s64 credit;			/* bytes bought and not used */
	__u64 bought;			/* when */
	__u64 delay;			/* how far ahead the class was sold then, in ns */
	__u64 offered;			/* bytes that arrived since the class's last update */
	__u64 refused_until;		/* no purchase succeeds before that */
	__u64 borrows;			/* whether the credit is borrowed */
	__u64 own_packets;		/* sent within the assured rate */
	__u64 borrowed_packets;		/* sent with borrowed credit */
	__u64 bytes;			/* sent */
	__u64 aqm_drops;
	__u64 limit_drops;
	__u64 marked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} in_force SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct class);
} classes SEC(".maps");

/* The scopes of both plans. Those with number 0 are in the plans as well. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * SCOPES_MAX);
	__type(key, __u32);
	__type(value, struct scope);
} scopes SEC(".maps");

/* For each plan, byte of a key and value of that byte: the masks with a rule that it may fit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * KEY_BYTES * 256);
	__type(key, __u32);
	__type(value, __u32);
} sieves SEC(".maps");

/* The rules of a plan, in as many slots as they need. */
struct slots {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	/* Sizes and no types: of what only an inner map names, BTF says no size. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct slots);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct node);
} nodes SEC(".maps");

/* The labels of both plans. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct label);
} labels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct valve);
} valves SEC(".maps");

/* A class's slots. The map keeps the name that it has in older versions, so that an upgrade and
 * tools find it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct class_slot);
} class_slots SEC(".maps");

/* Updating a map of maps waits until no program runs any more that read the maps
 * before. User space does it between two plans, for that alone. */
struct nothing {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct nothing);
} grace SEC(".maps");

static __always_inline struct class *class_of(__u32 plan, __u32 class)
{
	__u32 index = plan * CLASSES_MAX + class;

	return bpf_map_lookup_elem(&classes, &index);
}

static __always_inline struct node *node_of(__u32 class)
{
	return bpf_map_lookup_elem(&nodes, &class);
}

static __always_inline struct label *label_of(__u32 plan, __u32 class)
{
	__u32 index = plan * CLASSES_MAX + class;

	return bpf_map_lookup_elem(&labels, &index);
}

static __always_inline struct valve *valve_of(__u32 class)
{
	return bpf_map_lookup_elem(&valves, &class);
}

/* The rate at which a class above sells: the ceiling below the root, since the class below it keeps
 * to its share. */
static __always_inline __u64 sold_at(const struct class *upper)
{
	return upper->parent ? upper->ceil : upper->rate;
}

#endif
