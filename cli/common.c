/* SPDX-License-Identifier: Apache-2.0 */
/* common.c - messages, exit codes, signals and the options that commands share.
 */
#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "cli.h"
#include "progress.h"

const char *cli_command_name = "";

const char *const cli_dtype_names[] = {"fp32", "fp16", "bf16"};
const char *const cli_layout_names[] = {"linear", "tiled"};

const struct cli_option common_options[] = {
    {.name = "quiet",
     .letter = 'q',
     .kind = OPT_FLAG,
     .offset = offsetof(struct common_args, quiet),
     .help = "no progress and no notes on standard error"},
    {0},
};

const struct cli_option format_options[] = {
    {.name = "format",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct format_args, format),
     .value = "text|md|csv|json|jsonl",
     .fallback = "text",
     .help = "how to print: a table for people, or for a program"},
    {0},
};

#define CPU_OPTIONS                                                            \
	{.name = "threads",                                                    \
	 .kind = OPT_INT,                                                      \
	 .offset = offsetof(struct device_args, threads),                      \
	 .value = "N",                                                         \
	 .fallback = "0",                                                      \
	 .min = 0,                                                             \
	 .max = 4096,                                                          \
	 .help = "threads to use; 0 = every processor this process may use"},  \
	{                                                                      \
		.name = "isa", .kind = OPT_WORD,                               \
		.offset = offsetof(struct device_args, isa),                   \
		.value = "scalar|avx2|avx512bw|avx512",                        \
		.help =                                                        \
		    "force one instruction set (else what NIB_CPU says, else " \
		    "the best one here)"                                       \
	}

const struct cli_option device_options[] = {CPU_OPTIONS, {0}};

const struct cli_option any_device_options[] = {
    {.name = "device",
     .kind = OPT_TEXT,
     .offset = offsetof(struct device_args, device),
     .value = "NAME",
     .fallback = "cpu",
     .help =
	 "where to compute: cpu, cuda:0, cuda:1, ... (nib info lists them) or "
	 "emu:h200 (a GPU in software, for tests)"},
    CPU_OPTIONS,
    {0},
};

void cli_clean(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++) {
		unsigned char first = (unsigned char)c[0];
		unsigned char second = (unsigned char)c[1];
		/* U+0080 to U+009F are two bytes of UTF-8. */
		int is_c1 = first == 0xC2 && second >= 0x80 && second < 0xA0;

		*to++ = (char)(first < 0x20 || first == 0x7F || is_c1 ? '?'
								      : first);
		c += is_c1;
	}
	*to = '\0';
}

static void message(const char *kind, const char *format, va_list list)
{
	char text[8192];

	vsnprintf(text, sizeof(text), format, list);
	cli_clean(text);
	progress_hide();
	fprintf(stderr, "nib%s%s: %s%s\n", *cli_command_name ? " " : "",
		cli_command_name, kind, text);
}

int cli_error(enum cli_exit code, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	message("", format, list);
	va_end(list);
	return (int)code;
}

void cli_warn(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	message("warning: ", format, list);
	va_end(list);
}

/* The library's message with the options of nib for its arguments. */
static void put_in_options(const char *message, char *text, size_t bytes)
{
	static const struct {
		const char *argument, *option;
	} words[] = {
	    {"name = ", "--device "},
	    {"options.isa = ", "--isa "},
	    {"options.threads = ", "--threads "},
	    {"or set saturate", "or give --saturate"},
	};

	snprintf(text, bytes, "%s", message);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *at = strstr(message, words[i].argument);

		/* Names of arguments begin a message; the advice ends one. */
		if (!at || (at > message && at[strlen(words[i].argument)]))
			continue;
		snprintf(text, bytes, "%.*s%s%s", (int)(at - message), message,
			 words[i].option, at + strlen(words[i].argument));
	}
}

static int fail(const char *what, const struct nib_error *err, int io_code)
{
	static const int codes[] = {
	    [NIB_OK] = CLI_OK,
	    [NIB_BAD_ARGUMENT] = CLI_USAGE,
	    [NIB_UNSUPPORTED] = CLI_FAILED,
	    [NIB_OUT_OF_MEMORY] = CLI_FAILED,
	    [NIB_NO_DEVICE] = CLI_FAILED,
	    [NIB_BAD_DATA] = CLI_INPUT,
	    [NIB_BAD_FILE] = CLI_INPUT,
	    [NIB_DEVICE_FAILED] = CLI_FAILED,
	};
	int code = err->status == NIB_IO ? io_code : codes[err->status];
	size_t n = what ? strlen(what) : 0;
	char text[sizeof(err->message) + 64];

	put_in_options(err->message, text, sizeof(text));
	/* Errors of files begin with the path themselves. */
	if (n && !strncmp(text, what, n) && text[n] == ':')
		what = NULL;
	return cli_error((enum cli_exit)code, "%s%s%s (%s)", what ? what : "",
			 what ? ": " : "", text, nib_status_name(err->status));
}

