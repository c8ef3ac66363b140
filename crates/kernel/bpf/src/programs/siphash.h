/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * SipHash-1-3 (Aumasson and Bernstein 2012) of a few words: without the secret, addresses that
 * collide in a table cannot be chosen.
 */
#ifndef SIPHASH_H
#define SIPHASH_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 turned(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void sip_round(struct siphash *sip)
{
	sip->v0 += sip->v1;
	sip->v1 = turned(sip->v1, 13) ^ sip->v0;
	sip->v0 = turned(sip->v0, 32);
	sip->v2 += sip->v3;
	sip->v3 = turned(sip->v3, 16) ^ sip->v2;
	sip->v0 += sip->v3;
	sip->v3 = turned(sip->v3, 21) ^ sip->v0;
	sip->v2 += sip->v1;
	sip->v1 = turned(sip->v1, 17) ^ sip->v2;
	sip->v2 = turned(sip->v2, 32);
}

static __always_inline struct siphash sip_begin(__u64 key0, __u64 key1)
{
	return (struct siphash){
		.v0 = key0 ^ 0x736f6d6570736575ULL,
		.v1 = key1 ^ 0x646f72616e646f6dULL,
		.v2 = key0 ^ 0x6c7967656e657261ULL,
		.v3 = key1 ^ 0x7465646279746573ULL,
	};
}

static __always_inline void sip_add(struct siphash *sip, __u64 word)
{
	sip->v3 ^= word;
	sip_round(sip);
	sip->v0 ^= word;
}

/* The hash of `words` words. */
static __always_inline __u64 sip_end(struct siphash *sip, __u64 words)
{
	sip_add(sip, words << 59);
	sip->v2 ^= 0xff;
	sip_round(sip);
	sip_round(sip);
	sip_round(sip);
	return sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3;
}

#endif
