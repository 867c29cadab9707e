/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texture.c - arrays, texture objects and surface objects.  An array is device memory
 * with a pitch, so that copies and the checks of kernels treat it as any other.
 */
#include "driver/texture.h"

#include <stdlib.h>
#include <string.h>

#include "driver/queue.h"

#define PITCH_ALIGN 32 /* of rows of a texture in linear memory */
#define FACES	    6

static struct CUarray_st *arrays;

bool emu_array_is(const struct CUarray_st *array)
{
	for (const struct CUarray_st *a = arrays; a; a = a->next)
		if (a == array)
			return true;
	return false;
}

/* ---- arrays ---------------------------------------------------------------- */

/* False with a reason for sizes and formats that an array cannot have. */
static bool open_image(struct emu_image *m, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	const bool is_layered = d->Flags & CUDA_ARRAY3D_LAYERED;
	const bool is_cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;

	*m = (struct emu_image){.width = (uint32_t)d->Width,
				.height = (uint32_t)d->Height,
				.depth = (uint32_t)d->Depth,
				.format = (uint32_t)d->Format,
				.channels = d->NumChannels,
				.is_cube = is_cube};
	if (d->Flags & ~(unsigned)(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
				   CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER))
		return false;
	if (is_layered || is_cube) {
		m->layers = m->depth;
		m->depth = 0;
	}
	if (!d->Width || d->Width > UINT16_MAX * 4u || d->Height > UINT16_MAX + 1u ||
	    d->Depth > UINT16_MAX || (m->depth && !m->height) ||
	    ((is_layered || is_cube) && !m->layers) || !emu_texel_bytes(m->format) ||
	    (m->channels != 1 && m->channels != 2 && m->channels != 4) ||
	    (is_cube && (m->layers % FACES || m->width != m->height)))
		return false;
	m->pitch = ((uint64_t)m->width * emu_image_bytes(m) + 511) / 512 * 512;
	m->slice = m->pitch * (m->height ? m->height : 1);
	return true;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CUresult result = emu_driver_enter();
	struct emu_image m;
	struct CUarray_st *a;

	if (!result && (!array || !d || !open_image(&m, d)))
		result = emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    "array: its sizes, format, channels or flags are not those of an "
		    "array (mipmaps, sparse arrays and compressed formats are not "
		    "modelled)");
	if (result)
		return emu_driver_leave(result);
	a = calloc(1, sizeof(*a));
	if (!a)
		return emu_driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
	m.address = emu_driver_alloc(m.slice * (m.layers  ? m.layers
						: m.depth ? m.depth
							  : 1));
	if (!m.address) {
		free(a);
		return emu_driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	a->image = m;
	a->flags = d->Flags;
	a->next = arrays;
	arrays = *array = a;
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR all = {0};

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	all.Width = d->Width;
	all.Height = d->Height;
	all.Format = d->Format;
	all.NumChannels = d->NumChannels;
	return cuArray3DCreate_v2(array, &all);
}

CUresult cuArrayDestroy(CUarray array)
{
	struct emu_error err = {{0}};
	CUresult result = emu_driver_enter();
	CUdeviceptr address = 0;

	if (!result && !emu_array_is(array))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result) {
		struct CUarray_st **at = &arrays;

		while (*at != array)
			at = &(*at)->next;
		*at = array->next;
		address = array->image.address;
		free(array);
		result = emu_driver_flush();
		if (!result &&
		    !emu_memory_free(emu_driver.machine.memory, address, &err))
			result =
			    emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
	}
	return emu_driver_leave(result);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *d, CUarray array)
{
	CUresult result = emu_driver_enter();

	if (!result && !d)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_array_is(array))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result) {
		const struct emu_image *m = &array->image;

		*d =
		    (CUDA_ARRAY3D_DESCRIPTOR){.Width = m->width,
					      .Height = m->height,
					      .Depth = m->layers ? m->layers : m->depth,
					      .Format = (int)m->format,
					      .NumChannels = m->channels,
					      .Flags = array->flags};
	}
	return emu_driver_leave(result);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *d, CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR all = {0};
	const CUresult result = cuArray3DGetDescriptor_v2(&all, array);

	if (!result)
		*d = (CUDA_ARRAY_DESCRIPTOR){all.Width, all.Height, all.Format,
					     all.NumChannels};
	return result;
}

/* ---- objects ---------------------------------------------------------------- */

/* Refuses resources that are not modelled, or not valid. */
static CUresult refuse(const char *why)
{
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
			       "texture or surface object: %s", why);
}

