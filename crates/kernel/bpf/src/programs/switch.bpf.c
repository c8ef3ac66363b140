// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * switch: forwards a frame as the kernel's bridge would, in the driver, or (switch_tcx) at tcx.
 *
 * As router.bpf.c, with the bridge's table in the place of routes (switch.h). There are two
 * programs here, too.
 *
 * Non-goals: shaping; drops.
 */
#include "switch.h"
#include "choose.h"

SEC(HOOK)
int switched(struct context *ctx)
{
	return choose(ctx, 0);
}

SEC(HOOK)
int switched_behind(struct context *ctx)
{
	return choose(ctx, PORTS_MAX);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
