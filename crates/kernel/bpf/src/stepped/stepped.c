// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * `tree`'s meter, compiled for the host: the same programs/meter.h, share_out.h and valve.h, over
 * memory in the place of maps, at whatever time its caller says.
 *
 * A tree has CPUs, each with its slots. They take turns: the caller names the CPU.
 *
 * Non-goals: filters and frames; concurrent CPUs.
 */
#include <stdlib.h>
#include <linux/types.h>

static __u64 bpf_ktime_get_ns(void);
static __u64 bpf_ktime_get_coarse_ns(void);

#include "meter.h"

/* The step of Linux's coarse clock with HZ=250. */
#define TICK 4000000ULL

struct stepped {
	struct class classes[2 * CLASSES_MAX];
	struct node nodes[CLASSES_MAX];
	struct sharing sharing;
	struct label labels[2 * CLASSES_MAX];
	struct valve valves[CLASSES_MAX];
	struct dividing dividing;
	__u64 now;
	struct class_slot slots[];	/* of one CPU after the other */
};

/* The current tree of each thread. */
static _Thread_local struct stepped *tree;

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	__u32 index = *(const __u32 *)key;

	if (map == &sharings)
		return &tree->sharing;
	if (map == &classes)
		return index < 2 * CLASSES_MAX ? &tree->classes[index] : NULL;
	if (map == &nodes)
		return index < CLASSES_MAX ? &tree->nodes[index] : NULL;
	if (map == &labels)
		return index < 2 * CLASSES_MAX ? &tree->labels[index] : NULL;
	if (map == &valves)
		return index < CLASSES_MAX ? &tree->valves[index] : NULL;
	if (map == &dividings)
		return &tree->dividing;
	return NULL;
}

static __u64 bpf_ktime_get_ns(void)
{
	return tree->now;
}

static __u64 bpf_ktime_get_coarse_ns(void)
{
	return tree->now / TICK * TICK;
}

struct stepped *stepped_new(__u32 cpus)
{
	return calloc(1, sizeof(struct stepped) + cpus * CLASSES_MAX * sizeof(struct class_slot));
}

void stepped_free(struct stepped *of)
{
	free(of);
}

/* The bytes that struct class has in a map. */
void stepped_class(struct stepped *of, __u32 number, const struct class *class)
{
	of->classes[number] = *class;
}

/* The bytes that struct label has in a map. */
void stepped_label(struct stepped *of, __u32 number, const struct label *label)
{
	of->labels[number] = *label;
}

/* The verdict on a packet, and whether a purchase was tried for it. */
int stepped_meter(struct stepped *of, __u64 now, __u32 cpu, __u32 leaf, __u64 cost, int *asked)
{
	struct class_slot *slot = &of->slots[cpu * CLASSES_MAX + leaf];
	__u64 bought = slot->bought, refused = slot->refused_until;
	const struct class *class;
	int answer;

	tree = of;
	of->now = now;
	class = class_of(0, leaf);
	if (!class)
		return FULL;
	answer = meter(0, leaf, class, slot, cost);
	/* By FlowValve's rules each packet asks. */
	*asked = class->rules == FLOWVALVE || slot->bought != bought ||
		 slot->refused_until != refused;
	if (answer == MARK_OR_DROP)
		slot->aqm_drops++;
	return answer;
}