int cli_fail(const char *what, const struct nib_error *err)
{
	return fail(what, err, CLI_FAILED);
}

int cli_fail_input(const char *what, const struct nib_error *err)
{
	return fail(what, err, CLI_INPUT);
}

int cli_no_memory(const char *what)
{
	return cli_error(CLI_FAILED, "not enough memory for the %s", what);
}

int cli_open_device(const struct device_args *args, struct nib_device **device)
{
	struct nib_device_options options = {
	    .struct_bytes = sizeof(options),
	    .threads = (int)args->threads,
	    .isa = args->isa,
	};
	const char *name = args->device ? args->device : "cpu";
	struct nib_error err;
	int code = cli_emu_device(name, &name);

	if (code)
		return code;
	if (nib_device_open(name, &options, device, &err))
		return cli_fail(NULL, &err);
	/* The loops of nib itself keep to --threads too. */
	if (cli_is_host(*device))
		omp_set_num_threads(cli_threads(*device));
	else if (args->threads)
		omp_set_num_threads((int)args->threads);
	return CLI_OK;
}

static struct nib_device_info device_info(const struct nib_device *device)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	/* Cannot fail for an open device; zeroes would be printed. */
	nib_device_get_info(device, &info, NULL);
	return info;
}

const char *cli_backend(const struct nib_device *device)
{
	return device_info(device).backend;
}

int cli_threads(const struct nib_device *device)
{
	return device_info(device).threads;
}

enum nib_arithmetic cli_arithmetic(const struct nib_device *device)
{
	return device_info(device).arithmetic;
}

int cli_is_host(const struct nib_device *device)
{
	return strcmp(device_info(device).name, "cpu") == 0;
}

const char *cli_machine(const struct nib_device *device)
{
	static char text[256];
	struct nib_device_info info = device_info(device);
	struct utsname os;
	char driver[48] = "";

	if (info.driver_version)
		snprintf(driver, sizeof(driver), ", CUDA %d.%d driver",
			 info.driver_version / 1000,
			 info.driver_version % 1000 / 10);
	if (uname(&os))
		snprintf(text, sizeof(text), "%s%s", info.hardware, driver);
	else
		snprintf(text, sizeof(text), "%s%s, %.32s %.64s", info.hardware,
			 driver, os.sysname, os.release);
	return text;
}

double cli_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int unit = 0;

	while (bytes >= 1024 && unit < 4) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, CLI_SIZE_TEXT,
		 unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes,
		 units[unit]);
	return text;
}

const char *cli_seconds_text(double s, char text[CLI_SECONDS_TEXT])
{
	if (s < 1e-3)
		snprintf(text, CLI_SECONDS_TEXT, "%.3f us", s * 1e6);
	else if (s < 1)
		snprintf(text, CLI_SECONDS_TEXT, "%.3f ms", s * 1e3);
	else
		snprintf(text, CLI_SECONDS_TEXT, "%.3f s", s);
	return text;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

void cli_catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct sigaction old;

		/* nohup's SIG_IGN stays as it is. */
		if (!sigaction(numbers[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

int cli_interrupted(void)
{
	return interrupted;
}

int cli_check_output(const char *out, const char *const *inputs, int n_inputs,
		     int force)
{
	struct stat to, from;

	if (!*out)
		return cli_error(CLI_USAGE, "the output file has no name");
	if (!strcmp(out, "-"))
		return cli_error(CLI_USAGE,
				 "-: the output is a file, not the standard "
				 "output; ./- is one of that name");
	if (stat(out, &to)) {
		if (errno == ENOENT)
			return CLI_OK;
		return cli_error(CLI_FAILED, "%s: %s", out, strerror(errno));
	}
	for (int i = 0; i < n_inputs; i++)
		if (!stat(inputs[i], &from) && from.st_dev == to.st_dev &&
		    from.st_ino == to.st_ino)
			return cli_error(
			    CLI_USAGE,
			    "%s and %s are the same file: an input "
			    "is never written over",
			    inputs[i], out);
	if (!S_ISREG(to.st_mode))
		return cli_error(CLI_USAGE, "%s: not a regular file", out);
	if (!force)
		return cli_error(CLI_USAGE, "%s exists; --force replaces it",
				 out);
	return CLI_OK;
}
