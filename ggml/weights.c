/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the plug-in's buffer type: host memory in which tensors lie as ggml
 * has them, but those of NVFP4 as nibblas reads them.
 *
 * ggml's block of 64 values is 36 bytes: 4 scales, then 8 bytes for each 16
 * values, whose byte j holds value j in its low half and value j + 8 in its high
 * half (ggml-common.h).  Here a tensor of b blocks is 32 b bytes of codes, byte j
 * of 16 values holding 2 j and 2 j + 1, then 4 b scales: as long as ggml's, so
 * that a tensor needs no other place, and a permutation of it, so that reading it
 * gives back what was written.  Weights are put in order once, when they are
 * loaded, and exist once.
 *
 * ggml takes a scale as unsigned, and 0x7F for 0, which is NaN to nibblas: the
 * first bit and such scales become 0 when they are written.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define BLOCK	    64
#define BLOCK_BYTES 36
#define CODES_BYTES 32
#define SCALES	    4
#define ALIGNMENT   64

/* ---- blocks --------------------------------------------------------------- */

/* The blocks of a whole tensor, one of NVFP4 and no view. */
struct blocks {
	uint8_t *codes, *scales;
	size_t count;
};

static struct blocks blocks_of(const struct ggml_tensor *tensor)
{
	const size_t count = ggml_nbytes(tensor) / BLOCK_BYTES;
	uint8_t *data = tensor->data;

	return (struct blocks){data, data + count * CODES_BYTES, count};
}

static uint8_t scale_of(uint8_t scale)
{
	scale &= 0x7F;
	return scale == 0x7F ? 0 : scale;
}

/* block: as ggml has it. */
static void write_block(const struct blocks *b, size_t i, const uint8_t *block)
{
	uint8_t *to = b->codes + i * CODES_BYTES;

	for (int j = 0; j < SCALES; j++)
		b->scales[i * SCALES + j] = scale_of(block[j]);
	block += SCALES;
	for (int s = 0; s < SCALES; s++, block += 8, to += 8)
		for (int j = 0; j < 4; j++) {
			const uint8_t low = block[2 * j];
			const uint8_t high = block[2 * j + 1];

			to[j] = (uint8_t)((low & 15) | high << 4);
			to[j + 4] = (uint8_t)(low >> 4 | (high & 0xF0));
		}
}

static void read_block(const struct blocks *b, size_t i, uint8_t *block)
{
	const uint8_t *from = b->codes + i * CODES_BYTES;

	memcpy(block, b->scales + i * SCALES, SCALES);
	block += SCALES;
	for (int s = 0; s < SCALES; s++, block += 8, from += 8)
		for (int j = 0; j < 4; j++) {
			const uint8_t low = from[j], high = from[j + 4];

			block[2 * j] = (uint8_t)((low & 15) | high << 4);
			block[2 * j + 1] = (uint8_t)(low >> 4 | (high & 0xF0));
		}
}

/* Writes size bytes of ggml's form of b from an offset on, the first byte first;
 * data NULL: the byte `value` instead. */
static void write_bytes(const struct blocks *b, size_t offset, size_t size,
			const uint8_t *data, uint8_t value)
{
	while (size > 0) {
		const size_t i = offset / BLOCK_BYTES,
			     at = offset % BLOCK_BYTES;
		const size_t left = BLOCK_BYTES - at;
		const size_t bytes = size < left ? size : left;
		uint8_t block[BLOCK_BYTES];

		if (bytes < BLOCK_BYTES)
			read_block(b, i, block);
		if (data) {
			memcpy(block + at, data, bytes);
			data += bytes;
		} else {
			memset(block + at, value, bytes);
		}
		write_block(b, i, block);
		offset += bytes;
		size -= bytes;
	}
}

static void read_bytes(const struct blocks *b, size_t offset, size_t size,
		       uint8_t *data)
{
	while (size > 0) {
		const size_t i = offset / BLOCK_BYTES,
			     at = offset % BLOCK_BYTES;
		const size_t left = BLOCK_BYTES - at;
		const size_t bytes = size < left ? size : left;
		uint8_t block[BLOCK_BYTES];

		read_block(b, i, block);
		memcpy(data, block + at, bytes);
		data += bytes;
		offset += bytes;
		size -= bytes;
	}
}

