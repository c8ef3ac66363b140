/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a packet is on the wire: bytes and frames.
 *
 * At XDP it is one frame. At tcx the kernel or the device may have merged several, or they are
 * still to be cut. Then the kernel says the payload of each (`gso_size`), and mostly how many
 * there are (`gso_segs`). Headers are repeated in each frame. How long they are is found as
 * where the packet is cut: by going through all of them, also those of tunnels.
 *
 * A guest with a virtual device chooses payload and headers itself, and sends what it likes. So
 * nothing is believed: headers end within the packet, there are at most as many frames as there
 * are bytes of payload, and at least as many as the device's MTU makes of it.
 *
 * What is cut into frames of next to nothing but headers is many times its own length on the
 * wire. No sender has a use for it, so no limit sells it (`is_cut_too_fine`).
 *
 * Source: net/core/gso.c, net/ipv4/tcp_offload.c, include/linux/virtio_net.h; IEEE 802.1Q, RFC
 * 2516, 2784, 2890, 3032, 7348, 8200, 8926.
 *
 * Non-goals: fragments of UDP (`UFO`), whose first frame alone has the header of UDP.
 */
#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "frame.h"
#include "numbers.h"

/* A packet as it is on the wire. */
struct size {
	__u32 bytes;
	__u32 packets;
};

#ifndef TCX

static __always_inline struct size size_of(struct xdp_md *ctx)
{
	struct size size = { ctx->data_end - ctx->data, 1 };

	if (multi_buffer)
		size.bytes = bpf_xdp_get_buff_len(ctx);
	return size;
}

static __always_inline int is_cut_too_fine(struct xdp_md *ctx, struct size size)
{
	return 0;
}

#else

/* The most headers of a packet. */
#define HEADERS_DEEP 24
/* The most bytes that a packet may have on the wire, if it is not long itself: those of a long
 * one. */
#define CUT_MAX 0x10000
/* In the place of a number of frames: the packet's parts are cut where its sender said. */
#define BY_PARTS 0xffff

/* A header is named by a protocol number of IP, or by an EtherType with this bit. */
#define TYPED 0x10000
/* Nothing that is in every frame comes any more. */
#define ENDS 0x20000

struct header {
	__u32 is;
	__u32 at;
};

static __always_inline __u32 typed(__be16 ether_type)
{
	return TYPED | bpf_ntohs(ether_type);
}

static __always_inline int is_tag_header(__u32 is)
{
	return is == (TYPED | ETH_P_8021Q) || is == (TYPED | ETH_P_8021AD) ||
	       is == (TYPED | ETH_P_QINQ1) || is == (TYPED | ETH_P_QINQ2);
}

/* The header behind what is in UDP: that of a tunnel, or none. */
static __always_inline struct header behind_udp(struct __sk_buff *ctx, __u32 at)
{
	struct header next = { ENDS, at + 8 };
	__be16 port = 0, type = 0;
	__u8 first = 0, flags = 0;

	if (bpf_skb_load_bytes(ctx, at + 2, &port, 2))
		return next;
	/* VXLAN, by its own port and by Linux's. */
	if (port == bpf_htons(4789) || port == bpf_htons(8472)) {
		if (!bpf_skb_load_bytes(ctx, at + 8, &flags, 1) && flags & 8)
			next = (struct header){ TYPED | ETH_P_TEB, at + 16 };
	} else if (port == bpf_htons(6081)) {
		/* Geneve. */
		if (!bpf_skb_load_bytes(ctx, at + 8, &first, 1) && first >> 6 == 0 &&
		    !bpf_skb_load_bytes(ctx, at + 10, &type, 2))
			next = (struct header){ typed(type), at + 16 + 4 * (first & 63) };
	}
	return next;
}

/* The header behind that of GRE. */
static __always_inline struct header behind_gre(struct __sk_buff *ctx, __u32 at)
{
	__be16 words[2] = {};
	__u16 flags;

	if (bpf_skb_load_bytes(ctx, at, words, 4))
		return (struct header){ ENDS, at };
	flags = bpf_ntohs(words[0]);
	/* Checksum, key and sequence number have four bytes each. */
	at += 4 + 4 * (!!(flags & 0x8000) + !!(flags & 0x2000) + !!(flags & 0x1000));
	return (struct header){ typed(words[1]), at };
}

/* The header behind one of an EtherType. */
static __always_inline struct header behind_typed(struct __sk_buff *ctx, __u32 is, __u32 at)
{
	__be16 type = 0;
	__u8 bytes[5] = {};

	if (is_tag_header(is)) {
		if (!bpf_skb_load_bytes(ctx, at + 2, &type, 2))
			return (struct header){ typed(type), at + 4 };
	} else if (is == (TYPED | ETH_P_IP)) {
		/* At least as long as it has to be: a shorter one is not cut at all. */
		if (!bpf_skb_load_bytes(ctx, at, bytes, 1) &&
		    !bpf_skb_load_bytes(ctx, at + 9, bytes + 1, 1))
			return (struct header){ bytes[1], at + max(bytes[0] & 15, 5) * 4 };
	} else if (is == (TYPED | ETH_P_IPV6)) {
		if (!bpf_skb_load_bytes(ctx, at + 6, bytes, 1))
			return (struct header){ bytes[0], at + 40 };
	} else if (is == (TYPED | ETH_P_MPLS_UC) || is == (TYPED | ETH_P_MPLS_MC)) {
		if (bpf_skb_load_bytes(ctx, at, bytes, 5))
			return (struct header){ ENDS, at };
		if (!(bytes[2] & 1))
			return (struct header){ is, at + 4 };
		if (bytes[4] >> 4 == 4)
			return (struct header){ TYPED | ETH_P_IP, at + 4 };
		if (bytes[4] >> 4 == 6)
			return (struct header){ TYPED | ETH_P_IPV6, at + 4 };
		return (struct header){ ENDS, at + 4 };
	} else if (is == (TYPED | ETH_P_PPP_SES)) {
		if (bpf_skb_load_bytes(ctx, at + 6, &type, 2))
			return (struct header){ ENDS, at };
		if (type == bpf_htons(0x0021))
			return (struct header){ TYPED | ETH_P_IP, at + 8 };
		if (type == bpf_htons(0x0057))
			return (struct header){ TYPED | ETH_P_IPV6, at + 8 };
		return (struct header){ ENDS, at + 8 };
	} else if (is == (TYPED | ETH_P_TEB)) {
		if (!bpf_skb_load_bytes(ctx, at + 12, &type, 2))
			return (struct header){ typed(type), at + 14 };
	}
	return (struct header){ ENDS, at };
}

