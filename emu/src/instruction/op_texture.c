/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_texture.c - tex, tld4, suld.b and sust.b, by the handles of texture and surface
 * objects.  hardware/texture.h has the arithmetic.  Elements are read and written as
 * loads and stores of global memory, so that allocations, undefined bytes and races
 * are checked.
 */
#include <string.h>

#include "hardware/texture.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/traffic.h"
#include "machine/warp.h"

enum geometry { OF_1D, OF_2D, OF_3D, OF_A1D, OF_A2D, OF_CUBE, OF_ACUBE, GEOMETRIES };

static const struct {
	const char *word;
	int dimensions;	 /* of coordinates, without a layer */
	int coordinates; /* of the instruction */
} geometries[GEOMETRIES] = {
    {"1d", 1, 1},  {"2d", 2, 2},   {"3d", 3, 4},    {"a1d", 1, 2},
    {"a2d", 2, 4}, {"cube", 3, 4}, {"acube", 3, 4},
};

/* Bits of an instruction's option, after its geometry. */
enum {
	IS_FETCH = 1 << 4, /* coordinates are integers */
	COMPONENT_AT = 5,  /* of tld4, and one more; 0: tex */
	OUTSIDE_AT = 8,	   /* of surfaces */
};

enum outside { OUTSIDE_TRAP, OUTSIDE_CLAMP, OUTSIDE_ZERO };

static bool has_layer(enum geometry g)
{
	return g == OF_A1D || g == OF_A2D || g == OF_ACUBE;
}

/* ---- objects -------------------------------------------------------------- */

/* The object of a lane's handle; NULL after a fault. */
static const struct emu_texture *
object_of(struct emu_warp *w, const struct emu_instr *i, int lane, bool is_surface)
{
	const struct emu_machine *m = emu_machine_of(w);
	uint64_t handles[EMU_LANES];
	const struct emu_texture *t = NULL;

	emu_get_wide(w, &i->operand[i->vector], handles);
	if (m->textures)
		t = emu_texture_of(m->textures, handles[lane]);
	if (t && t->is_surface == is_surface)
		return t;
	emu_fault(w, i, lane, "0x%llx is no %s object: %s",
		  (unsigned long long)handles[lane], is_surface ? "surface" : "texture",
		  t ? "it is one of the other kind"
		    : "it was never created, or is destroyed");
	return NULL;
}

/* False after a fault: the instruction has another geometry than the object. */
static bool check_geometry(struct emu_warp *w, const struct emu_instr *i, int lane,
			   const struct emu_image *m)
{
	const enum geometry g = (enum geometry)(i->option & 15);
	const int dimensions = m->depth ? 3 : m->height ? 2 : 1;
	const bool is_cube = g == OF_CUBE || g == OF_ACUBE;
	/* Surfaces of cubes are layers. */
	const bool has_layers =
	    has_layer(g) || (is_cube && m->layers) ? m->layers > 0 : m->layers == 0;
	const int wanted = is_cube ? 2 : geometries[g].dimensions;

	if (has_layers && wanted == dimensions && (!is_cube || m->is_cube))
		return true;
	emu_fault(w, i, lane,
		  "the instruction is of .%s, and the object has %u x %u "
		  "x %u elements and %u layers",
		  geometries[g].word, m->width, m->height, m->depth, m->layers);
	return false;
}

/* ---- textures ------------------------------------------------------------- */

struct reader {
	struct emu_warp *w;
	const struct emu_instr *i;
	int lane;
};

static const uint8_t *read_texel(void *context, uint64_t address, uint32_t bytes)
{
	const struct reader *r = context;

	emu_traffic_count(r->w, EMU_TRAFFIC_LOAD, address, bytes);
	return emu_access(r->w, r->i, r->lane, EMU_GLOBAL, address, bytes, EMU_READ,
			  NULL);
}

static float coordinate(const struct emu_warp *w, const struct emu_value *o, int lane)
{
	return ((const float *)emu_row(w, o))[lane];
}

