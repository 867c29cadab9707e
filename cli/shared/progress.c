/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - the progress line: see progress.h. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "text.h"

#define SHOW_AFTER_S  0.5 /* quick work shows nothing */
#define REDRAW_S      0.1
#define PLAIN_AFTER_S 2.0 /* not a terminal: first line, then one each 5 s */
#define PLAIN_EVERY_S 5.0
#define BAR_CELLS     24

static struct {
	pthread_mutex_t lock; /* of everything below */
	pthread_cond_t ended;
	pthread_t ticker;
	int ticking, active, quiet, is_terminal, is_drawn;
	double total, done, start_s, next_s;
	char label[64], item[128];
} now = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static int columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20)
		return 80;
	return size.ws_col;
}

static void format_line(char *line, size_t bytes, double elapsed_s)
{
	double fraction = now.total > 0 ? now.done / now.total : 0;
	char bar[BAR_CELLS + 3] = "", left[48] = "";

	if (fraction > 1)
		fraction = 1;
	if (now.total > 0 && now.is_terminal) {
		int full = (int)(fraction * BAR_CELLS);

		bar[0] = '[';
		memset(bar + 1, ' ', BAR_CELLS);
		memset(bar + 1, '=', (size_t)full);
		if (full < BAR_CELLS)
			bar[1 + full] = '>';
		bar[BAR_CELLS + 1] = ']';
	}
	if (now.total > 0 && fraction > 0.02)
		snprintf(left, sizeof(left), ", %.0f s left",
			 elapsed_s * (1 - fraction) / fraction);
	if (now.total > 0)
		snprintf(line, bytes, "%s %s%s%3.0f %%  %.0f s%s  %s", now.label, bar,
			 *bar ? " " : "", 100 * fraction, elapsed_s, left, now.item);
	else
		snprintf(line, bytes, "%s  %.0f s  %s", now.label, elapsed_s, now.item);
}

/* With the lock held. */
static void draw(void)
{
	double time_s = cli_now_s();
	char line[512];

	if (!now.active || now.quiet || time_s < now.next_s)
		return;
	format_line(line, sizeof(line), time_s - now.start_s);
	if (now.is_terminal) {
		fprintf(stderr, "\r\033[K%.*s", columns() - 1, line);
		fflush(stderr);
		now.is_drawn = 1;
		now.next_s = time_s + REDRAW_S;
	} else {
		fprintf(stderr, "%s\n", line);
		now.next_s = time_s + PLAIN_EVERY_S;
	}
}

/* With the lock held. */
static void wipe(void)
{
	if (now.is_drawn) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
		now.is_drawn = 0;
	}
}

static void *tick(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&now.lock);
	while (now.active) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += (long)(REDRAW_S * 1e9);
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&now.ended, &now.lock, &until);
		draw();
	}
	pthread_mutex_unlock(&now.lock);
	return NULL;
}

void progress_set_quiet(int quiet)
{
	pthread_mutex_lock(&now.lock);
	now.quiet = quiet;
	pthread_mutex_unlock(&now.lock);
}

void progress_begin(const char *label, double total, int ticking)
{
	progress_end();
	pthread_mutex_lock(&now.lock);
	now.active = 1;
	now.is_terminal = cli_is_terminal(STDERR_FILENO);
	now.total = total;
	now.done = 0;
	now.item[0] = '\0';
	snprintf(now.label, sizeof(now.label), "%s", label);
	now.start_s = cli_now_s();
	now.next_s = now.start_s + (now.is_terminal ? SHOW_AFTER_S : PLAIN_AFTER_S);
	/* Without a thread the line still moves with each update. */
	now.ticking =
	    ticking && !now.quiet && !pthread_create(&now.ticker, NULL, tick, NULL);
	pthread_mutex_unlock(&now.lock);
}

static void update(double before, double more, const char *item)
{
	now.done = before + more;
	if (item)
		snprintf(now.item, sizeof(now.item), "%s", item);
	cli_clean(now.item);
	draw();
}

void progress_update(double done, const char *item)
{
	pthread_mutex_lock(&now.lock);
	update(0, done, item);
	pthread_mutex_unlock(&now.lock);
}

void progress_advance(double more, const char *item)
{
	pthread_mutex_lock(&now.lock);
	update(now.done, more, item);
	pthread_mutex_unlock(&now.lock);
}

void progress_end(void)
{
	int join;

	pthread_mutex_lock(&now.lock);
	wipe();
	now.active = 0;
	join = now.ticking;
	now.ticking = 0;
	pthread_cond_signal(&now.ended);
	pthread_mutex_unlock(&now.lock);
	if (join)
		pthread_join(now.ticker, NULL);
}

void progress_hide(void)
{
	pthread_mutex_lock(&now.lock);
	wipe();
	pthread_mutex_unlock(&now.lock);
}
