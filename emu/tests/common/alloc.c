/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/alloc.c - malloc and related functions, which call glibc's.
 *
 * The program's definitions replace the C library's, also for calls by the C library
 * (strdup, tsearch).
 */
#include "alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||             \
    __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

static atomic_long countdown; /* allocations until the failing one; 0 = off */
static atomic_bool keep_failing;
static atomic_bool has_failed;
static atomic_long live;

#if defined(__GLIBC__) && !defined(HAS_SANITIZER)

/* The C library must see them, whatever -fvisibility says. */
#pragma GCC visibility push(default)

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *block);
void *memalign(size_t align, size_t n);

static bool must_fail(void)
{
	if (atomic_load_explicit(&countdown, memory_order_relaxed) == 0)
		return false;
	if (atomic_fetch_sub(&countdown, 1) != 1)
		return false;
	if (atomic_load(&keep_failing))
		atomic_store(&countdown, 1);
	atomic_store(&has_failed, true);
	errno = ENOMEM;
	return true;
}

static void *counted(void *block)
{
	if (block)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return block;
}

void *malloc(size_t n)
{
	return must_fail() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t count, size_t n)
{
	return must_fail() ? NULL : counted(__libc_calloc(count, n));
}

void *realloc(void *old, size_t n)
{
	void *block;

	if (must_fail())
		return NULL;
	block = __libc_realloc(old, n);
	if (!old)
		counted(block);
	else if (n == 0 && !block)
		atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	return block;
}

void *memalign(size_t align, size_t n)
{
	return must_fail() ? NULL : counted(__libc_memalign(align, n));
}

void *aligned_alloc(size_t align, size_t n)
{
	return memalign(align, n);
}

int posix_memalign(void **block, size_t align, size_t n)
{
	void *got = memalign(align, n);

	if (!got)
		return ENOMEM;
	*block = got;
	return 0;
}

void free(void *block)
{
	if (block)
		atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	__libc_free(block);
}

#pragma GCC visibility pop
#endif

bool test_alloc_works(void)
{
	static bool told;
	/* volatile: otherwise the compiler may remove a malloc that it sees freed. */
	void *(*volatile allocate)(size_t) = malloc;
	void *block;

	test_alloc_fail(1, TEST_ALLOC_ONE);
	block = allocate(1);
	test_alloc_stop();
	free(block);
	if (block && !told) {
		printf("allocations cannot be made to fail here (sanitizer, "
		       "valgrind or another C library)\n");
		told = true;
	}
	return !block;
}

void test_alloc_fail(long n, enum test_alloc_mode mode)
{
	atomic_store(&has_failed, false);
	atomic_store(&keep_failing, mode == TEST_ALLOC_FROM);
	atomic_store(&countdown, n);
}

bool test_alloc_stop(void)
{
	atomic_store(&countdown, 0);
	return atomic_load(&has_failed);
}

long test_alloc_live(void)
{
	return atomic_load(&live);
}
