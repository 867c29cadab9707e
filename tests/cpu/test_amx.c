/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_amx.c - what the set `amx` does with a process: the kernel's permission for tile
 * registers, forks, and the tile state in which threads are left.  Its results are
 * tested with those of all sets (test_multiply.c, test_dense.c), and on a model of its
 * instructions where the processor has none.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/features.h"
#include "common/problem.h"
#include "common/unit.h"

#if defined(__linux__) && defined(__x86_64__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct rng rng = {7};

static void skip_without_tiles(void)
{
	char reason[128];

	if (cpu_isa_available(CPU_AMX, reason, sizeof(reason)))
		return;
	printf("skipped: %s\n", reason);
	skip();
}

static struct job *sample(void)
{
	const struct job_spec spec = {.op = NIB_OP_GEMM, .m = 70, .n = 90, .k = 176};

	return job_of(&rng, &spec);
}

/* The exit status of a child that runs `child`. */
static int status_of(void (*child)(void *arg), void *arg)
{
	const pid_t pid = fork();
	int status = -1;

	assert_true(pid >= 0);
	if (pid == 0) {
		child(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* ---- permission ---------------------------------------------------------- */

/* Makes arch_prctl() fail with EPERM in this process from now on. */
static bool refuse_arch_prctl(void)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Exits with 0 if the set is closed for this reason and the next one is used. */
static void open_refused(void *arg)
{
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};
	const char *want = "the kernel does not grant amx tiles to this process "
			   "(Operation not permitted)";
	struct nib_device_info opened = {.struct_bytes = sizeof(opened)};
	struct nib_device *device;

	unsetenv("NIB_CPU");
	if (!refuse_arch_prctl())
		_exit(77);
	for (int i = 0; i < nib_backend_count(); i++) {
		/* A GPU's driver, if there is one, changes it. */
		errno = ENOTTY;
		if (nib_backend_get_info(i, &info, NULL) == NIB_STATUS_OK &&
		    strcmp(info.backend, "cpu-amx") == 0)
			break;
	}
	if (info.is_open || strcmp(info.reason, want) != 0 || errno != ENOTTY)
		_exit(1);
	if (nib_device_open("cpu", NULL, &device, NULL) != NIB_STATUS_OK ||
	    nib_device_get_info(device, &opened, NULL) != NIB_STATUS_OK ||
	    strcmp(opened.backend, "cpu-avx512vnni") != 0)
		_exit(2);
	nib_device_close(device);
}

static void a_refused_permission_closes_the_set(void **state)
{
	int status;

	skip_without_tiles();
	status = status_of(open_refused, NULL);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skipped: this system has no seccomp filters\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* ---- threads and forks --------------------------------------------------- */

/* The tile states that this thread has: bits 17 and 18 of XINUSE. */
static unsigned int tiles_in_use(void)
{
	unsigned int a, d;

	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
	return a >> 17 & 3;
}

static void a_run_leaves_no_tiles(void **state)
{
	struct job_how how = {0};
	struct job *job;

	skip_without_tiles();
	how.device = test_device("amx", 1);
	job = sample();
	assert_int_equal(tiles_in_use(), 0);
	job_run(job, &how, "one thread");
	assert_int_equal(tiles_in_use(), 0);
	job_free(job);
	nib_device_close(how.device);
}

/* As ggml does, which configures the tiles of a thread once. */
static void a_run_keeps_the_configuration(void **state)
{
	/* Palette 1, two tiles of 8 rows, two of 16 rows of 32 bytes. */
	static _Alignas(64) const uint8_t set[64] = {
	    [0] = 1,  [16] = 64, [18] = 64, [20] = 32, [22] = 32,
	    [48] = 8, [49] = 8,	 [50] = 16, [51] = 16};
	_Alignas(64) uint8_t kept[64] = {0};
	struct job_how how = {0};
	struct job *job;

	skip_without_tiles();
	how.device = test_device("amx", 1);
	job = sample();
	__asm__ volatile("ldtilecfg %0" ::"m"(set));
	job_run(job, &how, "configured thread");
	__asm__ volatile("sttilecfg %0\n\ttilerelease" : "=m"(kept));
	assert_memory_equal(kept, set, sizeof(set));
	job_free(job);
	nib_device_close(how.device);
}

struct forked {
	struct job *job;
	struct job_how how;
	struct bits bits;
};

static void run_forked(void *arg)
{
	struct forked *f = arg;

	job_run(f->job, &f->how, "child");
	job_has_bits(f->job, &f->bits, "child");
}

static void forks_have_tiles(void **state)
{
	struct forked f = {0};

	skip_without_tiles();
	f.how.device = test_device("amx", 3);
	f.job = sample();
	job_run(f.job, &f.how, "parent");
	f.bits = job_bits(f.job);
	assert_int_equal(status_of(run_forked, &f), 0);
	bits_free(&f.bits);
	job_free(f.job);
	nib_device_close(f.how.device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_refused_permission_closes_the_set),
	    cmocka_unit_test(a_run_leaves_no_tiles),
	    cmocka_unit_test(a_run_keeps_the_configuration),
	    cmocka_unit_test(forks_have_tiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	printf("skipped: only Linux on x86-64 has tile registers\n");
	return 0;
}
#endif
