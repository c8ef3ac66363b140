/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A VLAN tag (IEEE 802.1Q). */
#ifndef VLAN_H
#define VLAN_H

#include <linux/types.h>

/* The bits of a tag that are the VLAN's number. The others are its priority and whether it may
 * be dropped first. */
#define VID_MASK 0x0fff
#define VIDS (VID_MASK + 1)

/* In network order. */
struct tag {
	__be16 type;
	__be16 control;
};

#endif
