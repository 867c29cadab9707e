/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h - what ends a command from outside: see stop.c. */
#ifndef NIB_STOP_H
#define NIB_STOP_H

/*
 * main calls this once.  SIGINT, SIGTERM and SIGHUP then end nib with a message
 * and 128 + the signal's number; with defer they only set a flag.  An input
 * file that gets shorter while it is mapped (SIGBUS) reads as zeros from there
 * on.
 */
void cli_catch_signals(int defer);
/*
 * Whether to stop, asked between steps and before output is committed: CLI_OK,
 * or the exit code after a message, for a deferred signal or a file that got
 * shorter.
 */
int cli_stopped(void);
/* The same without the message. */
int cli_must_stop(void);
/*
 * For functions whose NULL already means that there is none: memory ran out, so
 * that cli_must_stop() holds from now on.  jansson's allocations call it after
 * cli_watch_memory().
 */
void cli_out_of_memory(void);
void cli_watch_memory(void);
/* CLI_OK, or the exit code after a message. */
int cli_check_memory(void);

#endif
