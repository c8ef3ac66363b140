// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The departure times of `stamp`, compiled for the host: the same programs/depart.h and what it
 * uses, over memory in the place of maps, at whatever time its caller says.
 *
 * Non-goals: filters and frames; concurrent CPUs.
 */
#include <stdlib.h>
#define DEPARTURES
#include "depart.h"

struct departures {
	struct class classes[2 * CLASSES_MAX];
	struct node nodes[CLASSES_MAX];
	struct calendar calendars[CLASSES_MAX];
	struct order orders[CLASSES_MAX];
	struct flow_set flows[FLOW_SETS];
	struct host_load hosts[HOSTS];
	struct sharing sharing;
	struct class_slot slots[CLASSES_MAX];
	struct departure packet;
	struct booking booking;
	struct busy busy;
};

/* The current tree of each thread. */
static _Thread_local struct departures *tree;

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	__u32 index = *(const __u32 *)key;

	if (map == &sharings)
		return &tree->sharing;
	if (map == &departing)
		return &tree->packet;
	if (map == &bookings)
		return &tree->booking;
	if (map == &busy_times)
		return &tree->busy;
	if (map == &classes)
		return index < 2 * CLASSES_MAX ? &tree->classes[index] : NULL;
	if (map == &nodes)
		return index < CLASSES_MAX ? &tree->nodes[index] : NULL;
	if (map == &calendars)
		return index < CLASSES_MAX ? &tree->calendars[index] : NULL;
	if (map == &orders)
		return index < CLASSES_MAX ? &tree->orders[index] : NULL;
	if (map == &flow_clocks)
		return index < FLOW_SETS ? &tree->flows[index] : NULL;
	if (map == &host_loads)
		return index < HOSTS ? &tree->hosts[index] : NULL;
	return NULL;
}

struct departures *departures_new(void)
{
	return calloc(1, sizeof(struct departures));
}

void departures_free(struct departures *of)
{
	free(of);
}

/* The bytes that struct class has in a map. */
void departures_class(struct departures *of, __u32 number, const struct class *class)
{
	of->classes[number] = *class;
}

/* The answer for a packet, and when it departs. */
int departures_ask(struct departures *of, __u64 now, __u32 leaf, __u64 cost, __u32 hash,
		   __u32 host, __u64 asked, int is_ecn, __u64 *at)
{
	struct departure *packet = &of->packet;
	struct class *class = &of->classes[leaf];
	struct node *node = &of->nodes[leaf];
	struct flow_clock *flow;
	int answer;

	tree = of;
	*at = 0;
	packet->plan = 0;
	packet->leaf = leaf;
	packet->cost = cost;
	packet->now = now;
	packet->asked = asked;
	packet->at_once = packet->is_control = 0;
	flow = flow_clock_of(leaf, hash, now);
	packet->host = class->hosts == FLOWS_ALONE ? NO_HOST : find_host(leaf, host, now);
	node->offered += cost;
	answer = judge_delay(packet, class, node, flow);
	if (answer == FULL || (answer == MARK_OR_DROP && !is_ecn))
		return answer;
	if (!depart(class, node, flow, &of->slots[leaf], packet))
		return FULL;
	*at = packet->at;
	return answer;
}
