/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the command nibemu, which runs CUDA programs on a GPU in software.  The
 * options of `run` are in options.c, the runs in runs.c, and their output in
 * results.c, table.c and json.c.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/device.h"
#include "machine/rules.h"
#include "results.h"

static const char help[] =
    "nibemu - runs CUDA programs on an emulated GPU, and reports the rules of\n"
    "PTX that their kernels break\n"
    "\n"
    "  nibemu run ./program         runs it once (nibemu run --help)\n"
    "  nibemu run --seeds 0..19 ./program\n"
    "                               runs it on 20 schedules: finds races\n"
    "  nibemu devices               lists the GPUs that are emulated\n"
    "  nibemu rules [NAME]          lists the rules, or explains one\n"
    "  nibemu --version\n";

/* ---- the library --------------------------------------------------------- */

/* Its names in the folder for LD_LIBRARY_PATH, and the kernels of nibblas, which are
 * next to it. */
static const char *const links[][2] = {
    {"libcuda.so.1", "libnibemu.so"},
    {"libcudart.so.13", "libnibemu.so"},
    {"nibblas", "nibblas"},
};
#define N_LINKS (sizeof(links) / sizeof(*links))

/* If FOLDER/NAME is here: the folder's path without links. */
static bool find_folder(const char *folder, const char *name, char *to, size_t size)
{
	char path[2 * PATH_MAX];
	char *real;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (access(path, R_OK))
		return false;
	real = realpath(folder, NULL);
	if (!real)
		return false;
	snprintf(to, size, "%s", real);
	free(real);
	return true;
}

/*
 * The folder with libcuda.so.1: next to the command in a build, or in the installed
 * tree, which may have been moved.  A Python wheel contains no links: then it is the
 * folder with libnibemu.so, and has_links is false.
 */
static bool find_library(char *to, size_t size, bool *has_links)
{
	static const char *const places[] = {"cuda", NIBEMU_CUDA_FROM_COMMAND};
	char self[PATH_MAX], path[PATH_MAX + 64];
	const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[length > 0 ? length : 0] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, sizeof(path), "%s/%s", self, places[i]);
		*has_links = find_folder(path, links[0][0], to, size);
		if (*has_links)
			return true;
		snprintf(path, sizeof(path), "%s/%s/..", self, places[i]);
		if (find_folder(path, links[0][1], to, size))
			return true;
	}
	fprintf(stderr,
		"nibemu: libnibemu is missing: neither %s/%s nor %s/%s has "
		"libcuda.so.1: install it with the command\n",
		self, places[0], self, places[1]);
	return false;
}

static bool make_links(const char *library_folder, const char *folder)
{
	char from[2 * PATH_MAX], to[PATH_MAX + 64];

	for (size_t i = 0; i < N_LINKS; i++) {
		snprintf(from, sizeof(from), "%s/%s", library_folder, links[i][1]);
		snprintf(to, sizeof(to), "%s/%s", folder, links[i][0]);
		if (symlink(from, to)) {
			fprintf(stderr, "nibemu: %s: %s\n", to, strerror(errno));
			return false;
		}
	}
	return true;
}

static void remove_links(const char *folder)
{
	char path[PATH_MAX + 64];

	for (size_t i = 0; i < N_LINKS; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, links[i][0]);
		(void)unlink(path);
	}
}

/* ---- run ----------------------------------------------------------------- */

static uint32_t jobs_of(const struct options *o)
{
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	const uint64_t runs = o->last_seed - o->first_seed + 1;
	const uint64_t most = o->jobs	       ? o->jobs
			      : processors > 0 ? (uint64_t)processors
					       : 1;

	return (uint32_t)(runs < most ? runs : most);
}

/* Prints the results and writes the JSON; returns the exit status. */
static int tell(const struct runs *r, const struct job *job)
{
	const struct options *o = job->options;

	if (o->has_seeds)
		results_print(o->json && strcmp(o->json, "-") == 0 ? stderr : stdout, r,
			      job);
	else
		results_tell(r, job);
	if (o->json && !results_write_json(r, job, o->json)) {
		fprintf(stderr, "nibemu: --json %s: %s\n", o->json, strerror(errno));
		return STATUS_USAGE;
	}
	return results_status(r);
}

/* library: the folder that find_library() found. */
static int run_in(struct job *job, const char *library, bool has_links)
{
	const char *parent = getenv("TMPDIR");
	char folder[PATH_MAX], error[1400];
	struct runs runs;
	int status = STATUS_USAGE;

	snprintf(folder, sizeof(folder), "%s/nibemu-XXXXXX",
		 parent && *parent ? parent : "/tmp");
	if (!mkdtemp(folder)) {
		fprintf(stderr, "nibemu: %s: %s\n", folder, strerror(errno));
		return STATUS_USAGE;
	}
	job->records = folder;
	job->cuda = has_links ? library : folder;
	if (has_links || make_links(library, folder)) {
		if (runs_do(&runs, job, error, sizeof(error)))
			status = tell(&runs, job);
		else
			fprintf(stderr, "nibemu: %s\n", error);
		runs_free(&runs);
	}
	if (!has_links)
		remove_links(folder);
	(void)rmdir(folder);
	job->records = job->cuda = NULL;
	return status;
}

