/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - cuLink: modules of PTX become one text (ptx/link.h), which is the image that
 * cuLinkComplete returns.  Only PTX is linked: other inputs have no text.
 */
#include "ptx/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/image.h"
#include "driver/record.h"
#include "driver/state.h"

struct CUlinkState_st {
	struct emu_link_input *inputs;
	char **names; /* of the inputs; each is owned, as is its text */
	size_t count;
	char *image;
	/* The options of cuLinkCreate: arrays of the program, which get results. */
	unsigned n_options;
	const int *options;
	void **values;
	struct CUlinkState_st *next;
};

static struct CUlinkState_st *states;

/* ---- options ------------------------------------------------------------------- */

/* Options of the compiler change nothing here; unknown ones are refused. */
static CUresult check_options(const char *call, unsigned count, const int *options,
			      void **values)
{
	if (count && (!options || !values))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "%s: the options are NULL", call);
	for (unsigned i = 0; i < count; i++)
		if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS)
			return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					       "%s: option %d is not known", call,
					       options[i]);
	return CUDA_SUCCESS;
}

/* Writes to a log of the program, and how much of it is used. */
static void put_log(struct CUlinkState_st *s, int buffer_option, int size_option,
		    const char *text)
{
	char *buffer = NULL;
	void **size = NULL;
	size_t bytes = 0;

	for (unsigned i = 0; i < s->n_options; i++) {
		if (s->options[i] == buffer_option)
			buffer = s->values[i];
		if (s->options[i] == size_option)
			size = &s->values[i];
	}
	if (size)
		bytes = (uintptr_t)*size;
	if (!buffer || !bytes)
		return;
	snprintf(buffer, bytes, "%s", text);
	*size = (void *)strlen(buffer);
}

/* Keeps and logs why a link fails. */
static CUresult refuse(struct CUlinkState_st *s, CUresult result, const char *text)
{
	put_log(s, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text);
	emu_record_event("refused", text);
	return emu_driver_fail(result, "%s", text);
}

/* ---- inputs -------------------------------------------------------------------- */

/* Locks; the caller leaves.  Fails if the state is not one. */
static CUresult begin(const char *call, const struct CUlinkState_st *state)
{
	const struct CUlinkState_st *s = states;
	CUresult result = emu_driver_enter();

	while (s && s != state)
		s = s->next;
	if (!result && !s)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: the state is not one of cuLinkCreate, or "
					 "was destroyed",
					 call);
	return result;
}

/* Adds an input, which then owns the text. */
static CUresult add(struct CUlinkState_st *s, char *text, const char *name)
{
	struct emu_link_input *inputs =
	    realloc(s->inputs, (s->count + 1) * sizeof(*inputs));
	char **names, *copy = NULL;

	if (inputs)
		s->inputs = inputs;
	names = realloc(s->names, (s->count + 1) * sizeof(*names));
	if (names)
		s->names = names;
	if (inputs && names)
		copy = strdup(name);
	if (!copy) {
		free(text);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	names[s->count] = copy;
	inputs[s->count++] = (struct emu_link_input){copy, text};
	return CUDA_SUCCESS;
}

static CUresult refuse_type(struct CUlinkState_st *s, int type, const char *name)
{
	static const char *const types[] = {
	    [CU_JIT_INPUT_CUBIN] = "a cubin",
	    [CU_JIT_INPUT_OBJECT] = "an object of the host",
	    [CU_JIT_INPUT_LIBRARY] = "a library",
	    [CU_JIT_INPUT_NVVM] = "NVVM code",
	};
	struct emu_error err = {{0}};

	if (type < 0 || type > CU_JIT_INPUT_NVVM)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuLinkAddData: %s: input type %d is not known",
				       name, type);
	(void)emu_fail(&err,
		       "cuLinkAddData: %s is %s: only PTX is linked: compile with -ptx",
		       name, types[type]);
	return refuse(s, CUDA_ERROR_NO_BINARY_FOR_GPU, err.text);
}

/* The text of an input: PTX need not end with a zero. */
static CUresult read_input(struct CUlinkState_st *s, int type, const void *data,
			   size_t bytes, const char *name, char **text)
{
	struct emu_error err = {{0}}, named = {{0}};
	char *copy = calloc(1, bytes + 8);
	CUresult result;

	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, data, bytes);
	result = emu_image_text(type == CU_JIT_INPUT_PTX ? copy : data,
				emu_driver.machine.device, text, &err);
	free(copy);
	if (!result)
		return CUDA_SUCCESS;
	(void)emu_fail(&named, "cuLinkAddData: %s: %.700s", name, err.text);
	return refuse(s, result, named.text);
}

