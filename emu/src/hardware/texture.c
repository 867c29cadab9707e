/* SPDX-License-Identifier: Apache-2.0 */
/* texture.c - see texture.h. */
#include "hardware/texture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/floats.h"

#define WEIGHT_BITS 8

uint32_t emu_texel_bytes(uint32_t format)
{
	switch (format) {
	case EMU_TEXEL_U8:
	case EMU_TEXEL_S8:
		return 1;
	case EMU_TEXEL_U16:
	case EMU_TEXEL_S16:
	case EMU_TEXEL_F16:
		return 2;
	case EMU_TEXEL_U32:
	case EMU_TEXEL_S32:
	case EMU_TEXEL_F32:
		return 4;
	default:
		return 0;
	}
}

bool emu_texture_has_floats(const struct emu_texture *t)
{
	const uint32_t format = t->image.format;

	return format == EMU_TEXEL_F16 || format == EMU_TEXEL_F32 ||
	       (!t->reads_integers && emu_texel_bytes(format) < 4);
}

/* ---- elements ------------------------------------------------------------- */

/* Largest magnitude of a scaled integer. */
static double scale_of(uint32_t format)
{
	switch (format) {
	case EMU_TEXEL_U8:
		return UINT8_MAX;
	case EMU_TEXEL_S8:
		return INT8_MAX;
	case EMU_TEXEL_U16:
		return UINT16_MAX;
	default:
		return INT16_MAX;
	}
}

/* A component as an integer, extended to 32 bits. */
static uint32_t component(uint32_t format, const uint8_t *from)
{
	uint16_t half;
	uint32_t word;

	switch (emu_texel_bytes(format)) {
	case 1:
		return format == EMU_TEXEL_S8 ? (uint32_t)(int8_t)*from : *from;
	case 2:
		memcpy(&half, from, sizeof(half));
		return format == EMU_TEXEL_S16 ? (uint32_t)(int16_t)half : half;
	default:
		memcpy(&word, from, sizeof(word));
		return word;
	}
}

static float component_as_float(uint32_t format, const uint8_t *from)
{
	const uint32_t bits = component(format, from);
	float x;

	if (format == EMU_TEXEL_F32) {
		memcpy(&x, &bits, sizeof(x));
		return x;
	}
	if (format == EMU_TEXEL_F16)
		return (float)emu_widen(&emu_format_f16, bits);
	if (format == EMU_TEXEL_S8 || format == EMU_TEXEL_S16) {
		x = (float)((int32_t)bits / scale_of(format));
		return x < -1 ? -1 : x;
	}
	return (float)(bits / scale_of(format));
}

/* ---- places --------------------------------------------------------------- */

static int64_t modulo(int64_t i, int64_t n)
{
	const int64_t r = i % n;

	return r < 0 ? r + n : r;
}

/* The element for index i of n; -1: the border. */
static int64_t place_at(uint8_t edge, int64_t i, int64_t n)
{
	switch (edge) {
	case EMU_EDGE_WRAP:
		return modulo(i, n);
	case EMU_EDGE_MIRROR:
		i = modulo(i, 2 * n);
		return i < n ? i : 2 * n - 1 - i;
	case EMU_EDGE_BORDER:
		return i < 0 || i >= n ? -1 : i;
	default:
		return i < 0 ? 0 : i >= n ? n - 1 : i;
	}
}

static uint32_t size_of(const struct emu_image *m, int dimension)
{
	const uint32_t size = dimension == 0   ? m->width
			      : dimension == 1 ? m->height
					       : m->depth;

	return size ? size : 1;
}

/* Reads the element with these indices, after the address modes. */
static bool read_element(const struct emu_sample *s, const int64_t *index,
			 uint32_t *bits, float *values)
{
	const struct emu_texture *t = s->texture;
	const struct emu_image *m = &t->image;
	const uint32_t bytes = emu_texel_bytes(m->format);
	const uint32_t last = m->layers ? m->layers - 1 : 0;
	int64_t at[3] = {0};
	const uint8_t *from;
	uint64_t address = m->address;

	memset(bits, 0, 4 * sizeof(*bits));
	memset(values, 0, 4 * sizeof(*values));
	for (int d = 0; d < s->dimensions; d++) {
		uint8_t edge = t->edge[d];

		/* Only coordinates of 0 to 1 are repeated. */
		if (!t->is_normalised && edge != EMU_EDGE_BORDER)
			edge = EMU_EDGE_CLAMP;
		at[d] = place_at(m->is_cube ? EMU_EDGE_CLAMP : edge, index[d],
				 size_of(m, d));
		if (at[d] < 0) {
			memcpy(values, t->border, sizeof(t->border));
			return true;
		}
	}
	address += (uint64_t)at[1] * m->pitch + (uint64_t)at[0] * bytes * m->channels;
	address += (m->layers ? s->layer < last ? s->layer : last : (uint64_t)at[2]) *
		   m->slice;
	from = s->read(s->context, address, bytes * m->channels);
	if (!from)
		return false;
	for (uint32_t c = 0; c < m->channels; c++) {
		bits[c] = component(m->format, from + c * bytes);
		values[c] = component_as_float(m->format, from + c * bytes);
	}
	return true;
}

