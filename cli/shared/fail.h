/* SPDX-License-Identifier: Apache-2.0 */
/* fail.h - messages and exit codes for errors of the library. */
#ifndef NIB_FAIL_H
#define NIB_FAIL_H

#include "nibblas.h"

/*
 * Prints err, after what it happened to ("model.safetensors", may be NULL), and
 * returns the exit code of its status.  cli_fail_input(): the same where the
 * operating system refused an input rather than an output.
 */
int cli_fail(const char *what, const struct nib_error *err);
int cli_fail_input(const char *what, const struct nib_error *err);
/*
 * The same for a call whose arguments come from options: err->argument is shown
 * as option (if not NULL), and advice ends the message.  {0} ends names.
 */
struct cli_name {
	const char *argument, *option, *advice;
};
int cli_fail_named(const char *what, const struct nib_error *err,
		   const struct cli_name *names);
/* For nib_amax() and nib_quantize(). */
extern const struct cli_name cli_saturate_names[];

#endif
