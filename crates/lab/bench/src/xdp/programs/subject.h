/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The program under test, behind one that makes another frame of each, and how many frames there
 * were on this CPU.
 */
#ifndef SUBJECT_H
#define SUBJECT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} subject SEC(".maps");

#endif
