/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions of configuration files, in time that grows with
 * the pattern times the text (regcomp() may take exponential time, and knows no
 * \w).  What Python's re.match() does with literals, ., classes, groups, |, the
 * quantifiers *, +, ? and {m,n}, ^, $, \d, \s, \w and their opposites.
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
