/* SPDX-License-Identifier: Apache-2.0 */
/* common/unit.h - cmocka with the headers that it needs before it. */
#ifndef EMU_TESTS_UNIT_H
#define EMU_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
