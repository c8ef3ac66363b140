/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How a class divides its rate among the classes below it, where packets wait (depart.h).
 *
 * The order is HTB's: first the assured rates, reduced in proportion if they do not fit. Then each
 * class lends the rest of its own rate, the lowest first, to the leaves below it that want more: by
 * their priorities, and within a priority by their quanta. A class above divides by the leaves, not
 * by the classes in between. So each class reports by priority what is still wanted below it, and
 * with which weight; what it is lent for a priority it divides in the same way. Reports go up
 * within an epoch, loans come down one class in each.
 *
 * A leaf wants everything once packets of it have waited all along for a while, and else a little
 * more than comes. Nothing that is estimated wrongly is lost: a class lends slightly more than its
 * rate, and less as far as borrowers wait for it. The calendars keep the sum exact meanwhile.
 *
 * A leaf that does not want everything may take at once what it would get if it did. Others give
 * way at the next divisions.
 */
#ifndef LEND_H
#define LEND_H

#include "calendar.h"
#include "division.h"

/* The part of a rate that is lent beyond it, so that estimates waste nothing: then borrowers wait.
 * What they wait is made up for in 2^DRAIN_SHIFT ns, which is longer than classes take to hear of
 * it. So in the long run they wait for two milliseconds, and what is lent is the rate. */
#define OVER_PART 16
#define DRAIN_SHIFT 25
/* The part of a new measurement in the mean of what comes, and of that mean that a leaf wants
 * more. */
#define COMES_PART 8
#define MORE_PART 32

/* What is wanted below a class from above, and lent to it: by priority, in bytes per second. At a
 * leaf, by its own priority. */
struct order {
	__u64 want[PRIORITIES];
	__u64 weight[PRIORITIES];	/* of the leaves that want */
	__u64 loan[PRIORITIES];
	__u64 next[PRIORITIES];		/* the loan that is being computed */
	__u64 room[PRIORITIES];		/* what those above have for a priority, */
	__u64 rivals[PRIORITIES];	/* and the weight of those that want it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

struct sharing {
	__u32 plan;
	__u32 parent;
	__u32 child;			/* the first */
	__u32 next;			/* the next one */
	__u32 prio;			/* of this round */
	__u32 prios;			/* priorities that occur */
	__u64 now;
	__u64 elapsed;
	__u64 own;			/* the rate to divide */
	__u64 left;			/* the rest of it */
	__u64 most;			/* what children may still get together */
	__u64 assured;			/* the sum of assured demands */
	__u64 demand;			/* all demands, as far as ceilings let them pass */
	__u64 wanted;			/* in this round, */
	__u64 weight;			/* by children with this weight, */
	__u64 pool;			/* of this */
	__u64 given;			/* for this priority */
	__u64 room[PRIORITIES];		/* what there is for a priority, */
	__u64 weights[PRIORITIES];	/* and the weight of those that want it */
};

static __always_inline struct order *order_of(__u32 class)
{
	return bpf_map_lookup_elem(&orders, &class);
}

/* A class below. */
struct child {
	struct class *class;
	struct node *node;
	struct order *order;
};

/* The next child, and advances; 0 if there is none. */
static __always_inline int next_child(struct sharing *s, struct child *child)
{
	if (!s || !s->next)
		return 0;
	child->class = class_of(s->plan, s->next);
	child->node = node_of(s->next);
	child->order = order_of(s->next);
	if (!child->class || !child->node || !child->order)
		return 0;
	s->next = child->class->sibling;
	return 1;
}

/* The demand of a leaf. */
static __always_inline void measure_leaf(struct sharing *s, struct child *leaf)
{
	const struct class *class = leaf->class;
	__u32 prio = class->prio & (PRIORITIES - 1);
	struct node *node = leaf->node;
	__u64 offered = *(volatile __u64 *)&node->offered;
	__u64 comes = (offered - node->seen) * 1000000 / (s->elapsed / 1000 + 1);

	node->seen = offered;
	if (s->elapsed > EXPIRED)
		node->demand = comes;
	node->demand = node->demand - node->demand / COMES_PART + comes / COMES_PART;
	node->want = node->demand + node->demand / MORE_PART;
	if (s->now - node->unsatisfied_at < 2 * EPOCH)
		node->want = class->ceil;
	node->want = min(node->want, class->ceil);
	node->share = min(node->want, class->rate);
	/* It may have had another priority. */
	__builtin_memset(leaf->order->want, 0, sizeof(leaf->order->want));
	leaf->order->want[prio] = node->want - node->share;
	leaf->order->weight[prio] = class->quantum;
	leaf->order->next[prio] = 0;
	s->prios |= 1 << prio;
}