/* Fills in the place and the layer of a lane. */
static void set_place(const struct emu_warp *w, const struct emu_instr *i, int lane,
		      struct emu_sample *s)
{
	const enum geometry g = (enum geometry)(i->option & 15);
	const struct emu_value *o = &i->operand[i->vector + 1];
	float direction[3];

	if (has_layer(g)) {
		s->layer = ((const uint32_t *)emu_row(w, o))[lane];
		o++;
	}
	s->dimensions = geometries[g].dimensions;
	s->is_fetch = i->option & IS_FETCH;
	for (int d = 0; d < s->dimensions; d++) {
		if (s->is_fetch)
			s->place[d] = ((const int32_t *)emu_row(w, &o[d]))[lane];
		else
			direction[d] = s->at[d] = coordinate(w, &o[d], lane);
	}
	if (g != OF_CUBE && g != OF_ACUBE)
		return;
	s->layer = 6 * s->layer + emu_texture_face(direction, s->at);
	s->dimensions = 2;
}

/*
 * A lane's four values.  Those of an object of linear memory are 0 past its end, as on
 * a GPU.
 */
static bool sample_lane(struct emu_warp *w, const struct emu_instr *i, int lane,
			uint32_t result[4])
{
	const struct emu_texture *t = object_of(w, i, lane, false);
	struct reader reader = {w, i, lane};
	struct emu_sample s = {.texture = t, .read = read_texel, .context = &reader};

	if (!t || !check_geometry(w, i, lane, &t->image))
		return false;
	set_place(w, i, lane, &s);
	if (t->image.is_linear &&
	    (s.place[0] < 0 || (uint32_t)s.place[0] >= t->image.width)) {
		memset(result, 0, 4 * sizeof(*result));
		return true;
	}
	if (i->option >> COMPONENT_AT & 7)
		return emu_texture_gather(&s, (int)(i->option >> COMPONENT_AT & 7) - 1,
					  result);
	return emu_texture_sample(&s, result);
}

static void run_tex(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint32_t values[4][EMU_LANES] = {{0}}, result[4];

	EMU_EACH_LANE(l)
	{
		if (!(lanes >> l & 1))
			continue;
		if (!sample_lane(w, i, l, result))
			return;
		for (int c = 0; c < 4; c++)
			values[c][l] = result[c];
	}
	for (int c = 0; c < i->vector; c++)
		emu_put_32(w, &i->operand[c], values[c], lanes);
}

/* ---- surfaces ------------------------------------------------------------- */

/* Moves a coordinate into 0 .. size - 1; true if that did not change it. */
static bool clamp(int64_t *at, int64_t size)
{
	const int64_t before = *at;

	*at = before < 0 ? 0 : before >= size ? size - 1 : before;
	return *at == before;
}

/*
 * The address of a lane's `bytes` bytes.  *is_inside: the access happens.  False after
 * a fault.
 */
