/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How a class shares out what it may send among the classes below it.
 *
 * Once an epoch, by whoever comes first and gets the class's try-lock (FlowValve);
 * the others go on with what was shared out before. What a class below could use is
 * measured: all of it where it had less than it wanted, else twice what came. Then in
 * HTB's order: first what is assured, cut by the same part where it does not fit; the
 * rest by priority, within one by quantum, until nobody wants more. What nobody wants
 * is open to all. The clock of the class above keeps the sum exact meanwhile, and a
 * class that was sold ahead shares out a little less until it is even.
 *
 * Source: S. Xi et al., FlowValve, §IV; tc-htb(8).
 */
#ifndef SHARE_OUT_H
#define SHARE_OUT_H

#include "tree.h"

#define SECOND 1000000000ULL
#define EPOCH (2 * 1000000ULL)
/* What nobody has refreshed for so long says nothing any more. */
#define EXPIRED (16 * EPOCH)
/* Whoever holds a lock for so long is gone. */
#define LOST (64 * EPOCH)
/* Hungry children of a priority are served in so many rounds, each filling some up. */
#define ROUNDS 4

struct sharing {
	__u32 plan;
	__u32 child;			/* the first */
	__u32 next;			/* the one that comes next */
	__u64 now;
	__u64 elapsed;
	__u64 rate;			/* what is shared out */
	__u64 left;			/* of it */
	__u64 assured;			/* all that is assured and wanted */
	__u64 demand;
	__u64 weight;			/* of those that want more, in this round */
	__u64 given;			/* in this round */
	__u32 prio;			/* of this round */
	__u32 prios;			/* that somebody has */
};

/* In a map and not on the stack: the verifier follows what is on the stack, and would
 * never come to an end with sums over any number of children. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sharing);
} sharings SEC(".maps");

static __always_inline struct sharing *sharing(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sharings, &zero);
}

/* Whether its virtual queue stands. Then it wants more, also where nothing of it comes just
 * now because its CPU has to wait. */
static __always_inline int is_sold_ahead(const struct class *class, const struct node *node,
					 __u64 now)
{
	return (__s64)(node->clock - now) > (__s64)(class->limit / 8);
}

/* The child that comes next, and moves on to the one behind it; 0 where there is none. */
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

/* What a child could use. */
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
		if (s->now - node->hungry_at < 2 * EPOCH || is_sold_ahead(class, node, s->now))
			node->want = class->ceil;
		else
			node->want = 2 * came * 1000000 / (s->elapsed / 1000 + 1);
	}
	node->want = min(node->want, class->ceil);
	node->share = min(node->want, class->rate);
	s->assured += node->share;
	s->demand += node->want;
	s->prios |= 1 << (class->prio & (PRIORITIES - 1));
	return 0;
}

/* Cuts what is assured, where there is less; and weighs those of a priority. */
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

/* A round for those of a priority that want more. */
static long fill(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct class *class;
	struct node *node;
	__u64 part;

	if (!next_child(s, &class, &node))
		return 1;
	if (class->prio == s->prio && node->want > node->share) {
		part = (s->left >> 8) * class->quantum / (s->weight + 1);
		part = min(part << 8, node->want - node->share);
		node->share += part;
		s->given += part;
	}
	return 0;
}

/* A round of a priority: all its rounds come before the next one's. */
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
	if (!s->weight)
		return 0;
	s->next = s->child;
	bpf_loop(CLASSES_MAX, fill, 0, 0);
	s->left -= min(s->given, s->left);
	return 0;
}

/* Says each child what it may send from now on: never less than is assured. */
static long announce(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct class *class;
	struct node *node;

	if (!next_child(s, &class, &node))
		return 1;
	if (s->assured > s->rate)
		node->grant = max(node->share, 1);
	else
		node->grant = min(max(node->share, class->rate) + s->left, class->ceil);
	return 0;
}

/* Shares out what `parent` has, where that is due. */
__noinline int share_out(__u32 plan, __u32 parent, __u64 now)
{
	struct class *class = class_of(plan, parent);
	struct node *node = node_of(parent);
	struct sharing *s = sharing();
	__u64 locked, elapsed;

	if (!class || !node || !s)
		return 0;
	locked = *(volatile __u64 *)&node->locked;
	if (locked && now - locked < LOST)
		return 0;
	if (__sync_val_compare_and_swap(&node->locked, locked, now) != locked)
		return 0;
	elapsed = now - node->refreshed;
	/* Somebody has just done it, or by a clock that is a little ahead. */
	if ((__s64)elapsed < (__s64)EPOCH)
		goto unlock;
	__builtin_memset(s, 0, sizeof(*s));
	s->plan = plan;
	s->now = now;
	s->elapsed = elapsed;
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
unlock:
	__sync_lock_test_and_set(&node->locked, 0);
	return 0;
}

#endif
