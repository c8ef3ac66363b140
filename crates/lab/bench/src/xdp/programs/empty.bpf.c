// SPDX-License-Identifier: GPL-2.0 OR MIT
/* empty: the cost of any program. */
#include "out.h"

SEC("xdp")
int empty(struct xdp_md *ctx)
{
	return go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
