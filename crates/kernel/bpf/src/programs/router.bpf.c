// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * router: routes a frame as the kernel would, in the driver, or (router_tcx) at tcx.
 *
 * The frame continues by a tail call in what takes all that leaves through a port: its tree, which
 * sends it. What is not routed here goes to the kernel as it arrived (route.h). So does what leaves
 * through a port where nothing takes it.
 *
 * There are two programs: `router`, and `router_behind` for what has met filters that set a mark or
 * a priority (handed.h).
 *
 * Non-goals: shaping; drops other than a blackhole's.
 */
#include "route.h"
#include "choose.h"

SEC(HOOK)
int router(struct context *ctx)
{
	return choose(ctx, 0);
}

SEC(HOOK)
int router_behind(struct context *ctx)
{
	return choose(ctx, PORTS_MAX);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
