/* SPDX-License-Identifier: Apache-2.0 */
/* help.h - what the texts made from the option tables share. */
#ifndef NIB_HELP_H
#define NIB_HELP_H

#include "cli.h"

int help_takes_value(const struct cli_option *option);
/* The man page nib(1), in man(7) markup. */
void help_print_man(FILE *to);
/* A completion script for bash. */
void help_print_bash(FILE *to);

#endif