static int run(int count, char **arguments)
{
	struct options options;
	struct program program;
	struct job job = {.options = &options, .program = &program};
	char library[PATH_MAX], error[4600];
	bool has_links;
	const int status = options_read(&options, count, arguments);

	if (status != -1)
		return status;
	if (!program_find(&program, options.program[0], error, sizeof(error))) {
		fprintf(stderr, "nibemu: %s\n", error);
		return STATUS_USAGE;
	}
	if (!find_library(library, sizeof(library), &has_links))
		return STATUS_USAGE;
	job.jobs = jobs_of(&options);
	return run_in(&job, library, has_links);
}

/* ---- devices, rules ------------------------------------------------------ */

static int devices(void)
{
	const struct emu_device *d;

	for (size_t i = 0; (d = emu_device_at(i)); i++)
		printf("%-8s %-22s compute capability %d.%d (sm_%d%d%s and "
		       "older), %u SMs, %u KB of shared memory a CTA, "
		       "%.0f GB%s\n",
		       d->name, d->title, d->major, d->minor, d->major, d->minor,
		       emu_device_has_hopper(d) ? "a" : "", d->sms,
		       d->cta_shared_bytes >> 10, (double)d->memory_bytes / (1 << 30),
		       i ? "" : " (default)");
	return STATUS_CLEAN;
}

/* Prints a title and a text, wrapped for a terminal. */
static void print_wrapped(const char *title, const char *text)
{
	size_t column = strlen(title);

	fputs(title, stdout);
	for (bool is_first = true; *text; is_first = false) {
		const size_t word = strcspn(text, " ");
		const bool is_full = column + 1 + word > 79;

		printf("%s%.*s",
		       is_first	 ? ""
		       : is_full ? "\n        "
				 : " ",
		       (int)word, text);
		column = (is_full ? 8 : column + !is_first) + word;
		text += word + (text[word] == ' ');
	}
	putchar('\n');
}

static int rule(const char *name)
{
	const struct emu_rule *r = emu_rule_named(name, strlen(name));

	if (!r) {
		fprintf(stderr,
			"nibemu: rules %s: no rule has this name: `nibemu rules` "
			"lists them\n",
			name);
		return STATUS_USAGE;
	}
	printf("%s\n", r->name);
	print_wrapped("  rule: ", r->rule);
	print_wrapped("  try:  ", r->mend);
	if (emu_rule_update(r))
		print_wrapped("  for an update:  ", emu_rule_update(r));
	printf("  a report of it: \"... %s ...\"\n", r->phrase);
	if (r->can_go_on)
		printf("  may be waived: nibemu run --waive %s\n", r->name);
	else
		puts("  may not be waived: a launch cannot continue after it");
	return STATUS_CLEAN;
}

static int rules(void)
{
	const struct emu_rule *r;

	for (size_t i = 0; (r = emu_rule_at(i)); i++)
		printf("%-20s %s\n", r->name, r->rule);
	return STATUS_CLEAN;
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
	       strcmp(word, "help") == 0;
}

int main(int count, char **arguments)
{
	const char *command = count > 1 ? arguments[1] : "";
	const char *word = count > 2 ? arguments[2] : "";

	if (strcmp(command, "run") == 0) {
		static char name[] = "nibemu run";

		arguments[1] = name; /* for getopt's messages */
		return run(count - 1, arguments + 1);
	}
	if (count > 1 && is_help(command)) {
		fputs(help, stdout);
		return STATUS_CLEAN;
	}
	if (strcmp(command, "--version") == 0) {
		puts("nibemu " NIBEMU_VERSION);
		return STATUS_CLEAN;
	}
	if (strcmp(command, "devices") == 0 && count == 2)
		return devices();
	if (strcmp(command, "devices") == 0 && is_help(word)) {
		puts("usage: nibemu devices\nLists the GPUs for nibemu run "
		     "--device.");
		return STATUS_CLEAN;
	}
	if (strcmp(command, "rules") == 0 && is_help(word)) {
		puts("usage: nibemu rules [NAME]\nLists the rules that reports "
		     "name, or explains one and its usual fix.");
		return STATUS_CLEAN;
	}
	if (strcmp(command, "rules") == 0 && count <= 3)
		return count == 3 ? rule(word) : rules();
	if (count > 1)
		fprintf(stderr, "nibemu: %s: no such command\n", command);
	fputs(help, stderr);
	return STATUS_USAGE;
}
