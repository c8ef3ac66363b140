/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Addresses that no router forwards, as source or as destination, and that no error is sent to (RFC
 * 1812, 5.3.7 and 4.3.2.7; RFC 4291).
 */
#ifndef MARTIAN_H
#define MARTIAN_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>

/* "This network", loopback, multicast, reserved, broadcast. */
static __always_inline int is_martian_v4(__be32 address)
{
	__u32 first = bpf_ntohl(address) >> 24;

	return first == 0 || first == 127 || first >= 224;
}

/* Unspecified, loopback, with an IPv4 address in it, link-local, multicast. */
static __always_inline int is_martian_v6(const __be32 *words)
{
	__u32 first = bpf_ntohl(words[0]);

	if (!words[0] && !words[1])
		return !words[2] || words[2] == bpf_htonl(0xffff);
	return first >> 24 == 0xff || (first & 0xffc00000) == 0xfe800000;
}

#endif
