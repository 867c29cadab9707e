/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c - see regex.h.  A pattern is compiled to a program for a machine with many
 * threads (Thompson 1968, in Pike's form).  Each character moves all threads one
 * instruction on; threads at the same instruction are one.
 */
#include "regex.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define MAX_CODE    1000 /* instructions */
#define MAX_CLASSES 64
#define MAX_DEPTH   32 /* groups in groups */
#define MAX_REPEAT  64

enum op { CHARACTER, ANY, CLASS, SPLIT, JUMP, AT_BEGIN, AT_END, MATCH };

struct instruction {
	enum op op;
	int x, y; /* a character or class; where to go on */
};

/* Of ASCII; others says whether all other characters belong to it. */
struct class
{
	uint8_t has[128];
	int others;
};

struct regex {
	int n, n_classes;
	struct class *classes; /* after code */
	struct instruction code[];
};

struct parser {
	const char *at;
	char negation; /* in classes */
	int depth, failed;
	int n, n_classes;
	struct instruction code[MAX_CODE];
	struct class classes[MAX_CLASSES];
};

/* ---- code ---------------------------------------------------------------- */

static int add(struct parser *p, enum op op, int x, int y)
{
	if (p->n == MAX_CODE) {
		p->failed = 1;
		return 0;
	}
	p->code[p->n] = (struct instruction){op, x, y};
	return p->n++;
}

/* Adds an instruction before those from begin on, which move. */
static void insert(struct parser *p, int begin, enum op op, int x, int y)
{
	if (p->failed || p->n == MAX_CODE) {
		p->failed = 1;
		return;
	}
	memmove(p->code + begin + 1, p->code + begin,
		(size_t)(p->n - begin) * sizeof(*p->code));
	p->n++;
	for (int i = begin + 1; i < p->n; i++) {
		struct instruction *in = &p->code[i];

		if (in->op == JUMP || in->op == SPLIT) {
			in->x += in->x >= begin;
			in->y += in->y >= begin;
		}
	}
	p->code[begin] = (struct instruction){op, x, y};
}

/* Appends the instructions begin .. end - 1 once more. */
static void repeat(struct parser *p, int begin, int end)
{
	const int move = p->n - begin;

	for (int i = begin; i < end && !p->failed; i++) {
		const struct instruction in = p->code[i];
		const int goes = in.op == JUMP || in.op == SPLIT;

		add(p, in.op, goes ? in.x + move : in.x, goes ? in.y + move : in.y);
	}
}

/* ---- classes ------------------------------------------------------------- */

static struct class *add_class(struct parser *p)
{
	if (p->n_classes == MAX_CLASSES) {
		p->failed = 1;
		return NULL;
	}
	p->classes[p->n_classes] = (struct class){0};
	return &p->classes[p->n_classes++];
}

/* Adds what \d, \s or \w stands for, or \D, \S or \W; 0: none of them. */
static int add_kind(struct class *class, char kind)
{
	const int is_not = kind >= 'A' && kind <= 'Z';
	const char lower = (char)(is_not ? kind - 'A' + 'a' : kind);

	if (!strchr("dsw", lower) || !lower)
		return 0;
	for (int c = 0; c < 128; c++) {
		int in = (c >= '0' && c <= '9' && lower != 's');

		in |= lower == 's' &&
		      (c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31));
		in |= lower == 'w' &&
		      ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_');
		class->has[c] |= (uint8_t)(in != is_not);
	}
	/* Other letters are \w: names have nothing else beyond ASCII. */
	class->others |= (lower == 'w') != is_not;
	return 1;
}

/* The character that an escape stands for; -1: not understood. */
static int escaped(int c)
{
	if (c == 'n' || c == 't')
		return c == 'n' ? '\n' : '\t';
	/* Letters and digits have meanings that are not known here. */
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z') || c <= 0 || c >= 128)
		return -1;
	return c;
}

/* One character of a class, which moves p->at on; -1: a kind, or a failure. */
static int class_character(struct parser *p, struct class *class)
{
	int c = (unsigned char)*p->at++;

	if (c == '\\') {
		const char kind = *p->at;

		if (kind && add_kind(class, kind)) {
			p->at++;
			return -1;
		}
		c = escaped((unsigned char)kind);
		p->at += kind != '\0';
	}
	if (c <= 0 || c >= 128) {
		p->failed = 1;
		return -1;
	}
	return c;
}