static bool surface_address(struct emu_warp *w, const struct emu_instr *i, int lane,
			    uint32_t bytes, uint64_t *address, bool *is_inside)
{
	const enum geometry g = (enum geometry)(i->option & 15);
	const enum outside outside = (enum outside)(i->option >> OUTSIDE_AT & 3);
	const struct emu_texture *t = object_of(w, i, lane, true);
	const struct emu_value *o = &i->operand[i->vector + 1];
	int64_t at[4] = {0}, layer = 0;
	const struct emu_image *m;

	if (!t || !check_geometry(w, i, lane, &t->image))
		return false;
	m = &t->image;
	for (int d = 0; d < geometries[g].dimensions + has_layer(g); d++)
		at[d] = ((const int32_t *)emu_row(w, &o[d]))[lane];
	if (has_layer(g)) {
		layer = at[0];
		memmove(at, at + 1, 3 * sizeof(*at));
		at[geometries[g].dimensions] = 0;
	} else {
		layer = at[2];
		at[2] = 0;
	}
	/* The first coordinate counts bytes. */
	*is_inside = clamp(&at[0], (int64_t)m->width * emu_image_bytes(m) - bytes + 1);
	*is_inside &= clamp(&at[1], m->height ? m->height : 1);
	*is_inside &= clamp(&layer, m->layers ? m->layers : m->depth ? m->depth : 1);
	if (!*is_inside && outside == OUTSIDE_TRAP) {
		emu_fault(
		    w, i, lane,
		    "byte %d of row %d is outside of the surface, which has %u "
		    "bytes in each of %u rows, and .trap ends the kernel",
		    ((const int32_t *)emu_row(w, &o[has_layer(g)]))[lane],
		    geometries[g].dimensions > 1
			? ((const int32_t *)emu_row(w, &o[has_layer(g) + 1]))[lane]
			: 0,
		    m->width * emu_image_bytes(m), m->height ? m->height : 1);
		return false;
	}
	*is_inside |= outside == OUTSIDE_CLAMP;
	*address = m->address + (uint64_t)layer * m->slice +
		   (uint64_t)at[1] * m->pitch + (uint64_t)at[0];
	return true;
}

/* The lanes that access memory, with their addresses; false after a fault. */
static bool surface_addresses(struct emu_warp *w, const struct emu_instr *i,
			      uint32_t bytes, uint32_t *lanes, uint64_t *address)
{
	uint32_t inside = 0;

	EMU_EACH_LANE(l)
	{
		bool is_inside = false;

		address[l] = 0;
		if (!(*lanes >> l & 1))
			continue;
		if (!surface_address(w, i, l, bytes, &address[l], &is_inside))
			return false;
		inside |= (uint32_t)is_inside << l;
	}
	*lanes = inside;
	return true;
}

static void run_suld(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t each = (uint32_t)emu_type_bytes((enum emu_type)i->type);
	const uint32_t bytes = each * i->vector;
	uint64_t address[EMU_LANES], value[EMU_LANES];
	const uint8_t *from[EMU_LANES];
	uint32_t inside = lanes;

	if (!surface_addresses(w, i, bytes, &inside, address))
		return;
	emu_traffic_lanes(w, i, inside, address, bytes, EMU_TRAFFIC_LOAD);
	if (inside && !emu_load_lanes(w, i, inside, address, bytes, from))
		return;
	for (uint32_t e = 0; e < i->vector; e++) {
		memset(value, 0, sizeof(value));
		EMU_EACH_LANE(l)
		if (inside >> l & 1)
			memcpy(&value[l], from[l] + e * each, each);
		emu_put_wide(w, &i->operand[e], value, lanes);
	}
}

static void run_sust(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t each = (uint32_t)emu_type_bytes((enum emu_type)i->type);
	const uint32_t bytes = each * i->vector;
	uint64_t address[EMU_LANES], value[EMU_LANES];
	uint8_t element[EMU_LANES][32];

	if (!surface_addresses(w, i, bytes, &lanes, address))
		return;
	emu_traffic_lanes(w, i, lanes, address, bytes, EMU_TRAFFIC_STORE);
	for (uint32_t e = 0; e < i->vector; e++) {
		emu_get_wide(w, &i->operand[e], value);
		EMU_EACH_LANE(l) memcpy(element[l] + e * each, &value[l], each);
	}
	if (emu_store_lanes(w, i, lanes, address, bytes, element))
		emu_machine_of(w)->effects++;
}

/* ---- binding --------------------------------------------------------------- */

static bool bind_geometry(struct emu_bind *b)
{
	b->i->space = EMU_GLOBAL;
	for (uint32_t g = 0; g < GEOMETRIES; g++)
		if (emu_has(b, geometries[g].word)) {
			b->i->option = g;
			return true;
		}
	return emu_bind_fail(b, "its geometry is missing");
}

