/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ggml plug-in in programs whose ggml has its layout, and in others: these refuse
 * it with one line of the plug-in, call nothing of it, and load the next.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/unit.h"
#include "fake_ggml.h"

static struct fake_ggml *open_fake(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct fake_ggml *fake;

	if (!library)
		fail_msg("%s", dlerror());
	fake = dlsym(library, "fake_ggml");
	assert_non_null(fake);
	return fake;
}

static void *load(struct fake_ggml *fake, enum fake_change change)
{
	fake->change = change;
	fake->log[0] = '\0';
	fake->name = NULL;
	return fake->load(PLUGIN);
}

static void loads(struct fake_ggml *fake)
{
	void *plugin = load(fake, FAKE_NOTHING);

	assert_string_equal(fake->log, "");
	assert_non_null(plugin);
	assert_string_equal(fake->name, "nibblas");
	assert_int_equal(fake->devices, 1);
	assert_int_equal(fake->made, 0);
	dlclose(plugin);
}

static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

static void the_same_layout(void **state)
{
	struct fake_ggml *fake = open_fake(FAKE_GGML);

	loads(fake);
	loads(fake);
}

static void other_layouts(void **state)
{
	static const struct {
		enum fake_change change;
		const char *says;
	} cases[] = {
	    {FAKE_VERSION,
	     "ggml 0.9.6 differs from the one it was built for: no NVFP4"},
	    {FAKE_TYPE_SIZE, "enum ggml_type"},
	    {FAKE_BLOCK_SIZE, "enum ggml_type"},
	    {FAKE_TYPE_NAME, "enum ggml_type"},
	    {FAKE_OP_NAME, "enum ggml_op"},
	    {FAKE_SOURCES, "struct ggml_tensor"},
	    {FAKE_FLAGS, "struct ggml_tensor"},
	    {FAKE_REGISTRY, "struct ggml_backend_reg\n"},
	    {FAKE_DEVICE, "struct ggml_backend_device\n"},
	    {FAKE_PROPERTIES, "struct ggml_backend_dev_props\n"},
	    {FAKE_BUFFER_TYPE, "struct ggml_backend_buffer_type\n"},
	    {FAKE_BUFFER, "struct ggml_backend_buffer\n"},
	    {FAKE_STREAM, "struct ggml_backend\n"},
	};
	struct fake_ggml *fake = open_fake(FAKE_GGML);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_null(load(fake, cases[i].change));
		if (!strstr(fake->log, cases[i].says))
			fail_msg("not \"%s\": %s", cases[i].says, fake->log);
		assert_ptr_equal(strstr(fake->log, "nibblas: "), fake->log);
		/* The second line is the host's. */
		assert_int_equal(count_lines(fake->log), 2);
		assert_non_null(strstr(fake->log, "failed to initialize: NULL"));
		assert_int_equal(fake->made, 0);
		loads(fake);
	}
}

/* A buffer in an unknown state is not freed. */
static void another_made_buffer(void **state)
{
	struct fake_ggml *fake = open_fake(FAKE_GGML);

	assert_null(load(fake, FAKE_MADE_BUFFER));
	assert_non_null(strstr(fake->log, "struct ggml_backend_buffer\n"));
	assert_int_equal(fake->made, 1);
	free(fake->buffer);
	fake->made = 0;
	loads(fake);
}

/* The host compares the number, because the plug-in cannot ask for it. */
static void another_api_version(void **state)
{
	struct fake_ggml *fake = open_fake(FAKE_GGML);

	assert_null(load(fake, FAKE_API_VERSION));
	assert_string_equal(fake->log,
			    "failed to initialize: incompatible API version\n");
	loads(fake);
}

static void a_missing_function(void **state)
{
	struct fake_ggml *fake = open_fake(FAKE_GGML_WITHOUT);

	assert_null(load(fake, FAKE_NOTHING));
	assert_non_null(strstr(
	    fake->log, "ggml 0.25.3 has no function ggml_backend_dev_offload_op\n"));
	assert_int_equal(count_lines(fake->log), 2);
}

/* Two libraries of a Python process can each have a ggml. */
static void a_second_ggml(void **state)
{
	struct fake_ggml *first = open_fake(FAKE_GGML);
	struct fake_ggml *second = open_fake(FAKE_GGML_SECOND);
	void *plugin = load(first, FAKE_NOTHING);

	assert_non_null(plugin);
	assert_ptr_not_equal(first, second);
	assert_null(load(second, FAKE_NOTHING));
	assert_non_null(strstr(second->log, "is the second one of this process\n"));
	dlclose(plugin);
	loads(second);
}

/* A program without any ggml, and nothing to write a message to. */
static void no_ggml(void **state)
{
	void *library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL), *symbol;
	void *(*init)(void);

	assert_non_null(library);
	symbol = dlsym(library, "ggml_backend_init");
	assert_non_null(symbol);
	memcpy(&init, &symbol, sizeof(symbol));
	assert_null(init());
	dlclose(library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_same_layout),
	    cmocka_unit_test(other_layouts),
	    cmocka_unit_test(another_made_buffer),
	    cmocka_unit_test(another_api_version),
	    cmocka_unit_test(a_missing_function),
	    cmocka_unit_test(a_second_ggml),
	    cmocka_unit_test(no_ggml),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