/* p->at is after '['. */
static void parse_class(struct parser *p)
{
	struct class *class = add_class(p);
	const int is_not = *p->at == p->negation;
	const char *begin = p->at += is_not;

	while (class && !p->failed && (*p->at != ']' || p->at == begin)) {
		int first = class_character(p, class), last = first;

		if (first >= 0 && *p->at == '-' && p->at[1] && p->at[1] != ']') {
			p->at++;
			last = class_character(p, class);
			p->failed |= last < first;
		}
		for (int c = first; c >= 0 && c <= last; c++)
			class->has[c] = 1;
	}
	if (!class || p->failed)
		return;
	p->at++;
	for (int c = 0; c < 128 && is_not; c++)
		class->has[c] = !class->has[c];
	class->others ^= is_not;
	add(p, CLASS, p->n_classes - 1, 0);
}

/* ---- the pattern --------------------------------------------------------- */

static void parse_choice(struct parser *p);

/* p->at is after '('. */
static void parse_group(struct parser *p)
{
	if (p->at[0] == '?' && p->at[1] == ':')
		p->at += 2;
	else if (p->at[0] == '?')
		p->failed = 1;
	if (++p->depth > MAX_DEPTH)
		p->failed = 1;
	if (!p->failed)
		parse_choice(p);
	p->depth--;
	if (*p->at == ')')
		p->at++;
	else
		p->failed = 1;
}

static void parse_escape(struct parser *p)
{
	const int c = (unsigned char)*p->at;
	struct class *class;

	if (c && strchr("dDsSwW", c)) {
		class = add_class(p);
		if (class && add_kind(class, (char)c))
			add(p, CLASS, p->n_classes - 1, 0);
	} else if (escaped(c) >= 0) {
		add(p, CHARACTER, escaped(c), 0);
	} else {
		p->failed = 1;
	}
	p->at += c != '\0';
}

static void parse_one(struct parser *p)
{
	const int c = (unsigned char)*p->at++;

	if (c == '(')
		parse_group(p);
	else if (c == '[')
		parse_class(p);
	else if (c == '\\')
		parse_escape(p);
	else if (c == '.')
		add(p, ANY, 0, 0);
	else if (c == '^' || c == '$')
		add(p, c == '^' ? AT_BEGIN : AT_END, 0, 0);
	else if (strchr("*+?{", c) || c >= 128)
		p->failed = 1; /* nothing to repeat, or beyond ASCII */
	else
		add(p, CHARACTER, c, 0);
}

static int parse_number(struct parser *p, int otherwise)
{
	int n = 0;

	if (*p->at < '0' || *p->at > '9')
		return otherwise;
	while (*p->at >= '0' && *p->at <= '9' && n <= MAX_REPEAT)
		n = 10 * n + *p->at++ - '0';
	p->failed |= n > MAX_REPEAT;
	return n;
}

/* What *, +, ? and {m,n} say; most -1: any number.  0: no quantifier. */
static int parse_quantifier(struct parser *p, int *least, int *most)
{
	const char c = *p->at;

	if (!c || !strchr("*+?{", c))
		return 0;
	p->at++;
	*least = c == '+';
	*most = c == '?' ? 1 : -1;
	if (c == '{') {
		const int has_least = *p->at != ',';

		*least = parse_number(p, has_least ? -1 : 0);
		*most = *least;
		if (*p->at == ',') {
			p->at++;
			*most = parse_number(p, -1);
		}
		p->failed |=
		    *least < 0 || *p->at != '}' || (*most >= 0 && *most < *least);
		p->at += *p->at != '\0';
	}
	/* Lazy or not changes which match is found, not whether. */
	if (*p->at == '?')
		p->at++;
	else if (*p->at && strchr("*+{", *p->at))
		p->failed = 1;
	return 1;
}

/* Repeats the instructions from begin on. */
static void quantify(struct parser *p, int begin, int least, int most)
{
	const int end = p->n, size = end - begin;
	int from;

	for (int i = 1; i < least; i++)
		repeat(p, begin, end);
	if (most < 0) {
		/* L: split L1, out; L1: once more; jump L */
		if (least > 0)
			repeat(p, begin, end);
		from = p->n - size;
		insert(p, from, SPLIT, from + 1, 0);
		add(p, JUMP, from, 0);
		p->code[from].y = p->n;
		return;
	}
	for (int i = least; i < most && !p->failed; i++) {
		if (i > 0)
			repeat(p, least ? begin : begin + 1, least ? end : end + 1);
		from = p->n - size;
		insert(p, from, SPLIT, from + 1, 0);
		p->code[from].y = p->n;
	}
	if (most == 0)
		p->n = begin;
}

static void parse_sequence(struct parser *p)
{
	while (!p->failed && *p->at && *p->at != '|' && *p->at != ')') {
		const int begin = p->n;
		int least, most;

		parse_one(p);
		if (!p->failed && parse_quantifier(p, &least, &most) && !p->failed)
			quantify(p, begin, least, most);
	}
}