/* The header behind one of an IP protocol. */
static __always_inline struct header behind_protocol(struct __sk_buff *ctx, __u32 is, __u32 at)
{
	__u8 bytes[2] = {};

	switch (is) {
	case 4:
		return (struct header){ TYPED | ETH_P_IP, at };
	case 41:
		return (struct header){ TYPED | ETH_P_IPV6, at };
	case 47:
		return behind_gre(ctx, at);
	case 17:
		return behind_udp(ctx, at);
	case 6:
		bpf_skb_load_bytes(ctx, at + 12, bytes, 1);
		return (struct header){ ENDS, at + max(bytes[0] >> 4, 5) * 4 };
	case 33:
	case 132:
		/* Its parts have headers of their own, which are payload. */
		return (struct header){ ENDS, at + 12 };
	}
	if (bpf_skb_load_bytes(ctx, at, bytes, 2))
		return (struct header){ ENDS, at };
	switch (is) {
	case 0:
	case 43:
	case 60:
	case 135:
		return (struct header){ bytes[0], at + (bytes[1] + 1) * 8 };
	case 44:
		return (struct header){ bytes[0], at + 8 };
	case 51:
		return (struct header){ bytes[0], at + (bytes[1] + 2) * 4 };
	}
	return (struct header){ ENDS, at };
}

/* The header behind that at `at`: in the upper half what it is, and where it begins. A function of
 * its own, which the verifier checks once, and not for each header of a packet. */
__noinline __u64 header_behind(struct __sk_buff *ctx, __u32 is, __u32 at)
{
	struct header next;

	if (!ctx)
		return (__u64)ENDS << 32;
	next = is & TYPED ? behind_typed(ctx, is, at) : behind_protocol(ctx, is, at);
	return (__u64)next.is << 32 | next.at;
}

/* Where the headers of the packet end, which are in each of its frames; in the upper half, where
 * its network layer begins. */
__noinline __u64 headers_of(struct __sk_buff *ctx)
{
	__u32 is = TYPED | ETH_P_TEB, at = 0, network = 0;

	if (!ctx)
		return 0;
	if (headerless)
		is = typed(ctx->protocol);
	for (int i = 0; i < HEADERS_DEEP; i++) {
		int is_outer = !headerless && (i == 0 || (is_tag_header(is) && at == network));
		__u64 next;

		if (is & ENDS)
			break;
		next = header_behind(ctx, is, at);
		is = next >> 32;
		at = next;
		if (is_outer)
			network = at;
	}
	return (__u64)network << 32 | at;
}

/* How many frames there are at least: as many as fit the device. */
static __always_inline __u32 least_frames(struct __sk_buff *ctx, __u32 network, __u32 headers,
					  __u32 payload)
{
	__u32 mtu = 0, fits;

	if (bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0 || !mtu)
		return 1;
	fits = network + mtu;
	/* What has no room beside its headers cannot be sent at all. */
	fits = fits > headers ? fits - headers : mtu;
	return (payload + fits - 1) / fits;
}

/* The size of a packet that stands for several frames with so many bytes of payload each. */
__noinline __u64 size_of_merged(struct __sk_buff *ctx, __u32 segment)
{
	__u32 len, headers, payload, frames, said, least;
	__u64 found, bytes;

	if (!ctx || !segment)
		return 0;
	len = ctx->len;
	said = ctx->gso_segs;
	found = headers_of(ctx);
	headers = min((__u32)found, len);
	payload = len - headers;
	frames = segment == BY_PARTS ? said : (payload + segment - 1) / segment;
	/* A guest, for one, does not say how many. */
	if (said && said < frames)
		frames = said;
	least = least_frames(ctx, found >> 32, headers, payload);
	frames = max(frames, least);
	frames = max(min(frames, payload), 1);
	bytes = len + (__u64)(frames - 1) * headers;
	return (__u64)frames << 32 | min(bytes, 0xffffffff);
}

static __always_inline struct size size_of(struct __sk_buff *ctx)
{
	struct size size = { ctx->len, 1 };
	__u32 segment = ctx->gso_size;

	if (segment) {
		__u64 merged = size_of_merged(ctx, segment);

		size.packets = merged >> 32;
		size.bytes = merged;
	}
	if (ctx->vlan_present)
		size.bytes += 4 * size.packets;
	return size;
}

/* Whether most of what the packet is on the wire are headers that its sender need not send. */
static __always_inline int is_cut_too_fine(struct __sk_buff *ctx, struct size size)
{
	return size.bytes > CUT_MAX && size.bytes / 2 > ctx->len;
}

#endif

#endif