/* The image of linear memory; rows > 0: of a pitch. */
static CUresult open_linear(struct emu_image *m, const CUDA_RESOURCE_DESC *r)
{
	const bool has_rows = r->resType == CU_RESOURCE_TYPE_PITCH2D;

	m->address = has_rows ? r->res.pitch2D.devPtr : r->res.linear.devPtr;
	m->format = (uint32_t)(has_rows ? r->res.pitch2D.format : r->res.linear.format);
	m->channels = has_rows ? r->res.pitch2D.numChannels : r->res.linear.numChannels;
	if (!emu_texel_bytes(m->format) || m->channels < 1 || m->channels > 4 ||
	    m->channels == 3)
		return refuse("the format of its elements is not modelled");
	if (m->address % (has_rows ? PITCH_ALIGN : emu_image_bytes(m)))
		return refuse("its memory is not aligned");
	if (!has_rows) {
		m->width = (uint32_t)(r->res.linear.sizeInBytes / emu_image_bytes(m));
		m->is_linear = true;
		return CUDA_SUCCESS;
	}
	m->width = (uint32_t)r->res.pitch2D.width;
	m->height = (uint32_t)r->res.pitch2D.height;
	m->pitch = r->res.pitch2D.pitchInBytes;
	if (!m->width || !m->height || m->pitch % PITCH_ALIGN ||
	    m->pitch < (uint64_t)m->width * emu_image_bytes(m))
		return refuse("its rows need a pitch of a multiple of 32 bytes that "
			      "holds their width");
	return CUDA_SUCCESS;
}

/* The lock must be held. */
static CUresult open_resource(struct emu_image *m, const CUDA_RESOURCE_DESC *r)
{
	switch (r->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		if (!emu_array_is(r->res.array.hArray))
			return CUDA_ERROR_INVALID_HANDLE;
		*m = r->res.array.hArray->image;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR:
	case CU_RESOURCE_TYPE_PITCH2D:
		return open_linear(m, r);
	default:
		return refuse("mipmapped arrays are not modelled");
	}
}

static CUresult add_object(unsigned long long *object, const struct emu_texture *t)
{
	static struct emu_textures all;

	emu_driver.machine.textures = &all;
	*object = emu_texture_add(&all, t);
	return *object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Fills in how t is read; false: a mode that does not exist. */
static bool open_modes(struct emu_texture *t, const CUDA_TEXTURE_DESC *d)
{
	for (int k = 0; k < 3; k++) {
		if (d->addressMode[k] < EMU_EDGE_WRAP ||
		    d->addressMode[k] > EMU_EDGE_BORDER)
			return false;
		t->edge[k] = (uint8_t)d->addressMode[k];
	}
	t->filters = d->filterMode == 1;
	t->is_normalised = d->flags & CU_TRSF_NORMALIZED_COORDINATES;
	t->reads_integers = d->flags & CU_TRSF_READ_AS_INTEGER;
	memcpy(t->border, d->borderColor, sizeof(t->border));
	return !(d->flags & CU_TRSF_SRGB);
}

CUresult cuTexObjectCreate(unsigned long long *object, const CUDA_RESOURCE_DESC *r,
			   const CUDA_TEXTURE_DESC *d, const void *view)
{
	struct emu_texture t = {0};
	CUresult result = emu_driver_enter();

	if (!result && (!object || !r || !d))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && view)
		result = refuse("views of a resource are not modelled");
	if (!result)
		result = open_resource(&t.image, r);
	if (!result && !open_modes(&t, d))
		result = refuse("an address mode is unknown, or .sRGB is requested, "
				"which is not modelled");
	if (!result && t.filters && !emu_texture_has_floats(&t))
		result = refuse("a linear filter needs elements that are read as "
				"floats");
	if (!result)
		result = add_object(object, &t);
	return emu_driver_leave(result);
}

CUresult cuSurfObjectCreate(unsigned long long *object, const CUDA_RESOURCE_DESC *r)
{
	struct emu_texture t = {.is_surface = true};
	CUresult result = emu_driver_enter();

	if (!result && (!object || !r))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && r->resType != CU_RESOURCE_TYPE_ARRAY)
		result = refuse("a surface is an array");
	if (!result)
		result = open_resource(&t.image, r);
	if (!result && !(r->res.array.hArray->flags & CUDA_ARRAY3D_SURFACE_LDST))
		result = refuse("the array of a surface is created with "
				"cudaArraySurfaceLoadStore");
	if (!result)
		result = add_object(object, &t);
	return emu_driver_leave(result);
}

static CUresult destroy(unsigned long long object, bool is_surface)
{
	CUresult result = emu_driver_enter();
	struct emu_texture *t =
	    !result && emu_driver.machine.textures
		? emu_texture_of(emu_driver.machine.textures, object)
		: NULL;

	if (!result && (!t || t->is_surface != is_surface))
		result = CUDA_ERROR_INVALID_VALUE;
	/* Queued kernels may read it. */
	if (!result)
		result = emu_driver_flush();
	if (!result)
		t->is_live = false;
	return emu_driver_leave(result);
}

CUresult cuTexObjectDestroy(unsigned long long object)
{
	return destroy(object, false);
}

CUresult cuSurfObjectDestroy(unsigned long long object)
{
	return destroy(object, true);
}
