/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Words of an image, which user space lays out and changes while they are read
 * (crates/core/image).
 *
 * Chunks are maps of the same size with one value, so the kernel looks them up without a call. An
 * image has adjacent ones.
 */
#ifndef IMAGE_H
#define IMAGE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define CHUNKS_MAX 4096
#define CHUNK_SHIFT 16
#define CHUNK_WORDS (1 << CHUNK_SHIFT)
/* Behind each: a block whose first word may be any word, as far as the verifier knows, is read
 * up to the last of its 64 halves of a word. A page. */
#define SPARE_WORDS 512

struct chunk {
	__u64 words[CHUNK_WORDS + SPARE_WORDS];
};

struct image_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct chunk));
};

/* How many bits are set. */
static __always_inline __u32 ones(__u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

/* 1 if a word of at most 63 bits is 0. Branch-free: a branch would be unpredictable. */
static __always_inline __u32 is_zero(__u64 word)
{
	word -= 1;
	/* Hides the value, so that the compiler makes no branch of it. */
	asm volatile("" : "+r"(word));
	return word >> 63;
}

/* Word `at` of the image whose first chunk is `first` of `chunks`, and what is behind it. */
static __always_inline const __u64 *image_words(void *chunks, __u32 first, __u32 at)
{
	__u32 number = first + (at >> CHUNK_SHIFT), zero = 0;
	void *array = bpf_map_lookup_elem(chunks, &number);
	const struct chunk *chunk;

	if (!array)
		return 0;
	chunk = bpf_map_lookup_elem(array, &zero);
	/* Hides what the compiler knows of it, or there is no mask where it is small enough. The
	 * verifier of Linux 6.1 knows less: a word whose bytes were swapped may be any. */
	asm volatile("" : "+r"(at));
	return chunk ? &chunk->words[at & (CHUNK_WORDS - 1)] : 0;
}

#endif