/* The tensor that has the memory of a view, and where the view begins in it. */
static const struct ggml_tensor *owner_of(const struct ggml_tensor *tensor,
					  size_t *offset)
{
	const struct ggml_tensor *owner =
	    tensor->view_src ? tensor->view_src : tensor;

	*offset +=
	    (size_t)((const char *)tensor->data - (const char *)owner->data);
	return owner;
}

/* ---- a buffer ------------------------------------------------------------- */

static void free_buffer(ggml_backend_buffer_t buffer)
{
	free(buffer->context);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
	return buffer->context;
}

static void memset_tensor(ggml_backend_buffer_t buffer,
			  struct ggml_tensor *tensor, uint8_t value,
			  size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct blocks b;

	(void)buffer;
	if (owner->type != GGML_TYPE_NVFP4) {
		memset((char *)owner->data + offset, value, size);
		return;
	}
	b = blocks_of(owner);
	write_bytes(&b, offset, size, NULL, value);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
		       const void *data, size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct blocks b;

	(void)buffer;
	if (owner->type != GGML_TYPE_NVFP4) {
		memcpy((char *)owner->data + offset, data, size);
		return;
	}
	b = blocks_of(owner);
	write_bytes(&b, offset, size, data, 0);
}

static void get_tensor(ggml_backend_buffer_t buffer,
		       const struct ggml_tensor *tensor, void *data,
		       size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct blocks b;

	(void)buffer;
	if (owner->type != GGML_TYPE_NVFP4) {
		memcpy(data, (const char *)owner->data + offset, size);
		return;
	}
	b = blocks_of(owner);
	read_bytes(&b, offset, size, data);
}

/* Before tensors are there: a byte of NVFP4's is no other in either order. */
static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	memset(buffer->context, value, buffer->size);
}

/* ---- the type ------------------------------------------------------------- */

static const char *get_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "nibblas";
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type,
					  size_t size)
{
	static const struct ggml_backend_buffer_i interface = {
	    .free_buffer = free_buffer,
	    .get_base = get_base,
	    .memset_tensor = memset_tensor,
	    .set_tensor = set_tensor,
	    .get_tensor = get_tensor,
	    .clear = clear,
	};
	/* Not 0 bytes: the base of a buffer is an address. */
	const size_t bytes = (size / ALIGNMENT + 1) * ALIGNMENT;
	void *base = bytes > size ? aligned_alloc(ALIGNMENT, bytes) : NULL;
	ggml_backend_buffer_t buffer;

	if (!base)
		return NULL;
	buffer = ggml_backend_buffer_init(type, interface, base, size);
	if (!buffer)
		free(base);
	return buffer;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return ALIGNMENT;
}

/* NVFP4 tensors are not as ggml's own kernels would read them. */
static bool is_host(ggml_backend_buffer_type_t type)
{
	(void)type;
	return false;
}

ggml_backend_buffer_type_t nib_ggml_buffer_type(ggml_backend_dev_t device)
{
	static struct ggml_backend_buffer_type type = {
	    .iface = {
		.get_name = get_name,
		.alloc_buffer = alloc_buffer,
		.get_alignment = get_alignment,
		.is_host = is_host,
	    }};

	type.device = device;
	return &type;
}

bool nib_ggml_is_ours(ggml_backend_buffer_type_t type)
{
	return type->iface.alloc_buffer == alloc_buffer;
}

struct nib_nvfp4 nib_ggml_weights(const struct ggml_tensor *tensor)
{
	const struct blocks b = blocks_of(tensor);

	return (struct nib_nvfp4){
	    .codes = b.codes,
	    .scales = b.scales,
	    .rows = tensor->ne[1],
	    .k = tensor->ne[0],
	    .batch = tensor->ne[2] * tensor->ne[3],
	};
}