static void parse_choice(struct parser *p)
{
	const int begin = p->n;
	int jump;

	parse_sequence(p);
	if (p->failed || *p->at != '|')
		return;
	p->at++;
	/* split L1, L2; L1: the first; jump out; L2: the rest */
	insert(p, begin, SPLIT, begin + 1, 0);
	jump = add(p, JUMP, 0, 0);
	p->code[begin].y = p->n;
	parse_choice(p);
	p->code[jump].x = p->n;
}

/* A copy of what was parsed that takes no more memory than it needs. */
static struct regex *finish(const struct parser *p)
{
	const size_t code = (size_t)p->n * sizeof(*p->code);
	const size_t classes = (size_t)p->n_classes * sizeof(*p->classes);
	struct regex *r = malloc(sizeof(*r) + code + classes);

	if (!r) {
		cli_out_of_memory();
		return NULL;
	}
	r->n = p->n;
	r->n_classes = p->n_classes;
	r->classes = (struct class *)(r->code + p->n);
	memcpy(r->code, p->code, code);
	memcpy(r->classes, p->classes, classes);
	return r;
}

struct regex *regex_new(const char *pattern)
{
	struct parser p = {.at = pattern, .negation = '^'};

	parse_choice(&p);
	add(&p, MATCH, 0, 0);
	return p.failed || *p.at ? NULL : finish(&p);
}

struct regex *regex_new_glob(const char *glob)
{
	struct parser p = {.at = glob, .negation = '!'};

	while (*p.at && !p.failed) {
		const int begin = p.n, c = (unsigned char)*p.at++;

		if (c == '[' && strchr(p.at, ']')) {
			parse_class(&p);
		} else if (c == '*' || c == '?') {
			add(&p, ANY, 0, 0);
			if (c == '*')
				quantify(&p, begin, 0, -1);
		} else {
			p.failed |= c >= 128;
			add(&p, CHARACTER, c, 0);
		}
	}
	add(&p, AT_END, 0, 0);
	add(&p, MATCH, 0, 0);
	return p.failed ? NULL : finish(&p);
}

void regex_free(struct regex *regex)
{
	free(regex);
}

/* ---- matching ------------------------------------------------------------ */

/* Instructions at which the machine has a thread, each once. */
struct places {
	int count, at[MAX_CODE];
	uint8_t has[MAX_CODE];
};

/* Adds a thread at start, and those that it becomes without a character. */
static void enter(const struct regex *r, struct places *places, int start, int is_begin,
		  int is_end)
{
	int waiting[MAX_CODE], n = 0;

	if (!places->has[start])
		waiting[n++] = start;
	places->has[start] = 1;
	while (n) {
		const int at = waiting[--n];
		const struct instruction *in = &r->code[at];
		int next[2] = {-1, -1};

		if (in->op == JUMP || in->op == SPLIT)
			next[0] = in->x;
		if (in->op == SPLIT)
			next[1] = in->y;
		if ((in->op == AT_BEGIN && is_begin) || (in->op == AT_END && is_end))
			next[0] = at + 1;
		if (in->op == CHARACTER || in->op == ANY || in->op == CLASS ||
		    in->op == MATCH)
			places->at[places->count++] = at;
		for (int i = 0; i < 2; i++)
			if (next[i] >= 0 && !places->has[next[i]]) {
				places->has[next[i]] = 1;
				waiting[n++] = next[i];
			}
	}
}

static int takes(const struct regex *r, const struct instruction *in, int c)
{
	if (in->op == CHARACTER)
		return in->x == c;
	if (in->op == ANY)
		return c != '\n';
	return in->op == CLASS &&
	       (c < 128 ? r->classes[in->x].has[c] : r->classes[in->x].others);
}

int regex_matches(const struct regex *r, const char *text)
{
	struct places places[2] = {0}, *now = &places[0], *next = &places[1];
	int start = 0, first = 0;

	/* Most patterns begin with letters that most names do not. */
	while (r->code[start].op == CHARACTER)
		if ((unsigned char)text[first++] != r->code[start++].x)
			return 0;
	enter(r, now, start, !start, !text[first]);
	for (const unsigned char *c = (const unsigned char *)text + first; now->count;
	     c++) {
		const unsigned char *rest = c + 1;
		struct places *last = now;

		for (int i = 0; i < now->count; i++)
			if (r->code[now->at[i]].op == MATCH)
				return 1;
		if (!*c)
			return 0;
		/* A character of UTF-8 goes with its first byte. */
		while ((*rest & 0xC0) == 0x80)
			rest++;
		next->count = 0;
		memset(next->has, 0, (size_t)r->n);
		for (int i = 0; i < now->count; i++)
			if (takes(r, &r->code[now->at[i]], *c))
				enter(r, next, now->at[i] + 1, 0, !*rest);
		now = next;
		next = last;
		c = rest - 1;
	}
	return 0;
}
