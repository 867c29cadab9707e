/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - exit codes, and messages on standard error. */
#ifndef NIB_MESSAGE_H
#define NIB_MESSAGE_H

/* What nib exits with; nib help exit-codes explains them. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FOUND = 1,	  /* it worked; what it looked at is not good */
	CLI_USAGE = 2,	  /* arguments break a rule; nothing was done */
	CLI_INPUT = 3,	  /* an input file cannot be read or used */
	CLI_FAILED = 4,	  /* no memory, no such device, output not written */
	CLI_SIGNAL = 128, /* + the signal's number: interrupted, cleaned up */
};

/* "nib check: message" on standard error.  cli_error() returns code. */
__attribute__((format(printf, 2, 3))) int cli_error(enum cli_exit code,
						    const char *format, ...);
__attribute__((format(printf, 1, 2))) void cli_warn(const char *format, ...);
/* The name that messages begin with: set by main. */
extern const char *cli_command_name;

int cli_no_memory(const char *what);

#endif