static __always_inline void measure_inner(struct sharing *s, struct child *inner)
{
	int is_current = s->now - inner->node->refreshed < EXPIRED;

	inner->node->share = is_current ? min(inner->node->want, inner->class->rate) : 0;
	for (int prio = 0; prio < PRIORITIES; prio++) {
		inner->order->next[prio] = 0;
		if (!is_current)
			inner->order->want[prio] = 0;
		if (inner->order->want[prio])
			s->prios |= 1 << prio;
	}
}

static long measure(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct child child;

	if (!next_child(s, &child))
		return 1;
	if (child.class->child)
		measure_inner(s, &child);
	else
		measure_leaf(s, &child);
	s->assured += child.node->share;
	return 0;
}

/* Reduces assured rates, which do not fit. */
static long reduce(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct child child;

	if (!next_child(s, &child))
		return 1;
	child.node->share = child.node->share * (s->own >> 10) / ((s->assured >> 10) + 1);
	return 0;
}

/* What a child still wants for a priority, and may have. */
static __always_inline __u64 wanted_by(const struct child *child, __u32 prio)
{
	__u64 want = child->order->want[prio], next = child->order->next[prio];
	__u64 share = child->node->share, ceil = child->class->ceil;

	/* A leaf keeps to its ceiling by itself, and a class above leaves lends beyond it, too. */
	if (child->class->child)
		ceil += ceil / OVER_PART;
	return min(want - min(want, next), ceil - min(ceil, share));
}

/* Sums what is wanted for a priority, and the weight of those that want it. */
static long weigh(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct child child;
	__u32 prio;
	__u64 want;

	if (!next_child(s, &child))
		return 1;
	prio = s->prio & (PRIORITIES - 1);
	want = wanted_by(&child, prio);
	if (want) {
		s->wanted += want;
		s->weight += child.order->weight[prio];
	}
	return 0;
}

/* Divides the pool among those that want it. */
static long fill(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct child child;
	__u64 want, part;
	__u32 prio;

	if (!next_child(s, &child))
		return 1;
	prio = s->prio & (PRIORITIES - 1);
	want = wanted_by(&child, prio);
	if (want) {
		part = (s->pool >> 8) * child.order->weight[prio] / max(s->weight, 1);
		part = min(part << 8, want);
		child.order->next[prio] += part;
		child.node->share += part;
		s->given += part;
	}
	return 0;
}

/* The first round of a priority: what there is for it, and what is wanted from above, which is all
 * that the class does not lend itself. */
static __always_inline void begin_priority(struct sharing *s, struct order *order, __u32 prio)
{
	s->room[prio] = min(s->left + order->loan[prio], s->most);
	s->weights[prio] = s->weight;
	order->want[prio] = s->wanted - min(s->left, s->wanted);
	order->weight[prio] = s->weight;
	s->demand += s->wanted;
	s->given = 0;
}

/* A round of a priority: all rounds of a priority come before those of the next. */
static long serve(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct order *order = s ? order_of(s->parent) : 0;
	__u32 prio = index / ROUNDS & (PRIORITIES - 1);

	if (!s || !order)
		return 1;
	s->prio = prio;
	s->weight = s->wanted = 0;
	if (s->prios & (1U << prio)) {
		s->next = s->child;
		bpf_loop(CLASSES_MAX, weigh, 0, 0);
	}
	if (index % ROUNDS == 0)
		begin_priority(s, order, prio);
	s->pool = s->room[prio] - min(s->given, s->room[prio]);
	if (s->wanted && s->pool) {
		s->next = s->child;
		bpf_loop(CLASSES_MAX, fill, 0, 0);
	}
	if (index % ROUNDS == ROUNDS - 1) {
		s->left -= min(s->given, s->left);
		s->most -= min(s->given, s->most);
	}
	return 0;
}