/* The registers of argument n. */
static bool bind_values(struct emu_bind *b, uint32_t n, bool is_written)
{
	const uint32_t wanted = b->i->vector;
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, emu_argument(b, n), &count);

	if (count != wanted)
		return emu_bind_fail(b, "%u registers for %u values", count, wanted);
	for (uint32_t k = 0; k < count; k++)
		if (is_written ? !emu_wide_dst(b, &e[k], emu_type_bytes(b->types[0]))
			       : !emu_wide_src(b, &e[k], b->types[0]))
			return false;
	return true;
}

/* [object, {coordinates}]; a layer is an integer. */
static bool bind_object(struct emu_bind *b, uint32_t n, enum emu_type type)
{
	const struct emu_argument *a = emu_argument(b, n);
	const enum geometry g = (enum geometry)(b->i->option & 15);
	const uint32_t wanted = (uint32_t)geometries[g].coordinates;

	if (!emu_address(b, a))
		return false;
	if (a->count != 1 + wanted &&
	    a->count != 1u + (uint32_t)(geometries[g].dimensions + has_layer(g)))
		return emu_bind_fail(b, "%u coordinates, not %u", a->count - 1, wanted);
	for (uint32_t k = 1; k < a->count; k++)
		if (!emu_src(b, &b->s->elements[a->first + k],
			     k == 1 && has_layer(g) ? EMU_B32 : type))
			return false;
	return true;
}

/* .level and .grad choose a level of a mipmap; no image here has more than one. */
bool emu_bind_tex(struct emu_bind *b)
{
	const uint32_t more = emu_has(b, "level") + 2u * emu_has(b, "grad");

	if (b->n_types != 2 || !emu_arguments(b, 2 + more, 2 + more))
		return emu_bind_fail(b, "it needs .v4, the type of the result and that "
					"of the coordinates");
	if (!bind_geometry(b))
		return false;
	b->i->vector = 4;
	if (b->types[1] == EMU_S32)
		b->i->option |= IS_FETCH;
	b->i->run = run_tex;
	return bind_values(b, 0, true) &&
	       bind_object(b, 1, b->types[1] == EMU_S32 ? EMU_S32 : EMU_F32);
}

bool emu_bind_tld4(struct emu_bind *b)
{
	static const char *const words[] = {"r", "g", "b", "a"};
	uint32_t component;

	if (!emu_has_one(b, words, 4, &component) || b->n_types != 2 ||
	    b->types[1] != EMU_F32 || !emu_arguments(b, 2, 2))
		return emu_bind_fail(b,
				     "it needs a component, .2d.v4, a type and .f32");
	if (!bind_geometry(b))
		return false;
	b->i->vector = 4;
	b->i->option |= (component + 1) << COMPONENT_AT;
	b->i->run = run_tex;
	return bind_values(b, 0, true) && bind_object(b, 1, EMU_F32);
}

static bool bind_surface(struct emu_bind *b)
{
	static const char *const words[] = {"trap", "clamp", "zero"};
	uint32_t outside;

	if (!emu_has_one(b, words, 3, &outside) || b->n_types != 1 ||
	    !emu_arguments(b, 2, 2))
		return emu_bind_fail(b, "it needs a type, and .trap, .clamp or .zero");
	if (!bind_geometry(b))
		return false;
	b->i->option |= outside << OUTSIDE_AT;
	b->i->vector = emu_has(b, "v2") ? 2 : emu_has(b, "v4") ? 4 : 1;
	return b->i->vector * emu_type_bytes(b->types[0]) <= 16 ||
	       emu_bind_fail(b, "an element has at most 16 bytes");
}

bool emu_bind_suld(struct emu_bind *b)
{
	b->i->run = run_suld;
	return bind_surface(b) && bind_values(b, 0, true) && bind_object(b, 1, EMU_S32);
}

/* Operands: the values before the object, as of a load. */
bool emu_bind_sust(struct emu_bind *b)
{
	b->i->run = run_sust;
	return bind_surface(b) && bind_values(b, 1, false) &&
	       bind_object(b, 0, EMU_S32);
}
