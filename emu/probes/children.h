/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.h - asks a GPU questions, of which some end its context for good.  Each is
 * asked in a child process; after one that ended the context, the next child
 * continues.
 */
#ifndef EMU_PROBES_CHILDREN_H
#define EMU_PROBES_CHILDREN_H

#define PROBE_TEXT    480
#define PROBE_SECONDS 60 /* for a question, before its child is ended */

struct probe_answer {
	int is_asked, is_trap, differs;
	char text[PROBE_TEXT]; /* the recording's line */
};

struct probe_questions {
	int count;
	/* Called first in each child; writes the GPU's name. */
	void (*begin)(char *name, int bytes);
	/* Fills the answer, or calls probe_trap(). */
	void (*ask)(int question, struct probe_answer *answer);
	/* "mbarrier.cu", "histories", for the recording and for people. */
	const char *program, *things;
	/* Answers from here on are digits, 64 in each line; 0: none are. */
	int digits_from;
	/* Explains the answers; may be NULL. */
	void (*explain)(const struct probe_answer *answers);
};

/* main() of a probe: PROGRAM RECORDING.  Writes the answers, and prints how many
 * differ from the software GPU.  Returns 1 if any does, 2 if there are no answers. */
int probe_main(int argc, char **argv, const struct probe_questions *questions);

/*
 * Returns count answers, and one more whose text is the GPU's name, in memory that
 * parent and children share.  The parent must not have used CUDA.  NULL, with a line
 * on stderr: a child could not begin.
 */
struct probe_answer *probe_ask(const struct probe_questions *questions);
void probe_free(struct probe_answer *answers, int count);

/* In a child: this question has ended the context; text as printf's. */
__attribute__((format(printf, 2, 3), noreturn)) void
probe_trap(struct probe_answer *answer, const char *format, ...);

#endif
