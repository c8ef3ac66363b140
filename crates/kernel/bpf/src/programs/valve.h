/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a class may send by FlowValve's rules: a token bucket for each class, filled once an
 * epoch, and what a class leaves of its rate in a second bucket, from which others borrow.
 *
 * A packet refreshes the classes on its way, from the topmost one down. Where the epoch of one is
 * over and no other CPU is at it, this CPU measures what the class has sent and fills its bucket,
 * with its part of the rate of the class above: by its weight, of what classes of better
 * priorities, as measured, leave, and what is assured to it. Then the packet takes tokens of its
 * own class, or, in the order of the label, of the shadow bucket of a lender, or it is dropped.
 * What is sent is counted on the whole way. State that nobody has refreshed for 16 epochs is
 * forgotten.
 *
 * It is the same algorithm as `coordination flowvalve` has with queues (crates/core/coordination,
 * flowvalve.rs, which says where it differs from the paper), but for this: what gets no token is
 * dropped, and does not wait. So there is no AQM either, which would need a delay to look at.
 *
 * Cost: unlike under HTB's rules (meter.h), each packet writes to each class on its way, and no CPU
 * buys ahead.
 *
 * Non-goals: more lenders of a class than LENDERS_MAX; rates above 2^40 bytes per second.
 *
 * Source: S. Xi, F. Li, X. Wang, "FlowValve: Packet Scheduling Offloaded on NP-based SmartNICs",
 * section IV and Algorithm 1.
 */
#ifndef VALVE_H
#define VALVE_H

#include "clock.h"
#include "tree.h"

/* The unit of time of FlowValve's code, 2^18 times 16 cycles of 1.2 GHz, in ns. */
#define VALVE_EPOCH 3495253ULL
/* State that was not refreshed for this long is forgotten. */
#define VALVE_EXPIRED (16 * VALVE_EPOCH)
/* A lock that is held for this long is abandoned. */
#define VALVE_LOST (64 * VALVE_EPOCH)
/* What a shadow bucket holds beyond an epoch's: two full frames. */
#define SHADOW_BURST (2 * 1514)
/* The bits of a fraction. */
#define FRACTION 20

/* What a packet gets. */
enum tokens {
	NO_TOKENS,
	OWN_TOKENS,
	LENT_TOKENS,
};

/* The rate of a class that is being computed. In a map and not on the stack: the verifier
 * follows what is on the stack, and would never come to an end with sums over any number of
 * classes. */
struct dividing {
	__u32 plan;
	__u32 prio;			/* of the class */
	__u32 next;			/* the next class beside it, from the first one */
	__u64 now;
	__u64 total;			/* the rate of the class above */
	__u64 promised;			/* and what is assured of it */
	__u64 left;			/* of it for this priority */
	__u64 weights;			/* of this priority, together */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dividing);
} dividings SEC(".maps");

static __always_inline struct dividing *dividing(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&dividings, &zero);
}

/* `value` times a fraction of at most 1. All are below 2^44. */
static __always_inline __u64 fraction_of(__u64 value, __u64 part, __u64 whole)
{
	return value * ((part << FRACTION) / max(whole, 1)) >> FRACTION;
}

/* Bytes at `rate` in so many ns, at most VALVE_EXPIRED. */
static __always_inline __u64 earned(__u64 rate, __u64 span)
{
	if (rate >> 32)
		return (rate >> 10) * span / SECOND << 10;
	return rate * span / SECOND;
}

/* Bytes per second of so many in so many ns. */
static __always_inline __u64 per_second(__u64 bytes, __u64 span)
{
	if (bytes >> 32)
		return (bytes >> 10) * SECOND / span << 10;
	return bytes * SECOND / span;
}

static __always_inline __u64 filled_at(const struct bucket *bucket)
{
	return *(const volatile __u64 *)&bucket->filled;
}

/* Whether it was not filled for so long that its state is forgotten. */
static __always_inline int is_forgotten(const struct bucket *bucket, __u64 now)
{
	return (__s64)(now - filled_at(bucket)) > (__s64)VALVE_EXPIRED;
}

static __always_inline void end_filling(struct bucket *bucket)
{
	__sync_lock_test_and_set(&bucket->locked, 0);
}

/* Takes the lock of a bucket whose epoch is over. Returns how long the epoch took; 0 if it is
 * not over, or another CPU has the lock. */
