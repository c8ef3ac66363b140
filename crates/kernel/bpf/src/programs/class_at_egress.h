/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The class of a packet that the kernel sends, by what the kernel knows of it. */
#ifndef CLASS_AT_EGRESS_H
#define CLASS_AT_EGRESS_H

#include "find_class.h"
#include "terms.h"

/* Hands the route to the terms: the kernel sends nothing else on this CPU before they have asked. */
static __always_inline void take_route(struct __sk_buff *ctx)
{
	struct taken *route = route_here();

	if (route) {
		route->realms = bpf_get_route_realm(ctx);
		route->metric = NO_METRIC;
	}
}

/* The class of a packet at egress under the plan in force, of which `said` is the word. */
static __always_inline __u32 class_at_egress(struct __sk_buff *ctx, __u32 said)
{
	__u32 number = said & NUMBER_MASK, leaf = RARE;

	if (!(said & HAS_TERMS))
		leaf = classify_edited(ctx, number, ctx->mark, ctx->priority);
	if (leaf == RARE) {
		take_route(ctx);
		leaf = classify_in_full(ctx, number, ctx->mark, ctx->priority);
	}
	return leaf;
}

#endif
