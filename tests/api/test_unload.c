/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that loads the shared library, multiplies on two threads and unloads it,
 * several times.  No thread of the library may keep running.
 */
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "common/unit.h"
#include "nibblas.h"

enum { M = 5, N = 512, K = 64, ROUNDS = 10 };

struct library {
	void *handle;
	__typeof__(&nib_device_open) open;
	__typeof__(&nib_multiply) multiply;
	__typeof__(&nib_device_close) close;
};

/* dlsym() gives a function as a pointer to data. */
static void find(const struct library *l, const char *name, void *function)
{
	void *symbol = dlsym(l->handle, name);

	assert_non_null(symbol);
	memcpy(function, &symbol, sizeof(symbol));
}

static struct library load(void)
{
	struct library l = {.handle = dlopen(NIB_LIBRARY, RTLD_NOW)};

	if (!l.handle)
		fail_msg("%s", dlerror());
	find(&l, "nib_device_open", &l.open);
	find(&l, "nib_multiply", &l.multiply);
	find(&l, "nib_device_close", &l.close);
	return l;
}

static uint8_t a_codes[M * K / 2], b_codes[N * K / 2];
static uint8_t a_scales[M * K / 16], b_scales[N * K / 16];

/* A is all ones, row n of B is 0.5 * n % 8: c[m][n] is 64 times that. */
static void multiply(const struct library *l, struct nib_device *device)
{
	static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
	float c[M * N];
	const struct nib_problem p = {.a = {a_codes, a_scales, .rows = M, .k = K},
				      .b = {b_codes, b_scales, .rows = N, .k = K},
				      .c = {c, .rows = M, .cols = N}};
	struct nib_error err;

	memset(a_codes, 0x22, sizeof(a_codes));
	memset(a_scales, 0x38, sizeof(a_scales));
	memset(b_scales, 0x38, sizeof(b_scales));
	for (int n = 0; n < N; n++)
		memset(b_codes + n * K / 2, 0x11 * (n % 8), K / 2);
	assert_ok_err(l->multiply(device, NIB_OP_GEMM, &p, 1, &err), &err);
	for (int i = 0; i < M * N; i++)
		assert_true(c[i] == 64 * values[i % N % 8]);
}

static void unload(struct library *l)
{
	assert_int_equal(dlclose(l->handle), 0);
	assert_null(dlopen(NIB_LIBRARY, RTLD_NOW | RTLD_NOLOAD));
}

static void load_and_unload(void **state)
{
	const struct nib_device_options options = {.struct_bytes = sizeof(options),
						   .threads = 2};
	/* Longer than a thread spins before it sleeps, or a time slice. */
	const struct timespec pause = {0, 20000000};

	for (int i = 0; i < ROUNDS; i++) {
		struct library l = load();
		struct nib_device *device;

		assert_ok(l.open("cpu", &options, &device, NULL));
		multiply(&l, device);
		multiply(&l, device);
		l.close(device);
		unload(&l);
		if (i % 2)
			nanosleep(&pause, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(load_and_unload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
