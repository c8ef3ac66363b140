/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What programs ask of the kernel, for the host: see ../stepped.c and ../departures.c. In the place of libbpf's. */
#ifndef BPF_HELPERS_H
#define BPF_HELPERS_H

/* A map is its address alone, and may be the same in several files. A function is each file's own. */
#define SEC(name) __attribute__((weak))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) value *name
#define __array(name, value) value *name[1]
#undef __always_inline
#define __always_inline inline
#define __noinline static __attribute__((unused))

static void *bpf_map_lookup_elem(void *map, const void *key);

static inline long bpf_loop(__u32 times, long (*body)(__u32, void *), void *context, __u64 flags)
{
	(void)flags;
	for (__u32 i = 0; i < times; i++)
		if (body(i, context))
			break;
	return 0;
}

#endif
