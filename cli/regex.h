/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions of configuration files, in time proportional to
 * the pattern times the text (regcomp() may need exponential time, and does not
 * know \w).  Matches as Python's re.match() does with literals, ., classes,
 * groups, |, the quantifiers *, +, ? and {m,n}, ^, $, \d, \s, \w and their
 * opposites.
 *
 * python/nibblas/_patterns.py does the same for the Python package, and more
 * (lookarounds, \b, (?i)): it matches the syntax tree of Python's own parser, which
 * the command does not have.
 */
#ifndef NIB_REGEX_H
#define NIB_REGEX_H

struct regex;

/* NULL if the pattern is not understood, too long, or there is no memory, which
 * stops the command. */
struct regex *regex_new(const char *pattern);
/* The same for a pattern of fnmatch(): *, ? and [...], for the whole text. */
struct regex *regex_new_glob(const char *glob);
void regex_free(struct regex *regex);
/* Whether text begins with a match. */
int regex_matches(const struct regex *regex, const char *text);

#endif