static float coordinate(const struct emu_sample *s, int dimension)
{
	const float x = s->at[dimension];

	if (x != x)
		return 0;
	return s->texture->is_normalised || s->texture->image.is_cube
		   ? x * (float)size_of(&s->texture->image, dimension)
		   : x;
}

/* An index of elements; far outside, the address modes treat all alike. */
static int64_t index_of(double x)
{
	const double most = (double)(INT64_C(1) << 40);

	return (int64_t)floor(x < -most ? -most : x > most ? most : x);
}

/*
 * The lower of the two elements of a linear filter, and the weight of the upper one in
 * parts of 2^WEIGHT_BITS.
 */
static int64_t lower_of(const struct emu_sample *s, int dimension, int64_t *weight)
{
	const double parts = 1 << WEIGHT_BITS;
	const int64_t x = index_of((coordinate(s, dimension) - 0.5) * parts + 0.5);

	*weight = x & ((1 << WEIGHT_BITS) - 1);
	return x >> WEIGHT_BITS;
}

/* ---- filters -------------------------------------------------------------- */

static bool filter(const struct emu_sample *s, uint32_t result[4])
{
	int64_t lower[3] = {0}, weight[3] = {0}, index[3] = {0};
	double sum[4] = {0};
	uint32_t bits[4];

	for (int d = 0; d < s->dimensions; d++)
		lower[d] = lower_of(s, d, &weight[d]);
	for (int corner = 0; corner < 1 << s->dimensions; corner++) {
		double w = 1;
		float values[4];

		for (int d = 0; d < s->dimensions; d++) {
			const bool is_upper = corner >> d & 1;

			index[d] = lower[d] + is_upper;
			w *= (double)(is_upper ? weight[d]
					       : (1 << WEIGHT_BITS) - weight[d]) /
			     (1 << WEIGHT_BITS);
		}
		/* An element without a weight does not matter, nor does its NaN. */
		if (w == 0)
			continue;
		if (!read_element(s, index, bits, values))
			return false;
		for (int c = 0; c < 4; c++)
			sum[c] += w * values[c];
	}
	for (int c = 0; c < 4; c++) {
		const float x = (float)sum[c];

		memcpy(&result[c], &x, sizeof(x));
	}
	return true;
}

bool emu_texture_sample(const struct emu_sample *s, uint32_t result[4])
{
	const bool has_floats = emu_texture_has_floats(s->texture);
	int64_t index[3] = {0};
	uint32_t bits[4];
	float values[4];

	if (!s->is_fetch && s->texture->filters && has_floats)
		return filter(s, result);
	for (int d = 0; d < s->dimensions && d < 3; d++)
		index[d] = s->is_fetch ? s->place[d] : index_of(coordinate(s, d));
	if (!read_element(s, index, bits, values))
		return false;
	memcpy(result, has_floats ? (const void *)values : bits, sizeof(bits));
	return true;
}

bool emu_texture_gather(const struct emu_sample *s, int component, uint32_t result[4])
{
	/* Lower left, lower right, upper right, upper left. */
	static const int8_t corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
	const bool has_floats = emu_texture_has_floats(s->texture);
	int64_t index[3] = {0}, weight;
	uint32_t bits[4];
	float values[4];

	for (int k = 0; k < 4; k++) {
		for (int d = 0; d < 2; d++)
			index[d] = lower_of(s, d, &weight) + corners[k][d];
		if (!read_element(s, index, bits, values))
			return false;
		memcpy(&result[k],
		       has_floats ? (const void *)&values[component] : &bits[component],
		       sizeof(*bits));
	}
	return true;
}

/* The table of the guide's section "Cubemap Textures". */
uint32_t emu_texture_face(const float v[3], float at[2])
{
	const float x = v[0], y = v[1], z = v[2];
	const float ax = fabsf(x), ay = fabsf(y), az = fabsf(z);
	uint32_t face;
	float m, s, t;

	if (ax >= ay && ax >= az) {
		face = x < 0;
		m = ax;
		s = x < 0 ? z : -z;
		t = -y;
	} else if (ay >= az) {
		face = 2 + (y < 0);
		m = ay;
		s = x;
		t = y < 0 ? -z : z;
	} else {
		face = 4 + (z < 0);
		m = az;
		s = z < 0 ? -x : x;
		t = -y;
	}
	at[0] = (s / m + 1) / 2;
	at[1] = (t / m + 1) / 2;
	return face;
}

/* ---- objects -------------------------------------------------------------- */

/* A number that is no address, and by which a mistaken handle is noticed. */
#define FIRST_HANDLE (UINT64_C(0x7E8) << 44)

uint64_t emu_texture_add(struct emu_textures *all, const struct emu_texture *texture)
{
	if (all->count == all->capacity) {
		const size_t capacity = all->capacity ? 2 * all->capacity : 16;
		struct emu_texture *grown =
		    realloc(all->list, capacity * sizeof(*grown));

		if (!grown)
			return 0;
		all->list = grown;
		all->capacity = capacity;
	}
	all->list[all->count] = *texture;
	all->list[all->count].is_live = true;
	return FIRST_HANDLE + all->count++;
}

struct emu_texture *emu_texture_of(const struct emu_textures *all, uint64_t handle)
{
	const uint64_t index = handle - FIRST_HANDLE;

	if (index >= all->count || !all->list[index].is_live)
		return NULL;
	return &all->list[index];
}
