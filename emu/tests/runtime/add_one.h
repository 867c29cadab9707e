/* SPDX-License-Identifier: Apache-2.0 */
/* add_one.h - a module of which tests launch the kernel. */
#ifndef EMU_TEST_ADD_ONE_H
#define EMU_TEST_ADD_ONE_H

/* Adds 1 to a word. */
static const char add_one[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			      ".visible .entry add(.param .u64 p) {\n"
			      ".reg .u32 %r; .reg .u64 %a;\n"
			      "ld.param.u64 %a, [p];\n"
			      "ld.global.u32 %r, [%a];\n"
			      "add.u32 %r, %r, 1;\n"
			      "st.global.u32 [%a], %r;\n"
			      "ret;\n}\n";

#endif
