/* SPDX-License-Identifier: Apache-2.0 */
/* common.c - options that several commands have, and the check of an output file. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

const struct cli_option cli_message_options[] = {
    {"quiet", OPT_FLAG, offsetof(struct cli_shared, quiet), .letter = 'q',
     .help = "no progress and no notes on standard error"},
    {0},
};

const struct cli_option cli_output_options[] = {
    {"format", OPT_CHOICE, offsetof(struct cli_shared, format),
     "text|md|csv|json|jsonl", "text",
     .help = "how to print: a table for people, or for a program"},
    {0},
};

#define ARG(member) offsetof(struct cli_shared, device.member)
const struct cli_option cli_device_options[] = {
    {"device", OPT_TEXT, ARG(device), "NAME", "cpu",
     .help = "where to compute: cpu, cuda:0, cuda:1, ... (nib info lists them) "
	     "or emu:h200, emu:h100, emu:b200, emu:a100, emu:rtx4090, emu:rtx5090 "
	     "(GPUs in software, for tests)"},
    {0},
};
const struct cli_option cli_cpu_options[] = {
    {"threads", OPT_INT, ARG(threads), "N", "0", .max = 4096,
     .help = "threads to use; 0 = every processor this process may use"},
    {"isa", OPT_WORD, ARG(isa),
     "scalar|avx2|avxvnni|avx512bw|avx512vnni|amx|avx512|neon|neondot|"
     "neoni8mm|neonbf16",
     .help = "instruction set to use (else NIB_CPU, else the best one here); avx512 is "
	     "an older name of avx512vnni"},
    {0},
};

int cli_check_output(const char *out, const char *const *inputs, int n_inputs,
		     int force)
{
	struct stat to, from;

	if (!*out)
		return cli_error(CLI_USAGE, "the output file has no name");
	if (!strcmp(out, "-"))
		return cli_error(CLI_USAGE, "-: the output is a file, not the standard "
					    "output; ./- is one of that name");
	if (stat(out, &to)) {
		if (errno == ENOENT)
			return CLI_OK;
		return cli_error(CLI_FAILED, "%s: %s", out, strerror(errno));
	}
	for (int i = 0; i < n_inputs; i++)
		if (!stat(inputs[i], &from) && from.st_dev == to.st_dev &&
		    from.st_ino == to.st_ino)
			return cli_error(CLI_USAGE,
					 "%s and %s are the same file: nib "
					 "never overwrites its input",
					 inputs[i], out);
	if (!S_ISREG(to.st_mode))
		return cli_error(CLI_USAGE, "%s: not a regular file", out);
	if (!force)
		return cli_error(CLI_USAGE, "%s exists; --force replaces it", out);
	return CLI_OK;
}
