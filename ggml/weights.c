/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the plug-in's buffer type: host memory that stores NVFP4 tensors as
 * nibblas reads them, and all others as ggml does.
 *
 * ggml's block of 64 values is 36 bytes: 4 scales, then 8 bytes for each 16
 * values, whose byte j holds value j in its low half and value j + 8 in its high
 * half (ggml-common.h).  Here a tensor of b blocks is 32 b bytes of codes, byte j
 * of 16 values holding 2 j and 2 j + 1, then 4 b scales.  It is a permutation of
 * ggml's form: a tensor needs as much memory, and reading it returns what was
 * written, but for the scales below.
 *
 * The first product by a tensor packs it (nib_pack()): products of one row of
 * activations read packed weights four times as fast.  The pages of the tensor then
 * go back to the system, so that weights exist once.  They are filled again when the
 * tensor is read or written, or when a product needs one of several matrices.
 *
 * ggml ignores the sign bit of a scale and reads 0x7F as 0; nibblas refuses signs and
 * reads 0x7F as NaN.  Writing a tensor clears sign bits and replaces 0x7F by 0.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

#define BLOCK	    64
#define BLOCK_BYTES 36
#define CODES_BYTES 32
#define SCALES	    4
#define ALIGNMENT   64

/* ---- blocks --------------------------------------------------------------- */

/* The blocks of a whole NVFP4 tensor, which is not a view. */
struct blocks {
	uint8_t *codes, *scales;
	size_t count;
};

static struct blocks blocks_of(const struct ggml_tensor *tensor)
{
	const size_t count = nib_host.nbytes(tensor) / BLOCK_BYTES;
	uint8_t *data = tensor->data;

	return (struct blocks){data, data + count * CODES_BYTES, count};
}

static uint8_t scale_of(uint8_t scale)
{
	scale &= 0x7F;
	return scale == 0x7F ? 0 : scale;
}

/* block: in ggml's form. */
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
		const size_t i = offset / BLOCK_BYTES, at = offset % BLOCK_BYTES;
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
		const size_t i = offset / BLOCK_BYTES, at = offset % BLOCK_BYTES;
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

/* The tensor that owns a view's memory, and the offset of the view in it. */
static const struct ggml_tensor *owner_of(const struct ggml_tensor *tensor,
					  size_t *offset)
{
	const struct ggml_tensor *owner = tensor->view_src ? tensor->view_src : tensor;

	*offset += (size_t)((const char *)tensor->data - (const char *)owner->data);
	return owner;
}

/* ---- packed tensors ------------------------------------------------------- */

/* A tensor after its first product. */
struct packed {
	struct nib_fp4 blocks; /* the tensor's own memory */
	size_t bytes;
	struct nib_packed *packed; /* NULL: no memory for it */
	bool has_blocks;	   /* the tensor's own memory is filled too */
	struct packed *next;
};

/* A buffer's context. */
struct memory {
	void *base;
	pthread_mutex_t mutex; /* protects the fields that follow */
	struct packed *packed;
	struct nib_device *device; /* that packs; NULL until then */
};

static struct nib_fp4 view_of(const struct ggml_tensor *tensor)
{
	const struct blocks b = blocks_of(tensor);

	return (struct nib_fp4){
	    .codes = b.codes,
	    .scales = b.scales,
	    .rows = tensor->ne[1],
	    .k = tensor->ne[0],
	    .batch = tensor->ne[2] * tensor->ne[3],
	};
}

static struct packed *find_packed(const struct memory *m,
				  const struct ggml_tensor *tensor)
{
	struct packed *p = m->packed;

	while (p && p->blocks.codes != tensor->data)
		p = p->next;
	return p;
}

/* Fills the tensor's own memory again. */
static void need_blocks(struct packed *p)
{
	/* Cannot fail: the view is the one that was packed. */
	if (!p->has_blocks)
		p->has_blocks =
		    nib_unpack(p->packed, &p->blocks, NULL, NULL) == NIB_STATUS_OK;
}

/* The whole pages of the tensor go back to the system. */
static void drop_blocks(struct packed *p)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t begin = (uintptr_t)p->blocks.codes;
	const uintptr_t first = (begin + page - 1) / page * page;
	const uintptr_t end = (begin + p->bytes) / page * page;

	p->has_blocks = false;
	if (end > first)
		madvise((void *)first, end - first, MADV_DONTNEED);
}

static struct packed *pack(struct memory *m, const struct ggml_tensor *tensor)
{
	struct packed *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct packed){.blocks = view_of(tensor),
			     .bytes = nib_host.nbytes(tensor),
			     .has_blocks = true,
			     .next = m->packed};
	m->packed = p;
	if (!m->device && nib_device_open("cpu", NULL, &m->device, NULL))
		m->device = NULL;
	if (m->device &&
	    nib_pack(m->device, &p->blocks, NULL, &p->packed, NULL) == NIB_STATUS_OK)
		drop_blocks(p);
	return p;
}