CUresult cuLinkAddData_v2(CUlinkState state, int type, void *data, size_t bytes,
			  const char *name, unsigned count, int *options, void **values)
{
	CUresult result = begin("cuLinkAddData", state);
	char *text = NULL;

	if (!name)
		name = "an input without a name";
	if (!result && (!data || !bytes || state->image))
		result = emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE, "cuLinkAddData: %s: %s", name,
		    state->image ? "the link is complete" : "there is no data");
	if (!result)
		result = check_options("cuLinkAddData", count, options, values);
	if (!result && type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY)
		result = refuse_type(state, type, name);
	if (!result)
		result = read_input(state, type, data, bytes, name, &text);
	if (!result)
		result = add(state, text, name);
	return emu_driver_leave(result);
}

/* The bytes of a file, to be freed; NULL: it cannot be read. */
static char *read_file(const char *path, size_t *bytes)
{
	FILE *from = path ? fopen(path, "rb") : NULL;
	char *data = NULL, *grown;
	size_t used = 0, got = 1, size = 0;

	while (from && got) {
		if (used == size) {
			size = size ? 2 * size : 1 << 16;
			grown = realloc(data, size);
			if (!grown)
				break;
			data = grown;
		}
		got = fread(data + used, 1, size - used, from);
		used += got;
	}
	if (!from || got || ferror(from)) {
		free(data);
		data = NULL;
	}
	if (from)
		(void)fclose(from);
	*bytes = used;
	return data;
}

CUresult cuLinkAddFile_v2(CUlinkState state, int type, const char *path, unsigned count,
			  int *options, void **values)
{
	size_t bytes = 0;
	char *data = read_file(path, &bytes);
	CUresult result;

	if (data) {
		result = cuLinkAddData_v2(state, type, data, bytes, path, count,
					  options, values);
		free(data);
		return result;
	}
	result = begin("cuLinkAddFile", state);
	if (!result)
		result = emu_driver_fail(CUDA_ERROR_FILE_NOT_FOUND,
					 "cuLinkAddFile: %s cannot be read",
					 path ? path : "NULL");
	return emu_driver_leave(result);
}

/* ---- linking ------------------------------------------------------------------- */

CUresult cuLinkCreate_v2(unsigned count, int *options, void **values,
			 CUlinkState *state)
{
	CUresult result = emu_driver_enter();
	struct CUlinkState_st *s = NULL;

	if (!result && !state)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = check_options("cuLinkCreate", count, options, values);
	if (!result) {
		s = calloc(1, sizeof(*s));
		result = s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		s->n_options = count;
		s->options = options;
		s->values = values;
		s->next = states;
		states = *state = s;
	}
	return emu_driver_leave(result);
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes)
{
	CUresult result = begin("cuLinkComplete", state);
	struct emu_error err = {{0}}, named = {{0}};
	char text[80];

	if (!result && !state->image) {
		state->image = emu_link(state->inputs, state->count, &err);
		if (!state->image) {
			(void)emu_fail(&named, "cuLinkComplete: %.700s", err.text);
			result = refuse(state, CUDA_ERROR_INVALID_IMAGE, named.text);
		}
	}
	if (result)
		return emu_driver_leave(result);
	snprintf(text, sizeof(text), "linked %zu modules of PTX", state->count);
	put_log(state, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, text);
	put_log(state, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
	/* The value of this option is a float, and no time is worth naming. */
	for (unsigned i = 0; i < state->n_options; i++)
		if (state->options[i] == CU_JIT_WALL_TIME)
			memset(&state->values[i], 0, sizeof(float));
	if (image)
		*image = state->image;
	if (bytes)
		*bytes = strlen(state->image) + 1;
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuLinkDestroy(CUlinkState state)
{
	CUresult result = begin("cuLinkDestroy", state);
	struct CUlinkState_st **at = &states;

	if (result)
		return emu_driver_leave(result);
	while (*at != state)
		at = &(*at)->next;
	*at = state->next;
	for (size_t i = 0; i < state->count; i++) {
		free((void *)(uintptr_t)state->inputs[i].text);
		free(state->names[i]);
	}
	free(state->inputs);
	free(state->names);
	free(state->image);
	free(state);
	return emu_driver_leave(CUDA_SUCCESS);
}
