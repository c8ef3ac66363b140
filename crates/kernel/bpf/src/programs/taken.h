/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What filters may ask of the route that a frame takes. */
#ifndef TAKEN_H
#define TAKEN_H

#include <linux/types.h>

/* In the place of a metric: it is not known. */
#define NO_METRIC 0xffffffff

struct taken {
	__u32 realms;		/* from << 16 | to, as the kernel's classifier has them */
	__u32 metric;
};

#endif