static void unpack_all(struct memory *m)
{
	while (m->packed) {
		struct packed *next = m->packed->next;

		nib_packed_free(m->packed->packed);
		free(m->packed);
		m->packed = next;
	}
}

/* Before the tensor is written: fills its own memory, and frees the packed copy. */
static void before_write(struct memory *m, const struct ggml_tensor *tensor)
{
	struct packed **at = &m->packed, *p;

	while (*at && (*at)->blocks.codes != tensor->data)
		at = &(*at)->next;
	p = *at;
	if (!p)
		return;
	need_blocks(p);
	*at = p->next;
	nib_packed_free(p->packed);
	free(p);
}

/* ---- a buffer ------------------------------------------------------------- */

static void free_buffer(ggml_backend_buffer_t buffer)
{
	struct memory *m = buffer->context;

	unpack_all(m);
	nib_device_close(m->device);
	pthread_mutex_destroy(&m->mutex);
	free(m->base);
	free(m);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
	const struct memory *m = buffer->context;

	return m->base;
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
			  uint8_t value, size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct memory *m = buffer->context;
	struct blocks b;

	if (owner->type != GGML_TYPE_NVFP4) {
		memset((char *)owner->data + offset, value, size);
		return;
	}
	pthread_mutex_lock(&m->mutex);
	before_write(m, owner);
	b = blocks_of(owner);
	write_bytes(&b, offset, size, NULL, value);
	pthread_mutex_unlock(&m->mutex);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
		       const void *data, size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct memory *m = buffer->context;
	struct blocks b;

	if (owner->type != GGML_TYPE_NVFP4) {
		memcpy((char *)owner->data + offset, data, size);
		return;
	}
	pthread_mutex_lock(&m->mutex);
	before_write(m, owner);
	b = blocks_of(owner);
	write_bytes(&b, offset, size, data, 0);
	pthread_mutex_unlock(&m->mutex);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor,
		       void *data, size_t offset, size_t size)
{
	const struct ggml_tensor *owner = owner_of(tensor, &offset);
	struct memory *m = buffer->context;
	struct packed *p;
	struct blocks b;

	if (owner->type != GGML_TYPE_NVFP4) {
		memcpy(data, (const char *)owner->data + offset, size);
		return;
	}
	pthread_mutex_lock(&m->mutex);
	p = find_packed(m, owner);
	if (p)
		need_blocks(p);
	b = blocks_of(owner);
	read_bytes(&b, offset, size, data);
	pthread_mutex_unlock(&m->mutex);
}

/* Called before tensors exist.  Equal bytes are the same in both forms. */
static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	struct memory *m = buffer->context;

	pthread_mutex_lock(&m->mutex);
	unpack_all(m);
	memset(m->base, value, buffer->size);
	pthread_mutex_unlock(&m->mutex);
}

/* ---- the type ------------------------------------------------------------- */

static const char *get_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "nibblas";
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
	static const struct ggml_backend_buffer_i interface = {
	    .free_buffer = free_buffer,
	    .get_base = get_base,
	    .memset_tensor = memset_tensor,
	    .set_tensor = set_tensor,
	    .get_tensor = get_tensor,
	    .clear = clear,
	};
	/* Never 0 bytes: ggml requires that the base of a buffer is not NULL. */
	const size_t bytes = (size / ALIGNMENT + 1) * ALIGNMENT;
	struct memory *m = calloc(1, sizeof(*m));
	ggml_backend_buffer_t buffer = NULL;

	if (m && bytes > size)
		m->base = aligned_alloc(ALIGNMENT, bytes);
	if (m && m->base)
		buffer = nib_host.backend_buffer_init(type, interface, m, size);
	if (!buffer) {
		if (m)
			free(m->base);
		free(m);
		return NULL;
	}
	pthread_mutex_init(&m->mutex, NULL);
	return buffer;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return ALIGNMENT;
}

/* False: ggml's own kernels could not read the NVFP4 tensors. */
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

struct nib_fp4 nib_ggml_weights(const struct ggml_tensor *tensor)
{
	struct memory *m = tensor->buffer->context;
	struct packed *p;

	pthread_mutex_lock(&m->mutex);
	p = find_packed(m, tensor);
	if (p)
		need_blocks(p);
	pthread_mutex_unlock(&m->mutex);
	return view_of(tensor);
}

const struct nib_packed *nib_ggml_packed(const struct ggml_tensor *tensor)
{
	struct memory *m = tensor->buffer->context;
	const struct packed *p;

	pthread_mutex_lock(&m->mutex);
	p = find_packed(m, tensor);
	if (!p)
		p = pack(m, tensor);
	pthread_mutex_unlock(&m->mutex);
	return p ? p->packed : NULL;
}
