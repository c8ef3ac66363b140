// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * stations: lets live frames go through a switch, each from another station to another. Both have
 * the same number. A station's address is 06, its side, and its number in network order.
 */
#include <linux/if_ether.h>
#define LIVE
#include "out.h"

#define HERE 1
#define THERE 2

/* How many stations there are on each side. */
const volatile __u64 stations = 1;

/* One thread sends, so a plain variable is enough. */
__u32 next;

static __always_inline void name(__u8 *mac, __u8 side, __u32 number)
{
	mac[0] = 6;
	mac[1] = side;
	mac[2] = number >> 24;
	mac[3] = number >> 16;
	mac[4] = number >> 8;
	mac[5] = number;
}

SEC("xdp")
int stations_in_turn(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u32 number = next++ % stations;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	/* A page keeps what its frame was the last time. */
	name(eth->h_dest, THERE, number);
	name(eth->h_source, HERE, number);
	return go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