static __always_inline __u64 begin_filling(struct bucket *bucket, __u64 now)
{
	__u64 locked = *(volatile __u64 *)&bucket->locked;

	if ((__s64)(now - filled_at(bucket)) < (__s64)VALVE_EPOCH)
		return 0;
	if (locked && now - locked < VALVE_LOST)
		return 0;
	if (__sync_val_compare_and_swap(&bucket->locked, locked, now) != locked)
		return 0;
	if ((__s64)(now - filled_at(bucket)) >= (__s64)VALVE_EPOCH)
		return now - filled_at(bucket);
	/* Another CPU has just filled it. */
	end_filling(bucket);
	return 0;
}

/* Fills it at `rate` for so long, or for an epoch if its state is forgotten, and gives the lock
 * back. It holds an epoch's worth, and `burst`. */
static __always_inline void fill_bucket(struct bucket *bucket, __u64 rate, __u64 burst, __u64 span,
					__u64 now)
{
	__s64 more = earned(rate, span > VALVE_EXPIRED ? VALVE_EPOCH : span);
	__s64 room = earned(rate, VALVE_EPOCH) + burst - *(volatile __s64 *)&bucket->tokens;

	*(volatile __u64 *)&bucket->rate = rate;
	/* Others take of it meanwhile, and then there is more room. */
	if (more > room)
		more = room;
	if (more > 0)
		__sync_fetch_and_add(&bucket->tokens, more);
	*(volatile __u64 *)&bucket->filled = now;
	end_filling(bucket);
}

/* Takes `cost` if there is enough. */
static __always_inline int take_tokens(struct bucket *bucket, __u64 cost)
{
	if (*(volatile __s64 *)&bucket->tokens < (__s64)cost)
		return 0;
	if ((__s64)__sync_fetch_and_add(&bucket->tokens, -(__s64)cost) >= (__s64)cost)
		return 1;
	/* Others have taken it meanwhile. */
	__sync_fetch_and_add(&bucket->tokens, cost);
	return 0;
}

/* What a class sends, in bytes per second, as of its last epoch. */
static __always_inline __u64 consumed(const struct valve *valve, __u64 now)
{
	return is_forgotten(&valve->own, now) ? 0 : *(const volatile __u64 *)&valve->measured;
}

/* What is assured to a class. If the assured rates do not fit, all are reduced by the same
 * factor. */
static __always_inline __u64 assured_of(const struct dividing *d, const struct class *class)
{
	if (d->promised <= d->total)
		return class->rate;
	return fraction_of(class->rate, d->total, d->promised);
}

/* Takes off what a class beside the one in question has before it. */
static long leave_to(__u32 index, void *unused)
{
	struct dividing *d = dividing();
	struct class *beside;
	struct label *label;
	struct valve *valve;
	__u64 less;

	if (!d || !d->next)
		return 1;
	beside = class_of(d->plan, d->next);
	label = label_of(d->plan, d->next);
	valve = valve_of(d->next);
	if (!beside || !label || !valve)
		return 1;
	less = beside->prio < d->prio ? consumed(valve, d->now) : assured_of(d, beside);
	d->left -= min(less, d->left);
	if (beside->prio == d->prio)
		d->weights += label->weight;
	d->next = beside->sibling;
	return 0;
}

/* The rate of a class out of `total`, that of the class above it: what is assured to it, and its
 * part, by weight, of what better priorities leave and is assured to none beside it. Never 0: as
 * in FlowValve's code a class that starves has a rate of one. */
__noinline __u64 share_of(__u32 plan, __u32 number, __u64 total, __u64 now)
{
	struct class *class = class_of(plan, number), *above;
	struct label *label = label_of(plan, number), *of_above;
	struct dividing *d = dividing();
	__u64 share;

	if (!class || !label || !d)
		return 1;
	if (!class->parent)
		return max(class->rate, 1);
	above = class_of(plan, class->parent);
	of_above = label_of(plan, class->parent);
	if (!above || !of_above)
		return 1;
	d->plan = plan;
	d->prio = class->prio;
	d->next = above->child;
	d->now = now;
	d->total = total;
	d->promised = of_above->promised;
	d->left = total;
	d->weights = 0;
	bpf_loop(CLASSES_MAX, leave_to, 0, 0);
	share = assured_of(d, class) + fraction_of(d->left, label->weight, d->weights);
	return max(min(share, class->ceil), 1);
}

/* The rate of a class: as it was set, or as it would be now where that is forgotten. */
__noinline __u64 rate_now(__u32 plan, __u32 number, __u64 now)
{
	struct label *label = label_of(plan, number);
	struct valve *valve;
	__u64 rate = 1;
	__u32 at;

	if (!label)
		return 1;
	for (int level = 0; level < LABEL_LEVELS; level++) {
		at = label->path[level];
		valve = valve_of(at);
		if (!at || !valve)
			break;
		if (is_forgotten(&valve->own, now))
			rate = share_of(plan, at, rate, now);
		else
			rate = *(volatile __u64 *)&valve->own.rate;
	}
	return rate;
}