/* What one more leaf with this weight would get of `room` beside `rivals`. */
static __always_inline __u64 newcomers_part(__u64 room, __u64 rivals, __u64 weight)
{
	return (room >> 8) * weight / (rivals + weight) << 8;
}

static __always_inline void announce_leaf(struct sharing *s, const struct order *above,
					  const struct child *leaf, int fits)
{
	const struct class *class = leaf->class;
	__u32 prio = class->prio & (PRIORITIES - 1);
	struct node *node = leaf->node;
	__u64 grant = max(node->share, fits ? class->rate : 1), part;

	if (node->want <= node->share) {
		part = max(newcomers_part(s->room[prio], s->weights[prio], class->quantum),
			   newcomers_part(above->room[prio], above->rivals[prio], class->quantum));
		grant = max(grant, min(node->want, class->rate) + part);
	}
	node->grant = min(grant, class->ceil);
}

static __always_inline void announce_inner(struct sharing *s, const struct order *above,
					   const struct child *inner, int fits)
{
	struct order *order = inner->order;

	inner->node->grant = fits ? inner->class->rate : max(inner->node->share, 1);
	for (int prio = 0; prio < PRIORITIES; prio++) {
		int is_more = s->room[prio] / (s->weights[prio] + 1) >=
			      above->room[prio] / (above->rivals[prio] + 1);

		order->loan[prio] = order->next[prio];
		order->room[prio] = is_more ? s->room[prio] : above->room[prio];
		order->rivals[prio] = is_more ? s->weights[prio] : above->rivals[prio];
	}
}

/* Gives each child its new rate: never less than the assured one, if that fits. */
static long announce(__u32 index, void *unused)
{
	struct sharing *s = sharing();
	struct order *above = s ? order_of(s->parent) : 0;
	int fits = s && s->assured <= s->own;
	struct child child;

	if (!above || !next_child(s, &child))
		return 1;
	if (child.class->child)
		announce_inner(s, above, &child, fits);
	else
		announce_leaf(s, above, &child, fits);
	return 0;
}

/* Sets what there is to divide where borrowers wait for so long. */
static __always_inline void set_rates(struct sharing *s, const struct class *class,
				      const struct node *node, __u64 wait)
{
	__u64 sold = sold_at(class), drain = (sold >> 10) * (wait >> (DRAIN_SHIFT - 10));

	s->most = sold + sold / OVER_PART;
	s->most -= min(drain, s->most);
	if (class->parent)
		s->own = node->grant ? min(node->grant, class->rate) : class->rate;
	else
		/* What is assured is hardly reduced. */
		s->own = max(s->most, sold - (sold >> 6));
}

/* Divides the rate of `parent`, if that is due. */
__noinline int share_out(__u32 plan, __u32 parent, __u64 now)
{
	struct class *class = class_of(plan, parent);
	struct calendar *calendar = calendar_of(parent);
	struct node *node = node_of(parent);
	struct sharing *s = sharing();
	__u64 wait;

	if (!class || !calendar || !node || !s)
		return 0;
	if (!begin_division(node, now))
		return 0;
	__builtin_memset(s, 0, sizeof(*s));
	s->plan = plan;
	s->parent = parent;
	s->now = now;
	s->elapsed = now - node->refreshed;
	s->child = class->child;
	wait = __sync_lock_test_and_set(&calendar->waits, NONE);
	set_rates(s, class, node, wait == NONE ? 0 : wait);
	s->next = s->child;
	bpf_loop(CLASSES_MAX, measure, 0, 0);
	if (s->assured > s->own) {
		s->next = s->child;
		bpf_loop(CLASSES_MAX, reduce, 0, 0);
	}
	s->demand = s->assured;
	s->left = s->own - min(s->assured, s->own);
	s->most -= min(s->assured, s->most);
	bpf_loop(PRIORITIES * ROUNDS, serve, 0, 0);
	/* Not what it could give: a class whose assured rate is reduced would seem to want no more than
	 * is left of it. Then all that is assured seems to fit, and each has all of it until the next
	 * division but one. */
	node->want = s->demand;
	s->next = s->child;
	bpf_loop(CLASSES_MAX, announce, 0, 0);
	node->refreshed = now;
	end_division(node);
	return 0;
}

#endif
