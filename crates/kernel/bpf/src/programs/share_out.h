/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How a class divides its rate among the classes below it.
 *
 * It does so when division.h says. The demand of a class below is measured: unlimited if it
 * got less than it wanted, otherwise its arrivals. The order is HTB's: first the assured
 * rates, reduced in proportion if they do not fit; then the rest by priority, within a priority
 * by quantum, until all demands are met. The remainder is open to all. The clock of the class
 * above keeps the sum exact meanwhile, and a class that was sold ahead divides slightly less
 * until it is even.
 *
 * A class that has what it wants may take more at once: twice as much, or what it would have got
 * had it wanted everything. Others give way at the next division. Without that, a class that
 * comes back would be refused until then, and one that only borrows could never begin.
 *
 * Source: S. Xi et al., FlowValve, §IV; tc-htb(8).
 */
#ifndef SHARE_OUT_H
#define SHARE_OUT_H

#include "division.h"

struct sharing {
	__u32 plan;
	__u32 child;			/* the first */
	__u32 next;			/* the next one */
	__u64 now;
	__u64 elapsed;
	__u64 rate;			/* the rate to divide */
	__u64 left;			/* the rest of it */
	__u64 assured;			/* the sum of assured demands */
	__u64 demand;
	__u64 weight;			/* of children that want more, in this round */
	__u64 given;			/* in this round */
	__u32 prio;			/* of this round */
	__u32 prios;			/* priorities that occur */
	__u64 room[PRIORITIES];		/* what is left for a priority, */
	__u64 weights[PRIORITIES];	/* and the weight of its children that want more */
};

/* Whether its virtual queue stands. Then it wants more, also where nothing of it comes just
 * now because its CPU has to wait. */
static __always_inline int is_sold_ahead(const struct class *class, const struct node *node,
					 __u64 now)
{
	return (__s64)(node->clock - now) > (__s64)(class->limit / 8);
}

/* The next child, and advances; 0 if there is none. */
static __always_inline int next_child(struct sharing *s, struct class **class, struct node **node)
{
	if (!s || !s->next)
		return 0;
	*class = class_of(s->plan, s->next);
	*node = node_of(s->next);
	if (!*class || !*node)
		return 0;
	s->next = (*class)->sibling;
	return 1;
}

/* The demand of a child. */
static long measure(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct class *class;
	struct node *node;
	__u64 came;

	if (!next_child(s, &class, &node))
		return 1;
	if (class->child) {
		node->want = s->now - node->refreshed < EXPIRED ? node->demand : 0;
	} else {
		__u64 offered = node->offered;

		came = offered - node->seen;
		node->seen = offered;
		if (s->now - node->unsatisfied_at < 2 * EPOCH || is_sold_ahead(class, node, s->now))
			node->want = class->ceil;
		else
			node->want = came * 1000000 / (s->elapsed / 1000 + 1);
	}
	node->want = min(node->want, class->ceil);
	node->share = min(node->want, class->rate);
	s->assured += node->share;
	s->demand += node->want;
	s->prios |= 1 << (class->prio & (PRIORITIES - 1));
	return 0;
}

/* Reduces assured rates if they do not fit; sums the weights of a priority. */
static long weigh(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct class *class;
	struct node *node;

	if (!next_child(s, &class, &node))
		return 1;
	if (s->prio == PRIORITIES)
		node->share = node->share * (s->rate >> 10) / ((s->assured >> 10) + 1);
	else if (class->prio == s->prio && node->want > node->share)
		s->weight += class->quantum;
	return 0;
}

/* A round for the children of a priority that want more. */
static long fill(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct class *class;
	struct node *node;
	__u64 part;

	if (!next_child(s, &class, &node))
		return 1;
	if (class->prio == s->prio && node->want > node->share) {
		part = (s->left >> 8) * class->quantum / max(s->weight, 1);
		part = min(part << 8, node->want - node->share);
		node->share += part;
		s->given += part;
	}
	return 0;
}

/* A round of a priority: all rounds of a priority come before those of the next. */
static long serve(__u32 index, void *unused)
{
	struct sharing *s = sharing();

	if (!s)
		return 1;
	s->prio = index / ROUNDS;
	if (!s->left || !(s->prios & (1U << (s->prio & (PRIORITIES - 1)))))
		return 0;
	s->weight = s->given = 0;
	s->next = s->child;
	bpf_loop(CLASSES_MAX, weigh, 0, 0);
	if (index % ROUNDS == 0) {
		s->room[s->prio & (PRIORITIES - 1)] = s->left;
		s->weights[s->prio & (PRIORITIES - 1)] = s->weight;
	}
	if (!s->weight)
		return 0;
	s->next = s->child;
	bpf_loop(CLASSES_MAX, fill, 0, 0);
	s->left -= min(s->given, s->left);
	return 0;
}

/* Where it has been sold too far ahead because its rate was low, it owes as many bytes at its new
 * rate: one packet at next to no rate would close it for hours. */
static __always_inline void rescale(const struct class *class, struct node *node, __u64 before,
				    __u64 now)
{
	__u64 clock = *(volatile __u64 *)&node->clock;
	__u64 times = node->grant / max(before, 1);

	if ((__s64)(clock - now) > (__s64)class->limit && times > 1)
		__sync_val_compare_and_swap(&node->clock, clock, now + (clock - now) / times);
}

/* Gives each child its new rate: never less than the assured one, if that fits. */
static long announce(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	int fits = s && s->assured <= s->rate;
	struct class *class;
	struct node *node;
	__u64 grant, before;

	if (!next_child(s, &class, &node))
		return 1;
	grant = max(node->share, fits ? class->rate : 1) + (fits ? s->left : 0);
	if (node->want < class->ceil) {
		__u32 prio = class->prio & (PRIORITIES - 1);
		__u64 room = (s->room[prio] >> 8) * class->quantum /
			     (s->weights[prio] + class->quantum) << 8;

		grant = max(max(grant, class->rate), max(2 * node->share, room));
	}
	before = node->grant ? node->grant : class->rate;
	node->grant = min(grant, class->ceil);
	rescale(class, node, before, s->now);
	return 0;
}

/* Divides the rate of `parent`, if that is due. */
__noinline int share_out(__u32 plan, __u32 parent, __u64 now)
{
	struct class *class = class_of(plan, parent);
	struct node *node = node_of(parent);
	struct sharing *s = sharing();

	if (!class || !node || !s)
		return 0;
	if (!begin_division(node, now))
		return 0;
	__builtin_memset(s, 0, sizeof(*s));
	s->plan = plan;
	s->now = now;
	s->elapsed = now - node->refreshed;
	s->rate = class->parent && node->grant ? min(node->grant, class->ceil) : class->rate;
	if (is_sold_ahead(class, node, now))
		s->rate -= s->rate >> 6;
	s->next = class->child;
	bpf_loop(CLASSES_MAX, measure, 0, 0);
	node->demand = min(s->demand, class->ceil);
	s->left = s->rate > s->assured ? s->rate - s->assured : 0;
	if (s->assured > s->rate) {
		s->prio = PRIORITIES;
		s->next = class->child;
		bpf_loop(CLASSES_MAX, weigh, 0, 0);
	}
	s->child = class->child;
	bpf_loop(PRIORITIES * ROUNDS, serve, 0, 0);
	s->next = class->child;
	bpf_loop(CLASSES_MAX, announce, 0, 0);
	node->refreshed = now;
	end_division(node);
	return 0;
}

#endif
