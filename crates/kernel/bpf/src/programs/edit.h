/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Writing into a frame.
 *
 * At tcx the kernel copies first what others have a hand on, and keeps the device's checksum of the
 * packet right. Pointers into the packet are void afterwards.
 *
 * Non-goals: what to write, and checksums in the packet.
 */
#ifndef EDIT_H
#define EDIT_H

#include "frame.h"

#ifndef TCX

static __always_inline void put_byte(struct xdp_md *ctx, __u32 offset, __u8 *at, __u8 value)
{
	*at = value;
}

static __always_inline void put_word(struct xdp_md *ctx, __u32 offset, __u16 *at, __u16 value)
{
	*at = value;
}

/* Both addresses of the Ethernet header. */
static __always_inline void put_addresses(struct xdp_md *ctx, struct ethhdr *eth, const __u8 *both)
{
	__builtin_memcpy(eth, both, 2 * ETH_ALEN);
}

#else

static __always_inline void put_byte(struct __sk_buff *ctx, __u32 offset, __u8 *at, __u8 value)
{
	bpf_skb_store_bytes(ctx, offset, &value, sizeof(value), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline void put_word(struct __sk_buff *ctx, __u32 offset, __u16 *at, __u16 value)
{
	bpf_skb_store_bytes(ctx, offset, &value, sizeof(value), BPF_F_RECOMPUTE_CSUM);
}

/* The device's checksum does not cover them. */
static __always_inline void put_addresses(struct __sk_buff *ctx, struct ethhdr *eth,
					  const __u8 *both)
{
	bpf_skb_store_bytes(ctx, 0, both, 2 * ETH_ALEN, 0);
}

#endif

#endif