/* Measures what a class has sent and fills its bucket, and that of its ceiling, if its epoch is
 * over. */
__noinline int refresh_own(__u32 plan, __u32 number, __u64 now)
{
	struct class *class = class_of(plan, number);
	struct label *label = label_of(plan, number);
	struct valve *valve = valve_of(number);
	__u64 span, above = 0, sent, before;
	__s64 counted;

	if (!class || !label || !valve)
		return 0;
	span = begin_filling(&valve->own, now);
	if (!span)
		return 0;
	counted = __sync_lock_test_and_set(&valve->counted, 0);
	sent = per_second(counted > 0 ? counted : 0, span);
	before = span > VALVE_EXPIRED ? 0 : valve->measured;
	*(volatile __u64 *)&valve->measured = (before + sent) / 2;
	if (class->parent)
		above = rate_now(plan, class->parent, now);
	fill_bucket(&valve->own, share_of(plan, number, above, now), label->burst, span, now);
	if (!label->is_limited)
		return 0;
	span = begin_filling(&valve->ceil, now);
	if (span)
		fill_bucket(&valve->ceil, class->ceil, label->cburst, span, now);
	return 0;
}

/* Fills the bucket from which a class lends, if its epoch is over. */
__noinline int refresh_shadow(__u32 plan, __u32 number, __u64 now)
{
	struct valve *valve = valve_of(number);
	__u64 span, rate, used, before;

	if (!valve)
		return 0;
	span = begin_filling(&valve->shadow, now);
	if (!span)
		return 0;
	rate = rate_now(plan, number, now);
	used = consumed(valve, now);
	before = span > VALVE_EXPIRED ? 0 : valve->shadow.rate;
	rate -= min(used, rate);
	fill_bucket(&valve->shadow, (before + rate) / 2, SHADOW_BURST, span, now);
	return 0;
}

/* Takes `cost` from the first lender of a class that has so much. Returns whether one has. */
__noinline int borrow_tokens(__u32 plan, __u32 leaf, __u64 cost, __u64 now)
{
	struct label *label = label_of(plan, leaf);
	struct valve *valve;
	__u32 lender;

	if (!label)
		return 0;
	for (int place = 0; place < LENDERS_MAX; place++) {
		lender = label->lenders[place];
		if (!lender)
			break;
		refresh_shadow(plan, lender, now);
		valve = valve_of(lender);
		if (valve && take_tokens(&valve->shadow, cost))
			return 1;
	}
	return 0;
}

/* Counts `cost` bytes as sent by a class and by all above it. */
static __always_inline void count_on_way(const struct label *label, __u64 cost)
{
	struct valve *valve;

	for (int level = 0; level < LABEL_LEVELS; level++) {
		if (!label->path[level])
			break;
		valve = valve_of(label->path[level]);
		if (valve)
			__sync_fetch_and_add(&valve->counted, cost);
	}
}

/* What a packet of `leaf` gets that is charged `cost` bytes (enum tokens). */
__noinline int pass_valve(__u32 plan, __u32 leaf, __u64 cost)
{
	struct label *label = label_of(plan, leaf);
	struct valve *valve = valve_of(leaf);
	__u64 now = bpf_ktime_get_ns();
	int got = OWN_TOKENS;

	if (!label || !valve)
		return NO_TOKENS;
	for (int level = 0; level < LABEL_LEVELS; level++) {
		if (!label->path[level])
			break;
		refresh_own(plan, label->path[level], now);
	}
	if (label->is_limited && !take_tokens(&valve->ceil, cost))
		return NO_TOKENS;
	if (!take_tokens(&valve->own, cost)) {
		if (!borrow_tokens(plan, leaf, cost, now)) {
			if (label->is_limited)
				__sync_fetch_and_add(&valve->ceil.tokens, cost);
			return NO_TOKENS;
		}
		got = LENT_TOKENS;
	}
	count_on_way(label, cost);
	return got;
}

/* Charges `cost` bytes to the leaf, whatever it has: it goes without for longer. */
__noinline int charge_anyway(__u32 plan, __u32 leaf, __u64 cost)
{
	struct label *label = label_of(plan, leaf);
	struct valve *valve = valve_of(leaf);

	if (!label || !valve)
		return 0;
	__sync_fetch_and_add(&valve->own.tokens, -(__s64)cost);
	count_on_way(label, cost);
	return 0;
}

#endif
