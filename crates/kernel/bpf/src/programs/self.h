/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a frame is addressed to the box itself: then its kernel gets it. A bump in the wire has
 * no address on the networks that it joins, unless its operator gave it one: else frames to the
 * port's own address go where all others go.
 */
#ifndef SELF_H
#define SELF_H

#include <linux/if_ether.h>

/* The port's own address, set before the program is loaded. */
const volatile __u8 own_mac[ETH_ALEN] = { 2, 0, 0, 0, 0, 1 };
/* Whether the box has an address there. */
const volatile __u8 is_addressed = 1;

static __always_inline int is_to_own_mac(const struct ethhdr *eth)
{
	__u8 differs = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		differs |= eth->h_dest[i] ^ own_mac[i];
	return !differs;
}

static __always_inline int is_for_self(const struct ethhdr *eth)
{
	return is_addressed && is_to_own_mac(eth);
}

#endif
